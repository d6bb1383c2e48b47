"""Uniform couplings: what every routing does when it may not decide."""

import pytest
import torch

from helpers.routings import ROUTINGS, route
from torchcaps.routing import Sizes
from torchcaps.routing.base import build_routing

UNABLE = ("pairwise", "pairwise-inner", "pairwise-code")


@pytest.mark.parametrize("name", [name for name in ROUTINGS if name not in UNABLE])
def test_couplings_are_uniform_inside_the_context_and_as_before_after_it(name: str) -> None:
    torch.manual_seed(0)
    routing = build_routing(ROUTINGS[name], Sizes(6, 4, 8, 5))
    with torch.no_grad():
        for parameter in routing.parameters():
            parameter.add_(torch.randn_like(parameter))
    votes, activations = torch.randn(3, 6, 4, 5), torch.rand(3, 6)
    parents = torch.randn(3, 4, 5) if routing.takes_parents else None
    if name == "dynamic-priors-bias":
        assert routing.get_parameter("priors").abs().sum() > 0
    before = route(routing, votes, activations, parents)
    with routing.uniform_couplings() as able, torch.no_grad():
        uniform = route(routing, votes, activations, parents).couplings.clone()
    assert able
    torch.testing.assert_close(uniform, uniform[:, :1, :1].expand_as(uniform))
    after = route(routing, votes, activations, parents)
    for one, other in zip(before, after, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", UNABLE)
def test_a_routing_without_competition_says_that_it_cannot(name: str) -> None:
    with build_routing(ROUTINGS[name], Sizes(6, 4, 8, 5)).uniform_couplings() as able:
        assert not able


def test_the_context_ends_after_an_error() -> None:
    routing = build_routing(ROUTINGS["attention"], Sizes(6, 4, 8, 5))
    weight = routing.get_parameter("weight").detach().clone()

    def fail() -> None:
        with routing.uniform_couplings():
            assert float(routing.get_parameter("weight").abs().sum()) == 0
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        fail()
    assert torch.equal(routing.get_parameter("weight"), weight)
