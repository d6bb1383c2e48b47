"""Shapes, windows, memory layout and precision of tensors."""

from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor

from torchcaps.errors import InputError

Pair = tuple[int, int]
"""A height and a width."""


def widest_float(device: torch.device) -> torch.dtype:
    """Return the type for sums on a device: float64, which Apple GPUs lack."""
    return torch.float32 if device.type == "mps" else torch.float64


def output_size(sides: Pair, kernel_size: Pair, stride: Pair, padding: Pair = (0, 0)) -> Pair:
    """Return how many windows fit a grid of these sides, by rows and columns."""
    height, width = (
        (n + 2 * p - k) // s + 1
        for n, k, s, p in zip(sides, kernel_size, stride, padding, strict=True)
    )
    return height, width


def windows(grid: Tensor, kernel_size: Pair, stride: Pair, padding: Pair) -> Tensor:
    """Return sliding windows ``[b h w ...] -> [b h' w' k ...]``, k over rows, then columns.

    The entry at offset (y, x) of the window at (r, c) is ``grid[r * stride + y, c * stride + x]``
    of the zero-padded grid.
    """
    (kh, kw), (sh, sw), (ph, pw) = kernel_size, stride, padding
    rest = grid.dim() - 3
    if ph or pw:
        grid = F.pad(grid, (0, 0) * rest + (pw, pw, ph, ph))
    check_fit(grid, kernel_size)
    if grid.shape[1:3] == (kh, kw):
        return grid.flatten(1, 2)[:, None, None]
    if torch.compiler.is_compiling():
        return _stacked_windows(grid, kernel_size, stride)
    view = grid.unfold(1, kh, sh).unfold(2, kw, sw)  # [b h' w' ... kh kw], no copy
    view = view.movedim((-2, -1), (3, 4))
    return view.flatten(3, 4)


def _stacked_windows(grid: Tensor, kernel_size: Pair, stride: Pair) -> Tensor:
    """Cut windows by one slice per offset, whose gradients the compiler fuses into one sum.

    On torch 2.11 it adds the gradient of an unfolded tensor entry by entry, atomically.
    """
    (kh, kw), (sh, sw) = kernel_size, stride
    bottom, right = (n - k + 1 for n, k in zip(grid.shape[1:3], kernel_size, strict=True))
    offsets = [(y, x) for y in range(kh) for x in range(kw)]
    return torch.stack([grid[:, y : y + bottom : sh, x : x + right : sw] for y, x in offsets], 3)


def check_fit(grid: Tensor, kernel_size: Pair, padding: Pair = (0, 0)) -> None:
    """Refuse a grid ``[b h w ...]`` that is smaller, with its padding, than a window."""
    (kh, kw), height, width = (
        kernel_size,
        *(n + 2 * p for n, p in zip(grid.shape[1:3], padding, strict=True)),
    )
    if height < kh or width < kw:
        raise InputError(f"a window of {kh}x{kw} does not fit a grid of {height}x{width} capsules")


def parent_major(votes: Tensor) -> Tensor:
    """Return checked votes ``[b i j e]``, laid out in memory as ``[b j i e]``; copy only if needed.

    Contractions over children or over the pose are then batched matrix products; in any other
    order each of them would copy all votes first.
    """
    if not isinstance(votes, Tensor):
        raise ValueError(f"votes must be a tensor [b i j e], not {type(votes).__name__}")
    if votes.dim() != 4:
        raise ValueError(f"votes must be [b i j e], not {list(votes.shape)}")
    if not votes.is_floating_point():
        raise ValueError(f"votes must be floating point numbers, not {votes.dtype}")
    if 0 in votes.shape[1:]:
        raise ValueError(f"votes {list(votes.shape)} need at least one child, parent and entry")
    return votes.transpose(1, 2).contiguous().transpose(1, 2)


def logsumexp_over(values: Tensor, groups: Tensor) -> Tensor:
    """Return for each entry the logsumexp over the entries with its number in ``groups``.

    Numbers are integers from 0, below the number of entries; both tensors have one shape.
    """
    entries, groups = values.flatten(), groups.flatten()
    floor = torch.full_like(entries, -torch.inf)
    top = floor.scatter_reduce(0, groups, entries.detach(), "amax")[groups]
    total = sum_over((entries - top).exp(), groups)
    return (top + total.log()).reshape(values.shape)


def sum_over(values: Tensor, groups: Tensor) -> Tensor:
    """Return for each entry the sum over the entries with its number in ``groups``."""
    groups = groups.flatten()
    total = torch.zeros_like(values.flatten()).index_add(0, groups, values.flatten())
    return total[groups].reshape(values.shape)


def full_precision(device: torch.device) -> AbstractContextManager[None]:
    """Switch autocast off inside this context, so that it does not lower the precision."""
    return nullcontext() if device.type == "meta" else torch.autocast(device.type, enabled=False)
