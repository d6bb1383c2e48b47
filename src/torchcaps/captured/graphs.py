"""The capture of a function as a CUDA graph, and the undoing of what its warm-up changed."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from torchcaps.captured.precompilation import compile_ahead
from torchcaps.errors import TorchcapsError

T = TypeVar("T")

WARM_UP_STEPS = 3
"""Runs before a capture, in which libraries allocate; in the first all kernels compile."""


def record(
    function: Callable[[], T], *, before: Callable[[], object] = lambda: None
) -> tuple[torch.cuda.CUDAGraph, T]:
    """Run a function a few times, capture it as a CUDA graph, and return graph and result.

    The state of the random generator is the same afterwards. PyTorch does not recover from a
    capture that fails, so the last run before it must not wait for the GPU.

    Args:
        function: launches kernels on the current device and never waits for them.
        before: called between the last run and the capture.
    """
    state = torch.cuda.get_rng_state()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    try:
        with torch.cuda.stream(side):
            is_warm = compile_ahead(function)
            for _ in range(WARM_UP_STEPS - 1 - is_warm):
                function()
            with _no_waiting():
                function()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        before()
        with torch.cuda.graph(graph):
            result = function()
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        if not any(word in reason for word in ("synchronizing", "captur")):
            raise
        raise TorchcapsError(
            f"this cannot be captured as a CUDA graph ({reason}): leave out what waits for the "
            "GPU, such as .item() and print, or do not capture"
        ) from error
    torch.cuda.set_rng_state(state)
    return graph, result


@contextmanager
def _no_waiting() -> Iterator[None]:
    """Let every operation of PyTorch raise an error that waits for the GPU."""
    mode = torch.cuda.get_sync_debug_mode()
    try:
        with warnings.catch_warnings(action="ignore"):  # PyTorch calls the mode a prototype
            torch.cuda.set_sync_debug_mode("error")
        yield
    finally:
        torch.cuda.set_sync_debug_mode(mode)


@contextmanager
def unchanged(
    modules: Sequence[nn.Module], optimizers: Sequence[Optimizer], tensors: Sequence[Tensor]
) -> Iterator[None]:
    """Undo what the block changes, in place: a captured graph reads and writes these tensors.

    State that an optimizer creates in the block becomes zero.

    Args:
        modules: modules whose parameters and buffers are restored.
        optimizers: optimizers whose state is restored.
        tensors: other tensors to restore.
    """

    def changed() -> Iterator[Tensor]:
        for module in modules:
            yield from module.state_dict().values()
        yield from tensors

    before = [tensor.detach().clone() for tensor in changed()]
    known = {
        p: {k: v.clone() for k, v in entries.items() if isinstance(v, Tensor)}
        for optimizer in optimizers
        for p, entries in optimizer.state.items()
    }
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, old in zip(changed(), before, strict=True):
                tensor.copy_(old)
            for optimizer in optimizers:
                for parameter, entries in optimizer.state.items():
                    for key, value in entries.items():
                        if isinstance(value, Tensor):
                            earlier = known.get(parameter, {}).get(key)
                            value.zero_() if earlier is None else value.copy_(earlier)
