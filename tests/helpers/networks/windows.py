"""Geometries of capsule convolutions, and their windows gathered one by one."""

from typing import Any

import torch
from torch import Tensor

import torchcaps as tc

GEOMETRIES = [
    {"kernel_size": 3, "stride": 1, "padding": 0},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": (2, 3), "stride": (1, 2), "padding": (1, 0)},
    {"kernel_size": 1, "stride": 2, "padding": 0},
    {"kernel_size": (5, 4), "stride": 1, "padding": 0},
]


def grid(height: int = 5, width: int = 4, types: int = 2, d: int = 4) -> tc.Capsules:
    generator = torch.Generator().manual_seed(0)
    poses = torch.randn(2, height, width, types, d, generator=generator, dtype=torch.float64)
    return tc.Capsules(poses, torch.rand(2, height, width, types, generator=generator).double())


def slow_windows(capsules: tc.Capsules, layer: Any) -> list[list[list[tuple[Tensor, Tensor]]]]:
    """Poses and activations of the children of every parent, gathered one by one."""
    (kh, kw), (sh, sw), (ph, pw) = layer.kernel_size, layer.stride, layer.padding
    poses, activations = capsules.poses, capsules.activations
    assert activations is not None
    b, h, w, types, d = poses.shape
    out = []
    for n in range(b):
        rows = []
        for top in range(-ph, h + ph - kh + 1, sh):
            row = []
            for left in range(-pw, w + pw - kw + 1, sw):
                child_poses, child_activations = [], []
                for y in range(top, top + kh):
                    for x in range(left, left + kw):
                        for t in range(types):
                            inside = 0 <= y < h and 0 <= x < w
                            child_poses.append(poses[n, y, x, t] if inside else poses.new_zeros(d))
                            child_activations.append(
                                activations[n, y, x, t] if inside else poses.new_zeros(())
                            )
                row.append((torch.stack(child_poses), torch.stack(child_activations)))
            rows.append(row)
        out.append(rows)
    return out
