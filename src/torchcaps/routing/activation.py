"""The capsule activation of Choi 2019, https://arxiv.org/abs/1907.01750."""

from typing import final

import torch
from torch import Tensor, nn


@final
class CapsuleActivation(nn.Module):
    """An affine map per capsule type, then tanh: ``[... j e] -> [... j e]`` (Eq. 4 and 9).

    Args:
        n_types: capsule types j; each has its own map.
        d: size of a pose.
        bounded: False leaves the tanh to the caller, as residual connections need it.
    """

    def __init__(self, n_types: int, d: int, *, bounded: bool = True) -> None:
        super().__init__()
        self.bounded = bounded
        limit = (6 / (2 * d)) ** 0.5
        self.weight = nn.Parameter(torch.empty(n_types, d, d).uniform_(-limit, limit))
        self.bias = nn.Parameter(torch.zeros(n_types, d))

    def forward(self, poses: Tensor) -> Tensor:
        """Map every pose by the weights of its type."""
        poses = torch.einsum("...je,jef->...jf", poses, self.weight) + self.bias
        return poses.tanh() if self.bounded else poses
