"""``torch.compile`` for capsule networks on every supported version of PyTorch."""

from collections.abc import Callable
from typing import Any

import torch


def compiled(function: Callable[..., Any], *, mode: str | None = None) -> Callable[..., Any]:
    """Compile a function; leave out a fusion that fails on torch 2.11 for LayerNorm of poses."""
    from torch._inductor import config

    if hasattr(config.triton, "mix_order_reduction"):
        config.triton.mix_order_reduction = False
    return torch.compile(function, mode=mode)
