"""Concurrent routing (Tsai 2020, Procedure 2), which belongs to the network."""

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
