"""Concurrent routing (Tsai 2020, Procedure 2), which belongs to the network."""

from functools import partial
from typing import Any, cast

import pytest
import torch
from torch import Tensor

import torchcaps as tc
from torchcaps.routing import inverted_attention_routing


def slow_procedure_2(network: tc.AttentionCapsNet, images: Tensor, iterations: int) -> Tensor:
    """Procedure 2 written out, with the pure function instead of the modules' forward."""
    primary = network.primary(network.backbone(images)).poses  # lines 2 and 3
    below: list[Tensor] = [primary] + [torch.empty(0)] * len(network.layers)

    def route(number: int, children: Tensor, parents: Tensor | None) -> Tensor:
        layer = cast(Any, network.layers[number])
        votes = layer.votes(tc.Capsules(children)).dense()
        flat = None if parents is None else parents.reshape(-1, *parents.shape[-2:])
        poses = layer.routing.norm(inverted_attention_routing(votes, flat).poses)
        if isinstance(layer, tc.LinearCapsules):
            return cast(Tensor, poses)
        (k, _), (s, _) = layer.kernel_size, layer.stride
        side = (children.shape[1] - k) // s + 1
        return cast(Tensor, poses.reshape(len(images), side, side, *poses.shape[1:]))

    for number in range(len(network.layers)):  # lines 5 and 6
        below[number + 1] = route(number, below[number], None)
    for _ in range(iterations - 1):  # lines 7 to 9
        updated = [
            route(number, below[number], below[number + 1]) for number in range(len(network.layers))
        ]
        below[1:] = updated
    return torch.stack([network.classifier(p) for p in below[-1].unbind(1)], 1).squeeze(-1)


@pytest.mark.parametrize("iterations", [1, 2, 3, 5])
def test_concurrent_routing_is_procedure_2(iterations: int) -> None:
    torch.manual_seed(0)
    network = tc.AttentionCapsNet(
        (3, 16, 16), 4, n_types=3, d=4, hidden=(5,), iterations=iterations
    ).double()
    images = torch.rand(2, 3, 16, 16).double()
    torch.testing.assert_close(
        network(images).scores, slow_procedure_2(network, images, iterations)
    )


@pytest.mark.parametrize("matrix", [True, False])
def test_a_layer_that_only_takes_its_first_step_casts_no_votes(
    matrix: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    network = tc.AttentionCapsNet((3, 16, 16), 4, n_types=3, d=4, matrix=matrix)
    images = torch.rand(2, 3, 16, 16)
    cast_votes: list[tc.Votes] = []
    dense = tc.Votes.dense

    def noted(votes: tc.Votes) -> Tensor:
        cast_votes.append(votes)
        return dense(votes)

    monkeypatch.setattr(tc.Votes, "dense", noted)
    scores = network(images).scores
    assert [votes.weight is network.layers[-1].weight for votes in cast_votes] == [True]
    for module in network.modules():
        if isinstance(module, tc.InvertedAttentionRouting):
            module.implementation = "torch"
    torch.testing.assert_close(network(images).scores, scores)
    assert len(cast_votes) == 1 + 4, "the plain function casts them in every step"


def test_with_one_iteration_concurrent_and_sequential_are_the_same() -> None:
    torch.manual_seed(0)
    images = torch.rand(2, 3, 16, 16)
    networks = {
        (concurrent, iterations): tc.AttentionCapsNet(
            (3, 16, 16), 4, n_types=3, d=4, iterations=iterations, concurrent=concurrent
        )
        for concurrent in (True, False)
        for iterations in (1, 3)
    }
    state = networks[True, 1].state_dict()
    for network in networks.values():
        network.load_state_dict(state)
    scores = {key: network(images).scores for key, network in networks.items()}
    assert torch.equal(scores[True, 1], scores[False, 1])
    assert not torch.allclose(scores[True, 3], scores[False, 3], rtol=1e-4)


def test_another_form_of_the_papers_routing_iterates_too() -> None:
    """A partial of the routing used to run one iteration, whatever the network was asked for."""
    form = partial(tc.InvertedAttentionRouting, scale=1.0)
    torch.manual_seed(0)
    small = partial(tc.AttentionCapsNet, (3, 32, 32), 10, routing=form, n_types=4)
    one, three = small(iterations=1).eval(), small(iterations=3).eval()
    three.load_state_dict(one.state_dict())
    assert three.iterations == 3
    images = torch.rand(2, 3, 32, 32)
    assert not torch.allclose(one(images).scores, three(images).scores)


def test_primary_capsules_are_squashed_under_dynamic_routing_and_normalized_under_the_papers() -> (
    None
):
    norm, squash = tc.PoseNorm, tc.Squash
    for name, definition, kind in (
        ("diversemultimnist-vector", None, norm),
        ("diversemultimnist-vector-dynamic", None, squash),
        ("diversemultimnist-vector-dynamic", 1, norm),
    ):
        with torch.device("meta"):
            network = tc.build(f"tsai2020/{name}", definition=definition)
        assert isinstance(cast(tc.AttentionCapsNet, network).primary.nonlinearity, kind)
