"""Weights in fewer bytes: float16, or int8 with one scale per row."""

import math

import torch
from torch import Tensor, nn

from torchcaps.errors import InputError, UsageError

STORES = ("int8", "float16")
SCALE = ".int8_scale"
MIN_INT8_ELEMENTS = 1 << 16
"""Smaller weights are stored as float16."""
MIN_ROW_ELEMENTS = 64
"""The least number of elements that share a scale."""

Tensors = dict[str, tuple[tuple[int, ...], str]]
"""Name -> shape and type of a stored tensor."""


def check_store(store: str) -> None:
    """Refuse an unknown storage type."""
    if store not in STORES:
        raise UsageError(f"weights are stored as {' or '.join(STORES)}, not {store!r}")


def pack(module: nn.Module, store: str) -> dict[str, Tensor]:
    """Return the state of a module in fewer bytes; buffers such as running statistics stay exact.

    Args:
        module: the module to store.
        store: "int8" for large weights as int8 and the others as float16, or "float16" for all.
    """
    check_store(store)
    learned = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    packed = {}
    for name, value in module.state_dict().items():
        tensor = value.detach().cpu().contiguous()
        if name not in learned:
            packed[name] = tensor
        elif store == "int8" and tensor.dim() > 1 and tensor.numel() >= MIN_INT8_ELEMENTS:
            packed[name], packed[name + SCALE] = _quantize(tensor.float())
        else:
            half = tensor.half()
            packed[name] = half if half.isfinite().all() else tensor
    return packed


def unpack(stored: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a network, rows of int8 times their scales; refuse infinite ones."""
    scales = {name: tensor for name, tensor in stored.items() if name.endswith(SCALE)}
    tensors = {name: tensor for name, tensor in stored.items() if name not in scales}
    for name, scale in scales.items():
        weight = name.removesuffix(SCALE)
        tensors[weight] = tensors[weight].float() * scale
        if not (scale > 0).all() or not tensors[weight].isfinite().all():
            raise InputError(f"the scales of {weight!r} are not positive numbers of sensible size")
    return tensors


def fold(stored: Tensors) -> Tensors:
    """Return the shapes and types that :func:`unpack` will return; a scale without weight stays."""
    folded = dict(stored)
    for name, (shape, kind) in stored.items():
        weight = name.removesuffix(SCALE)
        if weight == name or weight not in stored:
            continue
        weight_shape, weight_kind = stored[weight]
        rows = _rows(weight_shape) if len(weight_shape) > 1 else 0
        fits = rows and shape == weight_shape[:rows] + (1,) * (len(weight_shape) - rows)
        if fits and (weight_kind, kind) == ("I8", "F32"):
            del folded[name]
            folded[weight] = weight_shape, "F32"
    return folded


def _quantize(tensor: Tensor) -> tuple[Tensor, Tensor]:
    rest = tuple(range(_rows(tensor.shape), tensor.dim()))
    peak = tensor.abs().amax(dim=rest, keepdim=True)
    scale = torch.where(peak > 0, peak / 127, torch.ones_like(peak))
    return (tensor / scale).round().to(torch.int8), scale


def _rows(shape: tuple[int, ...]) -> int:
    """Return how many leading axes number the rows: as many as leave 64 elements, at least one."""
    for axes in range(len(shape) - 1, 1, -1):
        if math.prod(shape[axes:]) >= MIN_ROW_ELEMENTS:
            return axes
    return 1
