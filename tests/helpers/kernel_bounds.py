"""Triton's interpreter, made to refuse what a kernel reads or writes outside its tensors."""

from typing import Any

import numpy as np
import pytest
import torch
import triton.runtime.interpreter as interpreter

Spans = list[tuple[int, int]]


def refuse_strays(patch: pytest.MonkeyPatch) -> None:
    """Until the patch is undone, an address outside the tensors of a call fails the call."""
    spans: Spans = []
    executor: Any = interpreter.GridExecutor
    builder: Any = interpreter.InterpreterBuilder
    begin, load = executor._init_args_hst, builder.create_masked_load
    store = builder.create_masked_store

    def begun(self: Any, args: Any, kwargs: Any) -> Any:
        made = begin(self, args, kwargs)
        spans[:] = [_span(x) for x in (*made[0], *made[1].values()) if isinstance(x, torch.Tensor)]
        return made

    def loaded(self: Any, places: Any, mask: Any, *rest: Any) -> Any:
        _check(spans, places, mask)
        return load(self, places, mask, *rest)

    def stored(self: Any, places: Any, value: Any, mask: Any, *rest: Any) -> Any:
        _check(spans, places, mask)
        return store(self, places, value, mask, *rest)

    patch.setattr(executor, "_init_args_hst", begun)
    patch.setattr(builder, "create_masked_load", loaded)
    patch.setattr(builder, "create_masked_store", stored)


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()


def _check(spans: Spans, places: Any, mask: Any) -> None:
    used = places.data[np.broadcast_to(mask.data, places.data.shape).astype(bool)]
    inside = np.zeros(used.shape, dtype=bool)
    for start, end in spans:
        inside |= (used >= start) & (used < end)
    assert inside.all(), f"{(~inside).sum()} of {inside.size} places are outside the tensors"
