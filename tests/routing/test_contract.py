"""The contract of torchcaps.testing over every routing, and proof that the contract can fail."""

from collections.abc import Callable
from typing import ClassVar, Literal

import pytest
import torch
from torch import Tensor

import torchcaps as tc
from helpers.routings import ROUTINGS
from torchcaps.capsules import Capsules, Routed
from torchcaps.functional import lengths, squash
from torchcaps.routing import RoutingFactory
from torchcaps.testing import CONTRACT, check_routing
from torchcaps.votes import Votes


@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", ROUTINGS)
def test_every_routing_keeps_the_contract(
    name: str, check: Callable[[RoutingFactory], None]
) -> None:
    torch.manual_seed(0)
    check(ROUTINGS[name])


def test_leaky_couplings_sum_to_less_than_one() -> None:
    votes = torch.randn(2, 7, 3, 5)
    couplings = tc.dynamic_routing(votes, leaky=True).couplings
    assert (couplings.sum(dim=-1) < 1).all()
    assert torch.allclose(tc.dynamic_routing(0 * votes, leaky=True).couplings, torch.tensor(0.25))


class BrokenRouting(tc.Routing):
    """Dynamic routing with one public bug put back, to see the contract find it."""

    competes_over: ClassVar[Literal["parents", "children", "none"]] = "parents"
    bug: ClassVar[str]

    def forward(
        self, children: Capsules, votes: Votes | Tensor, parents: Tensor | None = None
    ) -> Routed:
        votes = self.cast(votes)
        logits = votes.new_zeros(votes.shape[:-1])
        for _ in range(2):
            couplings = logits.softmax(dim=1 if self.bug == "softmax over children" else -1)
            inputs = torch.einsum("bij,bije->bje", couplings, votes)
            if self.bug == "order of children":
                inputs = inputs + votes[:, 0]
            if self.bug == "naive squash":
                square = inputs.square().sum(dim=-1, keepdim=True)
                poses = square / (1 + square) * inputs / square.sqrt()
            else:
                poses = squash(inputs)
            agreement = torch.einsum("bije,bje->bij", votes, poses)
            if self.bug == "batch mean":
                agreement = agreement.mean(dim=0, keepdim=True).expand_as(agreement)
            logits = logits + (agreement.detach() if self.bug == "detached" else agreement)
        if self.bug == "poses cut off":
            return Routed(poses.detach(), lengths(poses), couplings)
        return Routed(poses, lengths(poses), couplings)


@pytest.mark.parametrize(
    ("bug", "complaint"),
    [
        ("softmax over children", "sum to 1 over parents"),
        ("batch mean", "batch mates"),
        ("naive squash", "not finite"),
        ("detached", "Jacobian"),
        ("order of children", "order of children"),
        ("poses cut off", "poses are cut off"),
    ],
)
def test_the_contract_finds_public_bugs(
    bug: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BrokenRouting, "bug", bug, raising=False)
    with pytest.raises((AssertionError, RuntimeError), match=complaint):
        check_routing(BrokenRouting)


def test_the_contract_accepts_a_routing_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BrokenRouting, "bug", "none", raising=False)
    check_routing(BrokenRouting)
