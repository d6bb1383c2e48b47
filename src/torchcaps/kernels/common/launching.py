"""Launches of kernels, without what Triton computes again at every launch.

Triton binds the arguments of every launch, specializes on each and builds a key of text to look up
the compiled kernel. That takes the host longer than an H200 works on most of our kernels. Here a
key of plain values finds the compiled kernel. Triton's own path remains for the first launch of
each kind, for the interpreter, and where a profiler watches launches.
"""

from collections.abc import Iterable
from typing import Any

from torch import Tensor
from triton import knobs
from triton.compiler import CompiledKernel
from triton.language import constexpr
from triton.runtime import driver
from triton.runtime.jit import JITFunction

MAX_COMPILED = 4096
"""Launches of different kinds that are remembered; sizes of images or batches may always change."""

_compiled: dict[tuple[Any, ...], tuple[Any, Any, Any, tuple[Any, ...]]] = {}
_run = JITFunction.run


def launch(kernel: Any, grid: tuple[int, ...], /, *arguments: Any, **constants: Any) -> None:
    """Launch a kernel on the current GPU.

    Args:
        kernel: a function under ``triton.jit``.
        grid: numbers of programs.
        arguments: the kernel's first arguments: tensors, numbers, None, and tuples of these.
        constants: the arguments that are compiled in, and options of Triton such as ``num_warps``.
    """
    if type(kernel) is not JITFunction or _is_watched(kernel):
        kernel[grid](*arguments, **constants)
        return
    active = driver.active
    device = active.get_current_device()
    key: list[Any] = [kernel.fn, device, *constants.items()]
    values = read_arguments(arguments, key)
    found = _compiled.get(tuple(key))
    if found is None:
        _remember(tuple(key), kernel[grid](*arguments, **constants), len(arguments))
        return
    run, function, metadata, rest = found
    x, y, z = (*grid, 1, 1)[:3]
    stream = active.get_current_stream(device)
    run(x, y, z, stream, function, metadata, None, None, None, *values, *rest)


def read_arguments(arguments: Iterable[Any], key: list[Any]) -> tuple[Any, ...]:
    """Return arguments with addresses for tensors; append what Triton specializes on to the key.

    Triton specializes on the type of a number, and on whether an integer is 1 or a multiple of 16
    and how many bits it needs. The key holds integers themselves, which say at least as much.
    Of a tensor, Triton reads the type of the entries and whether 16 divides the address. The key
    also holds its device, because Triton checks tensors but not plain addresses.
    """
    values: list[Any] = []
    for argument in arguments:
        kind = type(argument)
        if kind is int or argument is None:
            key.append(argument)
            values.append(argument)
        elif isinstance(argument, Tensor):
            address = argument.data_ptr()
            key += (argument.dtype, argument.device, address % 16)
            values.append(address)
        elif isinstance(argument, tuple):
            key.append(len(argument))
            values.append(read_arguments(argument, key))
        else:
            value = argument.value if kind is constexpr else None
            key.append((kind, value))
            values.append(argument)
    return tuple(values)


def _is_watched(kernel: Any) -> bool:
    """Return whether something asks Triton to be told of launches, or has replaced its function."""
    hooks = knobs.runtime
    for hook in (hooks.launch_enter_hook, hooks.launch_exit_hook):
        if hook is not None and getattr(hook, "calls", True):
            return True
    return bool(kernel.pre_run_hooks) or JITFunction.run is not _run


def _remember(key: tuple[Any, ...], compiled: Any, n_arguments: int) -> None:
    """Keep a compiled kernel of an NVIDIA GPU, for whose driver the key is sufficient."""
    if not isinstance(compiled, CompiledKernel) or compiled.metadata.target.backend != "cuda":
        return
    if len(_compiled) >= MAX_COMPILED:
        _compiled.clear()
    # the launcher skips constants, but counts them
    rest = (None,) * (len(compiled.src.fn.arg_names) - n_arguments)
    _compiled[key] = compiled.run, compiled.function, compiled.packed_metadata, rest
