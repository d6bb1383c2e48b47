"""Routings on a GPU: values and gradients against float64 on the CPU."""

import copy

import pytest
import torch
from torch import Tensor

import torchcaps as tc
from helpers.routings import ROUTINGS, route
from torchcaps.routing import Sizes

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]


def outputs_and_gradients(
    routing: tc.Routing, votes: Tensor, activations: Tensor, towards: Tensor
) -> list[Tensor]:
    votes, activations = votes.detach().requires_grad_(), activations.detach().requires_grad_()
    routed = route(routing, votes, activations)
    (routed.poses.double() * towards.to(votes.device)).sum().backward()
    assert votes.grad is not None
    gradients = [votes.grad, *(p.grad for p in routing.parameters() if p.grad is not None)]
    return [x.detach().double().cpu() for x in (*routed, *gradients)]


@pytest.mark.parametrize("name", ROUTINGS)
def test_values_and_gradients_are_those_of_float64(name: str) -> None:
    torch.manual_seed(0)
    exact = ROUTINGS[name](Sizes(50, 7, 8, 16)).double()
    votes, activations = torch.randn(3, 50, 7, 16).double(), torch.rand(3, 50).double()
    towards = torch.randn(3, 7, 16).double()
    on_gpu = copy.deepcopy(exact).float().cuda()
    got = outputs_and_gradients(on_gpu, votes.float().cuda(), activations.float().cuda(), towards)
    expected = outputs_and_gradients(exact, votes, activations, towards)
    for a, b in zip(got, expected, strict=True):
        assert (a - b).norm() <= 1e-3 * b.norm() + 1e-6
