"""Fused counterparts of the routings: votes are cast in registers and never stored.

There are also kernels for LayerNorm over poses and for the convolution of CapsNet's primary
capsules. Nothing here imports Triton before a kernel runs.
"""

from torchcaps.kernels.attend.chunked import attend_in_chunks, worth_chunking
from torchcaps.kernels.attend.operator import attend
from torchcaps.kernels.convolution.operator import convolve
from torchcaps.kernels.gate import lowered, machine_obstacle, obstacle, size_obstacle
from torchcaps.kernels.moments.operator import fitted, moments
from torchcaps.kernels.norm.operator import pose_norm
from torchcaps.kernels.pairwise.operator import pairwise_links, pairwise_sums

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
