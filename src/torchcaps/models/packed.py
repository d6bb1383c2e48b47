"""Weights in fewer bytes: float16, or int8 with one scale a row."""

import math

import torch
from torch import Tensor, nn

from torchcaps.errors import InputError, UsageError

__all__ = ["STORES", "Tensors", "check_store", "fold", "pack", "unpack"]

STORES = ("int8", "float16")
SCALE = ".int8_scale"
LARGE = 1 << 16
"""Elements from which a weight is worth storing as int8."""
ROW = 64
"""The least numbers that share a scale."""

Tensors = dict[str, tuple[tuple[int, ...], str]]
"""Name -> shape and type of a stored tensor."""


def check_store(store: str) -> None:
    """Refuse a store that does not exist."""
    if store not in STORES:
        raise UsageError(f"weights are stored as {' or '.join(STORES)}, not {store!r}")


def pack(module: nn.Module, store: str) -> dict[str, Tensor]:
    """The state of a module in fewer bytes; buffers, such as BatchNorm's statistics, stay exact.

    Args:
        module: what to store.
        store: "int8" stores large weights as int8 and the others as float16, "float16" all alike.
    """
    check_store(store)
    learned = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    packed = {}
    for name, value in module.state_dict().items():
        tensor = value.detach().cpu().contiguous()
        if name not in learned:
            packed[name] = tensor
        elif store == "int8" and tensor.dim() > 1 and tensor.numel() >= LARGE:
            packed[name], packed[name + SCALE] = _quantize(tensor.float())
        else:
            half = tensor.half()
            packed[name] = half if half.isfinite().all() else tensor
    return packed


def unpack(stored: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors as the network has them: rows of int8 times their scales; finite, or refused."""
    scales = {name: tensor for name, tensor in stored.items() if name.endswith(SCALE)}
    tensors = {name: tensor for name, tensor in stored.items() if name not in scales}
    for name, scale in scales.items():
        weight = name.removesuffix(SCALE)
        tensors[weight] = tensors[weight].float() * scale
        if not (scale > 0).all() or not tensors[weight].isfinite().all():
            raise InputError(f"the scales of {weight!r} are not positive numbers of sensible size")
    return tensors


def fold(stored: Tensors) -> Tensors:
    """Shapes and types as :func:`unpack` will give them; a scale that fits nothing stays."""
    folded = dict(stored)
    for name, (shape, kind) in stored.items():
        weight = name.removesuffix(SCALE)
        if weight == name or weight not in stored:
            continue
        wanted, stored_as = stored[weight]
        rows = _rows(wanted) if len(wanted) > 1 else 0
        fits = rows and shape == wanted[:rows] + (1,) * (len(wanted) - rows)
        if fits and (stored_as, kind) == ("I8", "F32"):
            del folded[name]
            folded[weight] = wanted, "F32"
    return folded


def _quantize(tensor: Tensor) -> tuple[Tensor, Tensor]:
    rest = tuple(range(_rows(tensor.shape), tensor.dim()))
    peak = tensor.abs().amax(dim=rest, keepdim=True)
    scale = torch.where(peak > 0, peak / 127, torch.ones_like(peak))
    return (tensor / scale).round().to(torch.int8), scale


def _rows(shape: tuple[int, ...]) -> int:
    """How many leading axes a row has to itself: as many as leave it 64 numbers, at least one."""
    for axes in range(len(shape) - 1, 1, -1):
        if math.prod(shape[axes:]) >= ROW:
            return axes
    return 1
