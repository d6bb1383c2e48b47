"""Triton's interpreter, with checks of what kernels read and write, and a record of launches.

Import this only while the interpreter is on: Triton decides on import whether it is.
"""

import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from triton.runtime import interpreter

__all__ = ["Launch", "refuse_strays", "watch_launches"]

Spans = list[tuple[int, int]]
executor: Any = interpreter.GridExecutor
builder: Any = interpreter.InterpreterBuilder


class Launch(NamedTuple):
    """One launch of a kernel."""

    kernel: str
    arguments: dict[str, Any]


def watch_launches(patch: pytest.MonkeyPatch) -> list[Launch]:
    """Return a list that grows by every kernel that is launched from now on."""
    launches, call = list[Launch](), executor.__call__

    def watched(self: Any, *arguments: Any, **options: Any) -> None:
        signature = inspect.signature(self.fn)
        options = {k: v for k, v in options.items() if k in signature.parameters}
        bound = signature.bind(*arguments, **options)
        launches.append(Launch(self.fn.__name__, bound.arguments))
        call(self, *arguments, **options)

    patch.setattr(executor, "__call__", watched)
    return launches


def refuse_strays(patch: pytest.MonkeyPatch) -> None:
    """Fail any launch that reads or writes outside its tensors, until the patch is undone."""
    spans: Spans = []
    begin, load = executor._init_args_hst, builder.create_masked_load
    store = builder.create_masked_store

    def watched_begin(self: Any, args: Any, kwargs: Any) -> Any:
        on_host = begin(self, args, kwargs)
        spans[:] = [_span(x) for x in _tensors((*on_host[0], *on_host[1].values()))]
        return on_host

    def watched_load(self: Any, addresses: Any, mask: Any, *rest: Any) -> Any:
        _check(spans, addresses, mask)
        return load(self, addresses, mask, *rest)

    def watched_store(self: Any, addresses: Any, value: Any, mask: Any, *rest: Any) -> Any:
        _check(spans, addresses, mask)
        return store(self, addresses, value, mask, *rest)

    patch.setattr(executor, "_init_args_hst", watched_begin)
    patch.setattr(builder, "create_masked_load", watched_load)
    patch.setattr(builder, "create_masked_store", watched_store)


def _tensors(arguments: tuple[Any, ...]) -> Iterator[torch.Tensor]:
    """Yield the tensors among arguments and in their tuples."""
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            yield argument
        elif isinstance(argument, tuple):
            yield from _tensors(argument)


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()


def _check(spans: Spans, addresses: Any, mask: Any) -> None:
    used = addresses.data[np.broadcast_to(mask.data, addresses.data.shape).astype(bool)]
    inside = np.zeros(used.shape, dtype=bool)
    for start, end in spans:
        inside |= (used >= start) & (used < end)
    assert inside.all(), f"{(~inside).sum()} of {inside.size} addresses are outside the tensors"
