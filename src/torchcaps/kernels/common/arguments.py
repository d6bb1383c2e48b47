"""The arguments that describe votes to every kernel: one tuple for the launch, one compiled in."""

from typing import Any, NamedTuple

from torch import Tensor


class VoteArguments(NamedTuple):
    """The votes of one call as kernels receive them: pointers and sizes known at launch.

    ``weight`` is packed as ``[t q r j]``, or, for several tiles of parents, as ``[t tile q r j]``
    with the parents of each tile. ``bias`` is ``[i e]`` or None. Triton compiles another kernel for
    a number that is 1 and for one that 16 divides. ``step_h_plus_1`` and ``step_w_plus_1`` are
    neither, and ``height_out`` seldom is, so that layers of different strides share their kernels.
    """

    poses: Tensor
    weight: Tensor
    bias: Tensor | None
    n_windows: int
    n_children: int
    stride_b: int
    stride_h: int
    stride_w: int
    step_h_plus_1: int
    step_w_plus_1: int
    pad_h: int
    pad_w: int
    height: int
    width: int
    height_out: Any
    width_out: Any


class VoteSizes(NamedTuple):
    """Sizes of votes and tiles that are compiled into a kernel.

    The stride between child types is among them: Triton only knows of a runtime number whether 16
    divides it. It would then read poses of 8 or 36 numbers two bytes at a time, without prefetch.
    """

    stride_t: int
    width_k: int
    n_types: int
    padded: bool
    n_weights: int
    n_parents: int
    p_size: int
    q_size: int
    r_size: int
    p_pad: int
    q_pad: int
    r_pad: int
    j_pad: int
    j_tile: int
    j_in: int
    tiled: bool
    groups: int
    windows: int
    inner: int
    columns: int
    tile: tuple[int, ...]
    link_tile: tuple[int, ...]
    operand: Any
    precision: str
