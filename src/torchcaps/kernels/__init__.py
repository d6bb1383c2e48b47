"""Fused counterparts of the routings: votes are cast in registers and never stored.

There are also kernels for LayerNorm over poses, squashing, lengths, the margin loss, and the
convolution of CapsNet's primary capsules. Nothing here imports Triton before a kernel runs.
"""

from torchcaps.kernels.attend.chunked import (
    attend_in_chunks as attend_in_chunks,
    worth_chunking as worth_chunking,
)
from torchcaps.kernels.attend.operator import attend as attend
from torchcaps.kernels.convolution.operator import convolve as convolve
from torchcaps.kernels.elementwise.operator import (
    lengths as lengths,
    margin_loss as margin_loss,
    squash as squash,
    squash_lowered as squash_lowered,
)
from torchcaps.kernels.gate import (
    lowered as lowered,
    machine_obstacle as machine_obstacle,
    obstacle as obstacle,
    size_obstacle as size_obstacle,
)
from torchcaps.kernels.moments.operator import fitted as fitted, moments as moments
from torchcaps.kernels.norm.operator import pose_norm as pose_norm
from torchcaps.kernels.pairwise.operator import (
    pairwise_links as pairwise_links,
    pairwise_sums as pairwise_sums,
)
