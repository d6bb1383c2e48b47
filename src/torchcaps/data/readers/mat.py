"""The part of MATLAB 5 files that SVHN and affNIST use: numeric arrays and 1x1 structs.

Layout: a 128-byte header whose last two bytes give the byte order, then elements of a tag (type
and length) and data. An element may be a zlib stream that holds one other element. All lengths are
checked against the bytes that are present, the unpacked size of the whole file against ``limit``
and the nesting against `MAX_DEPTH`. See MathWorks, "MAT-File Format", Level 5.
"""

from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from torchcaps.data.readers.bytes import Cursor, FileFormatError, inflate

MAX_DEPTH = 3
MAX_DIMENSIONS = 8
MAX_FIELDS = 64

_MATRIX, _COMPRESSED = 14, 15
_INT8, _INT32, _UINT32 = 1, 5, 6
_STRUCT_CLASS = 2
_NUMERIC_CLASSES = range(6, 16)
_COMPLEX_FLAG = 0x0800
_TYPES = {
    1: "i1",
    2: "u1",
    3: "i2",
    4: "u2",
    5: "i4",
    6: "u4",
    7: "f4",
    9: "f8",
    12: "i8",
    13: "u8",
}

MatValue: TypeAlias = "NDArray[Any] | dict[str, MatValue]"


def read_mat(data: bytes, *, names: tuple[str, ...], limit: int) -> dict[str, MatValue]:
    """Read the named variables, or struct fields, of a MATLAB 5 file.

    Args:
        data: the whole file.
        names: variables and fields to read; everything else is skipped.
        limit: the most bytes that all compressed parts together may unpack to.

    Returns:
        Array (first index fastest, as MATLAB stores it) or dict of a struct, by name.
    """
    return _Reader(names, limit).file(data)


def find_array(values: dict[str, MatValue], name: str) -> NDArray[Any]:
    """Return the array of that name."""
    value = values.get(name)
    if not isinstance(value, np.ndarray):
        raise FileFormatError(f"it has no array named {name}")
    return value


class _Reader:
    def __init__(self, names: tuple[str, ...], limit: int) -> None:
        self.names = names
        self.limit = limit
        self.big = False

    def file(self, data: bytes) -> dict[str, MatValue]:
        cursor = Cursor(data)
        header = bytes(cursor.take(128))
        order = header[126:128]
        if order not in (b"IM", b"MI") or header[124:126] not in (b"\x00\x01", b"\x01\x00"):
            raise FileFormatError("it is not a MATLAB 5 file")
        self.big = order == b"MI"
        values: dict[str, MatValue] = {}
        while cursor.remaining:
            kind, content = self.element(cursor)
            if kind == _COMPRESSED:
                unpacked = inflate(content, limit=self.limit)
                self.limit -= len(unpacked)
                inner = Cursor(unpacked)
                kind, content = self.element(inner)
            if kind != _MATRIX:
                raise FileFormatError(f"it has a top-level element of type {kind}")
            self.matrix(content, values, name=None, depth=0)
        return values

    def element(self, cursor: Cursor) -> tuple[int, memoryview]:
        """Return the type and data of the next element and skip its padding."""
        tag = cursor.integer(4, big=self.big)
        if tag >> 16:
            kind, size = tag & 0xFFFF, tag >> 16
            if size > 4:
                raise FileFormatError(f"it has a small element of {size} bytes")
            return kind, cursor.take(4)[:size]
        size = cursor.integer(4, big=self.big)
        content = cursor.take(size)
        if tag != _COMPRESSED:
            cursor.take(min(-size % 8, cursor.remaining))
        return tag, content

    def expect(self, cursor: Cursor, kind: int, what: str) -> memoryview:
        actual, content = self.element(cursor)
        if actual != kind:
            raise FileFormatError(f"it has an element of type {actual} in place of {what}")
        return content

    def integers(self, content: memoryview) -> list[int]:
        inner = Cursor(content)
        return [inner.integer(4, big=self.big, signed=True) for _ in range(len(content) // 4)]

    def matrix(
        self, content: memoryview, values: dict[str, MatValue], *, name: str | None, depth: int
    ) -> None:
        """Read one array into ``values`` if it is wanted; struct fields pass their ``name``."""
        cursor = Cursor(content)
        flags = self.integers(self.expect(cursor, _UINT32, "array flags"))
        shape = tuple(self.integers(self.expect(cursor, _INT32, "array dimensions")))
        if len(flags) != 2 or not 2 <= len(shape) <= MAX_DIMENSIONS or min(shape) < 0:
            raise FileFormatError("it has an array with broken flags or dimensions")
        stored = bytes(self.expect(cursor, _INT8, "an array name")).decode("latin-1")
        name = stored if name is None else name
        if name not in self.names:
            return
        kind = flags[0] & 0xFF
        if kind == _STRUCT_CLASS:
            if prod(shape) != 1 or depth == MAX_DEPTH:
                raise FileFormatError(f"its struct {name!r} is not 1x1 or is nested too deep")
            values[name] = self.struct(cursor, depth)
        elif kind in _NUMERIC_CLASSES and not flags[0] & _COMPLEX_FLAG:
            values[name] = self.numbers(cursor, shape, name)
        else:
            raise FileFormatError(f"its {name!r} is not an array of real numbers")

    def struct(self, cursor: Cursor, depth: int) -> dict[str, MatValue]:
        width = self.integers(self.expect(cursor, _INT32, "a field name length"))
        text = bytes(self.expect(cursor, _INT8, "field names"))
        if len(width) != 1 or not 0 < width[0] <= 64 or len(text) % width[0]:
            raise FileFormatError("it has a struct with broken field names")
        names = [
            text[start : start + width[0]].partition(b"\0")[0].decode("latin-1")
            for start in range(0, len(text), width[0])
        ]
        if len(names) > MAX_FIELDS:
            raise FileFormatError(f"it has a struct with more than {MAX_FIELDS} fields")
        values: dict[str, MatValue] = {}
        for name in names:
            content = self.expect(cursor, _MATRIX, f"the field {name!r}")
            if len(content):
                self.matrix(content, values, name=name, depth=depth + 1)
        return values

    def numbers(self, cursor: Cursor, shape: tuple[int, ...], name: str) -> NDArray[Any]:
        kind, content = self.element(cursor)
        if kind not in _TYPES:
            raise FileFormatError(f"its {name!r} has elements of unknown type {kind}")
        dtype = np.dtype((">" if self.big else "<") + _TYPES[kind])
        if prod(shape) * dtype.itemsize != len(content):
            raise FileFormatError(
                f"its {name!r} of shape {shape} does not fit the {len(content)} bytes it has"
            )
        return np.frombuffer(content, dtype).reshape(shape, order="F")
