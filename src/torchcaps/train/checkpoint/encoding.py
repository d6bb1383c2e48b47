"""Tensors and plain values as bytes and back, with every value checked."""

import json
import math
import struct
from collections.abc import Mapping
from typing import Any, Never

import torch
from torch import Tensor

MAX_HEADER = 32 << 20
MAX_DEPTH = 32
RESERVED = "__metadata__"

TYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}


class EncodingError(ValueError):
    """Bytes or values that cannot be encoded or decoded; the caller names the file."""


def dump_tensors(tensors: Mapping[str, Tensor]) -> bytes:
    """Return named tensors as the bytes of a safetensors file, bit for bit."""
    from safetensors.torch import save

    copies = {}
    for name, tensor in tensors.items():
        if type(name) is not str or name == RESERVED:
            raise EncodingError(f"a tensor cannot be called {name!r}")
        if not isinstance(tensor, Tensor):
            raise EncodingError(f"{name!r} is a {type(tensor).__name__}, not a tensor")
        if tensor.dtype not in TYPES.values() or tensor.layout is not torch.strided:
            raise EncodingError(f"{name!r} is {tensor.dtype}, {tensor.layout}, which has no file")
        # copies, because the format cannot hold tied weights, which share memory
        copies[name] = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
    return bytes(save(copies))


def parse_tensors(data: bytes) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    header = parse_header(data)
    try:
        tensors = load(data)
    except (SafetensorError, ValueError, RuntimeError, KeyError) as error:
        raise EncodingError(f"its tensors cannot be read ({_first_line(error)})") from error
    for name, tensor in tensors.items():
        if (tuple(tensor.shape), tensor.dtype) != header.get(name):
            raise EncodingError(f"{name!r} is not what the header says")
    # copies, because the file's tensors may not be aligned
    return {name: tensor.clone() for name, tensor in tensors.items()}


def parse_header(data: bytes) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """Return shape and type of each tensor of a safetensors file, without building a tensor."""
    length = struct.unpack("<Q", data[:8])[0] if len(data) >= 8 else 0
    if not 2 <= length <= min(MAX_HEADER, len(data) - 8):
        raise EncodingError("it is no whole safetensors file")
    shapes = {}
    for name, entry in parse_json(data[8 : 8 + length]).items():
        if name == RESERVED:
            continue
        fields = entry if isinstance(entry, dict) else {}
        kind, shape = fields.get("dtype"), fields.get("shape")
        if type(kind) is not str or kind not in TYPES or type(shape) is not list:
            raise EncodingError(f"its header does not describe {name!r}")
        if not all(type(n) is int and n >= 0 for n in shape):
            raise EncodingError(f"{name!r} cannot have the shape {shape}")
        shapes[name] = (tuple(shape), TYPES[kind])
    return shapes


def check_shapes(data: bytes, expected: Mapping[str, Tensor]) -> None:
    """Refuse a safetensors file of other names, shapes or types than expected."""
    stored = parse_header(data)
    required = {name: (tuple(t.shape), t.dtype) for name, t in expected.items()}
    different = sorted(
        name for name in stored.keys() | required.keys() if stored.get(name) != required.get(name)
    )
    if different:
        raise EncodingError(
            f"it holds another network, {len(different)} tensors differ, "
            f"{different[0]!r} among them"
        )


def dump_json(value: dict[str, Any]) -> bytes:
    """Return a dictionary as JSON in its only form: sorted keys, a line break at the end."""
    _check_plain(value)
    try:
        return (json.dumps(value, sort_keys=True, allow_nan=False) + "\n").encode()
    except ValueError as error:
        raise EncodingError(f"it cannot be written as JSON ({_first_line(error)})") from error


def parse_json(data: bytes) -> dict[str, Any]:
    """Parse a dictionary of plain finite values from JSON."""
    try:
        value = json.loads(data.decode(), parse_constant=_refuse, object_pairs_hook=_unique)
    except EncodingError:
        raise
    except (ValueError, RecursionError) as error:
        raise EncodingError(f"it is not JSON ({_first_line(error)})") from error
    if type(value) is not dict:
        raise EncodingError("it is not a JSON object")
    _check_plain(value)
    return value


def _refuse(constant: str) -> Never:
    raise EncodingError(f"it holds {constant}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise EncodingError("it names one key twice")
    return values


def _check_plain(value: object, where: str = "it", depth: int = 0) -> None:
    """Refuse values that JSON does not return unchanged."""
    if depth > MAX_DEPTH:
        raise EncodingError(f"{where} is nested more than {MAX_DEPTH} deep")
    if type(value) is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise EncodingError(f"{where} has the key {key!r}, which is not text")
            _check_plain(item, f"{where}[{key!r}]", depth + 1)
    elif type(value) is list:
        for number, item in enumerate(value):
            _check_plain(item, f"{where}[{number}]", depth + 1)
    elif type(value) is float:
        if not math.isfinite(value):
            raise EncodingError(f"{where} is {value}, which JSON cannot hold")
    elif value is not None and type(value) not in (bool, int, str):
        raise EncodingError(f"{where} is a {type(value).__name__}, which JSON cannot hold")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
