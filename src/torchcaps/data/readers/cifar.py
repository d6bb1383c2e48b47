"""CIFAR-10 and CIFAR-100: the binary version and the Python pickles.

The binary version has one record per image: a label byte (CIFAR-100: coarse, then fine) and 3,072
pixel bytes, channels first. The pickles hold a dict with ``data`` ``[n 3072]`` and label lists.

No pickle is ever executed. `read_cifar_pickle` interprets only the opcodes of these files: dicts,
lists, tuples, byte strings and integers. It treats the two calls that rebuild a numpy array of
bytes as data and refuses everything else.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from torchcaps.data.readers.bytes import Cursor, FileFormatError

PIXELS = 3 * 32 * 32


def read_cifar_binary(
    data: bytes, *, label_bytes: int, limit: int
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return images ``[n 3 32 32]`` and labels ``[n label_bytes]`` of the binary version."""
    record = label_bytes + PIXELS
    count, rest = divmod(len(data), record)
    if rest or not count:
        raise FileFormatError(f"its {len(data)} bytes are not whole records of {record} bytes")
    if count > limit:
        raise FileFormatError(f"it holds {count} images, more than the {limit} known")
    records = np.frombuffer(data, np.uint8).reshape(count, record)
    images = records[:, label_bytes:].reshape(count, 3, 32, 32).copy()
    return images, records[:, :label_bytes].copy()


