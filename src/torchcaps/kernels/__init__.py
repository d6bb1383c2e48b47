"""Fused twins of the routings that profit: votes are cast in registers and never stored.

With them LayerNorm over poses, and the convolution of CapsNet's primary capsules.

Nothing here imports Triton before a kernel runs.
"""

from torchcaps.kernels.chunked import attend_in_chunks, worth_chunking
from torchcaps.kernels.gaussian_ops import fitted, moments
from torchcaps.kernels.norm_ops import pose_norm
from torchcaps.kernels.ops import attend, lowered, machine_obstacle, obstacle, size_obstacle
from torchcaps.kernels.pairwise_ops import pairwise_links, pairwise_sums
from torchcaps.kernels.wide_conv_ops import convolve

__all__ = [
    "attend",
    "attend_in_chunks",
    "convolve",
    "fitted",
    "lowered",
    "machine_obstacle",
    "moments",
    "obstacle",
    "pairwise_links",
    "pairwise_sums",
    "pose_norm",
    "size_obstacle",
    "worth_chunking",
]
