"""The one place that decides whether a kernel can run, and says why if it cannot.

Nothing here imports Triton.
"""

import functools
import importlib.util
import os

import torch
from torch import Tensor
from torch.autograd import forward_ad

from torchcaps.votes import Votes

HAS_TRITON = importlib.util.find_spec("triton") is not None
MAX_PARENTS = 512
MAX_PARENT_SIZE = 512
MAX_TILE_COLUMNS = 128
"""Columns of a tile where the parents need several; rows of a pose must fit one."""

MAX_OFFSET = 2**31
"""Kernels count weights and the couplings of a window in 32 bits."""


def next_power(n: int) -> int:
    """Return the smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()


def is_interpreted() -> bool:
    """Return whether kernels run in Triton's interpreter."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def is_exporting() -> bool:
    """Return whether ``torch.export`` traces, which allows any batch size.

    Reads the flag itself: on torch 2.11 ``torch.compiler.is_exporting()`` is also true inside
    ``torch.compile`` (https://github.com/pytorch/pytorch/issues/176347).
    """
    return bool(getattr(torch.compiler, "_is_exporting_flag", False))


def is_on_gpu(tensor: Tensor) -> bool:
    """Return whether kernels can read a tensor; Triton's interpreter also reads CPU tensors."""
    return tensor.device.type == "cuda" or (is_interpreted() and tensor.device.type == "cpu")


_known_capability = functools.cache(torch.cuda.get_device_capability)


def _capability() -> tuple[int, int]:
    """Return the compute capability of the current GPU, which PyTorch takes long to look up."""
    if torch.compiler.is_compiling():  # a tracer sees through caches, and warns
        return torch.cuda.get_device_capability()
    return _known_capability(torch.cuda.current_device())


def machine_obstacle() -> str | None:
    """Return why no kernel runs on this machine at the moment, or None."""
    if not torch.cuda.is_available():
        if not is_interpreted():
            return "there is no CUDA device"
    elif _capability() < (8, 0) and not is_interpreted():
        return "the GPU is older than compute capability 8.0"
    if not HAS_TRITON:
        return "Triton is not installed"
    # our operators have no forward-mode rule and would silently return zero tangents
    if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        return "torch.func and forward-mode gradients see PyTorch's own operators only"
    return None


def max_columns(dtype: torch.dtype) -> int:
    """Return the columns (r j) that fit one tile, padded to powers of two."""
    return 512 if dtype == torch.bfloat16 else 256


def size_obstacle(n_parents: int, d_parent: int, *, tiled: bool = False) -> str | None:
    """Return why parents of this size have no kernel, or None; see also :func:`obstacle`."""
    if (n_parents > MAX_PARENTS and not tiled) or d_parent > MAX_PARENT_SIZE:
        return f"{n_parents} parents with poses of {d_parent} are too many for one tile"
    return machine_obstacle()


def obstacle(
    votes: Votes | Tensor, *, scaled: bool = False, image: bool = False, tiled: bool = False
) -> str | None:
    """Return why votes have no kernel, in words that finish "cannot run because", or None.

    Args:
        votes: the votes to route.
        scaled: whether the kernel supports votes with any scale and bias, learned or not.
        image: whether the kernel lets parents of different windows compete.
        tiled: whether the kernel takes parents that need several tiles.
    """
    if isinstance(votes, Tensor):
        return "the votes are dense already"
    why = size_obstacle(*votes.shape[2:], tiled=tiled)
    if why is not None:
        return why
    if not is_on_gpu(votes.poses):
        return f"the votes are on {votes.poses.device.type}, not on a GPU"
    if not image and votes.child is not None:
        return "parents of different windows compete"
    if not scaled and votes.scale is not None:
        return "the votes have a scale"
    bias = None if scaled else votes.bias
    if bias is not None and (bias.requires_grad or bias.dim() != 3 or bias.shape[1] != 1):
        return "the votes have a bias that is learned or differs between parents"
    if precision(votes) not in (torch.float32, torch.bfloat16):
        return f"the child poses are {precision(votes)}, not float32 or bfloat16"
    return _tile_obstacle(votes, scaled=scaled, tiled=tiled)


def _tile_obstacle(votes: Votes, *, scaled: bool, tiled: bool) -> str | None:
    """Return why the votes of a window do not fit the tiles of a kernel, or None."""
    t, j, q, r = votes.weight.shape
    columns = next_power(r) * next_power(j)
    is_wide = columns > max_columns(precision(votes))
    is_wide = is_wide and not (tiled and next_power(r) <= MAX_TILE_COLUMNS)
    if is_wide or next_power(votes.rows) > 16 or next_power(q) > 64:
        return (
            f"{j} parents with poses of {votes.rows}x{r} from rows of {q} are too many for one tile"
        )
    if max(t * q * columns, votes.shape[1] * j) >= MAX_OFFSET:
        return f"{j} parents have more weights or couplings than kernels can count"
    if not scaled:
        return None
    if next_power(r) > 128:
        return f"rows of {r} numbers in the poses of the parents are too large"
    # gradients of a scale or bias need the rows of a pose one by one
    is_learned = votes.scale is not None or (votes.bias is not None and votes.bias.requires_grad)
    if (
        is_learned
        and next_power(votes.rows) * next_power(q + 1) > max_columns(precision(votes)) // 4
    ):
        return f"poses of {votes.rows}x{q} with a scale or a learned bias are too large"
    return None


def precision(votes: Votes) -> torch.dtype:
    """Return the precision in which votes are multiplied: that of autocast, if it is on."""
    device = votes.poses.device.type
    if device != "meta" and torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return votes.poses.dtype


def lowered(votes: Votes) -> Votes:
    """Return votes whose poses and weights are in the precision of autocast, if it is on."""
    dtype = precision(votes)
    weight = votes.weight.to(dtype)
    return Votes(votes.poses.to(dtype), weight, votes.scale, votes.bias, votes.child, votes.window)
