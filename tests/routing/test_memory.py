"""No routing keeps more votes in memory than its docstring says."""

import gc
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import torchcaps as tc

SHAPE = (32, 8, 4, 16)
SIZE = 32 * 8 * 4 * 16


class VoteCounter(TorchDispatchMode):
    """Counts tensors of the votes' size, beside the votes, that are alive at the same time."""

    def __init__(self, votes: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.given = votes.untyped_storage().data_ptr()
        self.alive: set[int] = set()
        self.most = 0

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, Tensor):
                self.note(tensor.untyped_storage(), tensor.element_size())
        return out

    def note(self, storage: torch.UntypedStorage, element_size: int) -> None:
        key = storage.data_ptr()
        large = storage.nbytes() >= SIZE * element_size
        if large and key != self.given and key not in self.alive:
            self.alive.add(key)
            self.most = max(self.most, len(self.alive))
            weakref.finalize(storage, self.alive.discard, key)


def votes_and_activations() -> tuple[Tensor, Tensor]:
    b, i, j, e = SHAPE
    return torch.randn(b, j, i, e).transpose(1, 2), torch.rand(b, i)


CASES: dict[str, tuple[Callable[[Tensor, Tensor], object], int]] = {
    "dynamic": (lambda v, a: tc.dynamic_routing(v), 0),
    "dynamic, leaky": (lambda v, a: tc.dynamic_routing(v, leaky=True), 0),
    "em": (lambda v, a: tc.em_routing(v, a, beta_a=0.0, beta_u=0.0), 1),
    "inverted attention, first": (lambda v, a: tc.inverted_attention_routing(v), 0),
    "inverted attention": (
        lambda v, a: tc.inverted_attention_routing(v, torch.randn(32, 4, 16)),
        0,
    ),
    "attention": (lambda v, a: tc.attention_routing(v, torch.randn(4, 8, 16, 8)), 0),
    "pairwise": (lambda v, a: tc.pairwise_agreement(v), 1),
    "pairwise, not normalized": (lambda v, a: tc.pairwise_agreement(v, normalise=False), 0),
    "discriminative": (lambda v, a: tc.discriminative_routing(v, torch.randn(8, 4)), 0),
}


@pytest.mark.parametrize("name", CASES)
def test_routing_holds_at_most_one_more_tensor_of_the_votes_size(name: str) -> None:
    route, allowed = CASES[name]
    votes, activations = votes_and_activations()
    gc.collect()
    with torch.no_grad(), VoteCounter(votes) as counter:
        route(votes, activations)
    assert counter.most == allowed


@pytest.mark.parametrize("name", CASES)
def test_votes_in_another_order_are_copied_once(name: str) -> None:
    route, allowed = CASES[name]
    votes, activations = torch.randn(SHAPE), torch.rand(SHAPE[:2])
    with torch.no_grad(), VoteCounter(votes) as counter:
        route(votes, activations)
    assert counter.most == allowed + 1


@pytest.mark.parametrize("name", ["em", "pairwise", "pairwise, not normalized"])
def test_half_precision_is_widened_once(name: str) -> None:
    route, allowed = CASES[name]
    votes, activations = votes_and_activations()
    votes = votes.bfloat16()
    with torch.no_grad(), VoteCounter(votes) as counter:
        route(votes, activations.bfloat16())
    assert counter.most == allowed + 1


def test_the_counter_counts() -> None:
    votes, _ = votes_and_activations()
    with torch.no_grad(), VoteCounter(votes) as counter:
        kept = votes * 2
        other = kept + 1
        del kept
        third = other + 1
    assert counter.most == 2
    assert third is not None
