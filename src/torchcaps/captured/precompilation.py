"""The kernels of a step, compiled all at once before its first launch.

Triton compiles a kernel at its first launch, so that a step compiles one kernel after another. Its
compiler leaves Python's lock in every stage, and threads compile several kernels at a time.
"""

import functools
import importlib.util
import logging
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

T = TypeVar("T")

MAX_THREADS = 16
PLACEHOLDER = 2.0**-7
"""Result of a kernel that is not launched: logarithms and quotients of it are finite, and a pose of
such numbers is shorter than 1."""

LOG = logging.getLogger("torchcaps")
_lock = threading.Lock()
_thread = threading.local()


def precompile(
    network: nn.Module,
    images: Tensor,
    *targets: Tensor,
    loss: Callable[..., Tensor] | None = None,
    autocast: torch.dtype | None = None,
    pass_targets: bool = False,
) -> None:
    """Compile all kernels of a network's forward and backward pass at once, for a loop of your own.

        tc.precompile(network, images, labels, loss=loss, autocast=torch.bfloat16)

    Kernels that are not compiled ahead compile one after another in the first step. Weights,
    gradients, statistics and random numbers stay as they are. On a CPU nothing happens.
    `CapturedStep` and `CapturedNetwork` compile ahead without this call.

    Args:
        network: the network itself, not its wrapper for several processes.
        images: a batch of the size and type to come.
        targets: what the loss takes after the network's output.
        loss: function of the network's output and the targets that returns a scalar; None leaves
            out the kernels of the loss.
        autocast: precision of the forward pass; None keeps that of the weights.
        pass_targets: also give the targets to the network, as decoders of a class need.
    """

    def total() -> Tensor:
        with torch.autocast(images.device.type, dtype=autocast, enabled=autocast is not None):
            output = network(images, *(targets if pass_targets else ()))
            if loss is not None:
                return loss(output, *targets)
        tensors = [x for x in pytree.tree_leaves(output) if isinstance(x, Tensor)]
        return torch.stack([x.float().sum() for x in tensors]).sum()

    compile_gradient(network, total, images.device)


def compile_gradient(network: nn.Module, total: Callable[[], Tensor], device: torch.device) -> None:
    """Compile the kernels of a number and of its gradient, and leave everything as it was.

    Args:
        network: the network whose parameters the gradient is for.
        total: returns the number, on the device; changes nothing but buffers of the network.
        device: the device of the network.
    """
    if device.type != "cuda" or not _can_compile():
        return
    parameters = [p for p in network.parameters() if p.requires_grad]

    def run() -> None:
        number = total()
        if number.requires_grad:
            torch.autograd.grad(number, parameters, allow_unused=True)

    buffers = [buffer.clone() for buffer in network.buffers()]
    with torch.cuda.device(device), torch.random.fork_rng([device]):
        compile_ahead(run)
    for buffer, old in zip(network.buffers(), buffers, strict=True):
        buffer.copy_(old)


def compile_ahead(function: Callable[[], object]) -> bool:
    """Call a function without launching kernels, compile these concurrently, and say if it worked.

    Everything else runs, on placeholders in place of the kernels' results. The caller undoes what
    the function changes. If anything fails, kernels compile at their first launch, as without this
    call. Without a GPU nothing is called.
    """
    if not _can_compile():
        return False
    try:
        with compiling_only():
            function()
    except Exception as error:
        _warn_once(f"kernels compile one after another: {type(error).__name__}: {error}")
        return False
    return True


def is_precompiling() -> bool:
    """Return whether this thread compiles kernels and launches none."""
    return getattr(_thread, "is_precompiling", False)


def with_placeholders(output: T) -> T:
    """Fill what kernels that were not launched should have written, and return it."""
    filled: T = pytree.tree_map_only(Tensor, lambda tensor: tensor.fill_(PLACEHOLDER), output)
    return filled


@contextmanager
def compiling_only() -> Iterator[None]:
    """Compile our kernels that this thread would launch, concurrently; done at the end."""
    from triton.runtime._async_compile import AsyncCompileMode
    from triton.runtime.jit import JITFunction, KernelInterface

    kernels: set[Any] = set()
    with _lock, _Loaders(_threads()) as pool, AsyncCompileMode(pool, ignore_errors=True):
        launcher = KernelInterface.__getitem__

        def compiler(kernel: Any, grid: Any) -> Any:
            if not isinstance(kernel, JITFunction):
                return launcher(kernel, grid)
            kernels.add(kernel)
            # nothing would fill what other kernels write
            is_ours = kernel.module.startswith("torchcaps.")
            if is_ours and is_precompiling():
                return functools.partial(kernel.run, grid=grid, warmup=True)
            return launcher(kernel, grid)

        _thread.is_precompiling = True
        KernelInterface.__getitem__ = compiler
        try:
            # a thread of autograd's own would launch
            with torch.autograd.set_multithreading_enabled(False):
                yield
        finally:
            KernelInterface.__getitem__ = launcher
            _thread.is_precompiling = False
    for kernel in kernels:
        _forget_failures(kernel)


class _Loaders(ThreadPoolExecutor):
    """Threads that compile a kernel and load it on the current GPU of the calling thread."""

    def submit(self, function: Callable[..., T], /, *_: Any, **__: Any) -> Future[T]:
        from triton.runtime import driver

        device = driver.active.get_current_device()

        def compile_and_load() -> T:
            kernel = function()
            # the first launch reports what is wrong with a binary
            with suppress(Exception), torch.cuda.device(device):
                _ = cast(Any, kernel).run  # this property builds the launcher
            return kernel

        return super().submit(compile_and_load)


def _forget_failures(kernel: Any) -> None:
    """Let the first launch compile again what did not compile; Triton 3.7 keeps the error."""
    from triton.runtime._async_compile import FutureKernel

    for compiled, *_ in kernel.device_caches.values():
        for key, code in list(compiled.items()):
            if isinstance(code, FutureKernel):
                del compiled[key]


def _can_compile() -> bool:
    return (
        torch.cuda.is_available()
        and os.environ.get("TRITON_INTERPRET") != "1"
        and importlib.util.find_spec("triton") is not None
        and not torch.compiler.is_compiling()
        and not is_precompiling()
        and not torch.cuda.is_current_stream_capturing()
    )


def _threads() -> int:
    return min(MAX_THREADS, os.cpu_count() or 1)


@functools.cache
def _warn_once(message: str) -> None:
    LOG.warning(message)