def read_cifar_pickle(
    data: bytes, *, label_keys: tuple[str, ...], limit: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images ``[n 3 32 32]`` and labels ``[n label_keys]`` of one pickle.

    Args:
        data: the whole file; the caller checks its hash.
        label_keys: ``("labels",)`` for CIFAR-10, ``("coarse_labels", "fine_labels")`` for 100.
        limit: the most images the file can hold.
    """
    batch = unpickle(data)
    if not isinstance(batch, dict):
        raise FileFormatError("its pickle is not a dict")
    pixels = batch.get(b"data")
    if not isinstance(pixels, _Array):
        raise FileFormatError("its pickle holds no array named data")
    count, rest = divmod(len(pixels.content), PIXELS)
    if rest or not 0 < count <= limit or pixels.shape != (count, PIXELS):
        raise FileFormatError(f"its array has shape {pixels.shape}, not [n {PIXELS}], n <= {limit}")
    columns = []
    for key in label_keys:
        labels = batch.get(key.encode())
        if not isinstance(labels, list) or len(labels) != count:
            raise FileFormatError(f"its pickle holds no list named {key} of {count} labels")
        if not all(type(label) is int and 0 <= label < 256 for label in labels):
            raise FileFormatError(f"its list named {key} holds something else than small integers")
        columns.append(labels)
    images = np.frombuffer(pixels.content, np.uint8).reshape(count, 3, 32, 32).copy()
    return images, np.array(columns, np.int64).T.copy()


@dataclass
class _Array:
    """A numpy array of bytes described by the pickle."""

    shape: tuple[int, ...] = ()
    content: bytes = b""


@dataclass(frozen=True)
class _Name:
    """A global named by the pickle; it cannot be called."""

    name: str


class _Mark:
    pass


_MARK = _Mark()
_RECONSTRUCT = _Name("reconstruct")
_NDARRAY = _Name("ndarray")
_DTYPE = _Name("dtype")
_BYTE = _Name("uint8")
_GLOBALS = {
    b"numpy.core.multiarray\n_reconstruct\n": _RECONSTRUCT,
    b"numpy._core.multiarray\n_reconstruct\n": _RECONSTRUCT,
    b"numpy\nndarray\n": _NDARRAY,
    b"numpy\ndtype\n": _DTYPE,
}
_MAX_GLOBAL_BYTES = max(map(len, _GLOBALS))


def unpickle(data: bytes) -> object:
    """Interpret the opcodes of a CIFAR pickle (protocol 2) without executing anything."""
    return _Machine(data).run()


class _Machine:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.cursor = Cursor(data)
        self.stack: list[object] = []
        self.memo: dict[int, object] = {}

    def run(self) -> object:
        """Run the opcodes up to STOP and return the one value left."""
        if self.data[:2] != b"\x80\x02":
            raise FileFormatError("it is not a pickle of protocol 2")
        self.cursor.take(2)
        while True:
            code = self.cursor.integer(1)
            if code == ord("."):
                break
            operation = _OPERATIONS.get(code)
            if operation is None:
                raise FileFormatError(f"its pickle has opcode {code:#04x}, which CIFAR never uses")
            operation(self)
        self.cursor.end()
        value = self.pop()
        if self.stack:
            raise FileFormatError("its pickle leaves more than one value")
        return value

    def pop(self) -> object:
        if not self.stack:
            raise FileFormatError("its pickle takes a value from an empty stack")
        return self.stack.pop()

    def peek(self) -> object:
        if not self.stack:
            raise FileFormatError("its pickle looks at an empty stack")
        return self.stack[-1]

    def pop_to_mark(self) -> list[object]:
        for position in range(len(self.stack) - 1, -1, -1):
            if self.stack[position] is _MARK:
                values = self.stack[position + 1 :]
                del self.stack[position:]
                return values
        raise FileFormatError("its pickle has no mark where one is needed")

    def constant(self, value: object) -> None:
        self.stack.append(value)

    def integer(self, size: int, *, signed: bool = False) -> None:
        self.stack.append(self.cursor.integer(size, signed=signed))

    def string(self, size: int) -> None:
        self.stack.append(bytes(self.cursor.take(self.cursor.integer(size))))

    def put(self, size: int) -> None:
        self.memo[self.cursor.integer(size)] = self.peek()

    def get(self, size: int) -> None:
        key = self.cursor.integer(size)
        if key not in self.memo:
            raise FileFormatError("its pickle refers to a value it has not stored")
        self.stack.append(self.memo[key])

    def tuple_of(self, count: int) -> None:
        values = [self.pop() for _ in range(count)]
        self.stack.append(tuple(reversed(values)))

    def tuple_to_mark(self) -> None:
        self.stack.append(tuple(self.pop_to_mark()))

    def append(self, values: list[object]) -> None:
        target = self.peek()
        if not isinstance(target, list):
            raise FileFormatError("its pickle appends to something that is not a list")
        target.extend(values)

    def set_items(self, values: list[object]) -> None:
        target = self.peek()
        if not isinstance(target, dict) or len(values) % 2:
            raise FileFormatError("its pickle sets items of something that is not a dict")
        for key, value in zip(values[::2], values[1::2], strict=True):
            if not isinstance(key, bytes):
                raise FileFormatError("its pickle has a dict key that is not a string")
            target[key] = value

    def set_item(self) -> None:
        value, key = self.pop(), self.pop()
        self.set_items([key, value])

    def name(self) -> None:
        start = self.cursor.position
        for text, value in _GLOBALS.items():
            if self.data.startswith(text, start):
                self.cursor.take(len(text))
                self.stack.append(value)
                return
        shown = self.data[start : start + _MAX_GLOBAL_BYTES].split(b"\n")[:2]
        raise FileFormatError(f"its pickle names {b'.'.join(shown)!r}, which CIFAR never does")

    def reduce(self) -> None:
        arguments, function = self.pop(), self.pop()
        if function is _RECONSTRUCT and arguments == (_NDARRAY, (0,), b"b"):
            self.stack.append(_Array())
        elif function is _DTYPE and arguments == (b"u1", 0, 1):
            self.stack.append(_BYTE)
        else:
            raise FileFormatError("its pickle makes a call other than that of an array of bytes")

    def build(self) -> None:
        state, target = self.pop(), self.peek()
        if target is _BYTE:
            return
        match state:
            case (1, tuple() as shape, dtype, False, bytes() as content) if (
                isinstance(target, _Array)
                and dtype is _BYTE
                and all(type(size) is int for size in shape)
            ):
                target.shape, target.content = shape, content
            case _:
                raise FileFormatError("its pickle gives state to something else than such an array")


_OPERATIONS = {
    ord("("): lambda m: m.constant(_MARK),
    ord("}"): lambda m: m.constant({}),
    ord("]"): lambda m: m.constant([]),
    ord(")"): lambda m: m.constant(()),
    ord("N"): lambda m: m.constant(None),
    0x88: lambda m: m.constant(True),
    0x89: lambda m: m.constant(False),
    ord("K"): lambda m: m.integer(1),
    ord("M"): lambda m: m.integer(2),
    ord("J"): lambda m: m.integer(4, signed=True),
    ord("U"): lambda m: m.string(1),
    ord("T"): lambda m: m.string(4),
    ord("q"): lambda m: m.put(1),
    ord("r"): lambda m: m.put(4),
    ord("h"): lambda m: m.get(1),
    ord("j"): lambda m: m.get(4),
    0x85: lambda m: m.tuple_of(1),
    0x86: lambda m: m.tuple_of(2),
    0x87: lambda m: m.tuple_of(3),
    ord("t"): lambda m: m.tuple_to_mark(),
    ord("a"): lambda m: m.append([m.pop()]),
    ord("e"): lambda m: m.append(m.pop_to_mark()),
    ord("s"): lambda m: m.set_item(),
    ord("u"): lambda m: m.set_items(m.pop_to_mark()),
    ord("c"): lambda m: m.name(),
    ord("R"): lambda m: m.reduce(),
    ord("b"): lambda m: m.build(),
}
