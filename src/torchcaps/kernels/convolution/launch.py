"""Grid and buffer of the kernel of wide convolutions."""

import functools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
import triton.language as tl
from torch import Tensor

from torchcaps.kernels.common.launching import launch
from torchcaps.kernels.convolution.kernel import wide_conv_kernel
from torchcaps.kernels.gate import is_interpreted

MULTIPROCESSORS = 132


def wide_conv(
    inputs: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    size_out: Sequence[int],
    backward: bool,
) -> Tensor:
    """Return the output ``[b n h w]`` in float32, or the input's gradient in lower precision."""
    n, c, k_y, k_x = weight.shape
    channels, channels_out = (n, c) if backward else (c, n)
    images, _, *size = inputs.shape
    size_in, size_made = (size_out, size) if backward else (size, size_out)
    sides = tuple(zip(size_in, size_made, (k_y, k_x), stride, padding, strict=True))
    order, taps = _order(inputs.device, sides, backward)
    columns = next(side for side in (256, 128, 64) if channels_out % side == 0)
    tiles = len(order) * -(-images // 128) * (channels_out // columns)
    parts = 1 if backward else _parts(tiles, taps)
    dtype = weight.dtype if backward else torch.float32
    out = inputs.new_empty(parts, images, *size_out, channels_out, dtype=dtype)
    launch(
        wide_conv_kernel,
        (tiles, parts),
        inputs,
        weight,
        order,
        out,
        images,
        *size,
        size_out[1],
        len(order),
        channels,
        channels_out,
        *((k_y * k_x * c, 1) if backward else (1, k_y * k_x * c)),
        backward=backward,
        stride_y=stride[0],
        stride_x=stride[1],
        pad_y=padding[0],
        pad_x=padding[1],
        k_y=k_y,
        k_x=k_x,
        rows=128,
        columns=columns,
        depth=64,
        stages=3,
        operand=tl.float32 if is_interpreted() else tl.bfloat16,  # it cannot multiply in bfloat16
        num_warps=8 if columns == 256 else 4,
    )
    return (out[0] if parts == 1 else out.sum(dim=0)).permute(0, 3, 1, 2)


@functools.cache
def _order(
    device: torch.device, sides: tuple[tuple[int, int, int, int, int], ...], backward: bool
) -> tuple[Tensor, int]:
    """Return positions of the result, those with most taps first, and the largest tap count.

    ``torch.compile(mode="reduce-overhead")`` reuses the memory of what the thread allocates that
    runs its graphs. Another thread allocates the positions, which stay.

    Args:
        device: device of the result.
        sides: for height and width, the input's and output's size, kernel, stride and padding.
        backward: whether the result is the gradient of the input, not the output.
    """
    counts = []
    for size, size_out, k, stride, padding in sides:
        sees = [
            [0 <= i + padding - stride * o < k for i in range(size)] for o in range(size_out)
        ]  # whether output o sees input i
        counts.append([sum(line) for line in (zip(*sees, strict=True) if backward else sees)])
    taps = [y * x for y in counts[0] for x in counts[1]]
    positions = sorted(range(len(taps)), key=lambda position: -taps[position])
    with ThreadPoolExecutor(1) as other:
        made = other.submit(torch.tensor, positions, dtype=torch.int32, device=device)
        return made.result(), max(taps)


def _parts(tiles: int, taps: int) -> int:
    """Return in how many parts of the taps to split, to keep all multiprocessors busy.

    Each part is written and read once.
    """

    def cost(parts: int) -> float:
        rounds = -(-tiles * parts // MULTIPROCESSORS)
        return rounds * -(-taps // parts) + parts * tiles / 36

    return min(range(1, 12), key=cost)
