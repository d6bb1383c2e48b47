"""Fused twins of the routings that profit: votes are cast in registers and never stored.

Nothing here imports Triton before a kernel runs.
"""

from torchcaps.kernels.ops import attend, lowered, obstacle, size_obstacle

__all__ = ["attend", "lowered", "obstacle", "size_obstacle"]
