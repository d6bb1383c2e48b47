"""Masks: absent children, such as padded tokens, change nothing."""

from functools import partial
from typing import Any, cast

import pytest
import torch
from torch import Tensor

import torchcaps as tc
from helpers.routings import ROUTINGS
from torchcaps.routing import RoutingFactory
from torchcaps.testing import absent_children_change_nothing


def garbage(tensor: Tensor, mask: Tensor) -> Tensor:
    """Return the tensor with infinities and NaN where the mask is False."""
    filled = tensor.clone()
    filled[~mask] = float("nan")
    filled[~mask, ..., 0] = float("inf")
    return filled


def same(got: tc.Output, expected: tc.Output) -> None:
    torch.testing.assert_close(got.scores, expected.scores, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(got.capsules, expected.capsules, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ROUTINGS)
def test_padded_tokens_change_nothing(name: str) -> None:
    torch.manual_seed(0)
    head = tc.CapsuleHead(6, 3, routing=ROUTINGS[name], n_types=2, d=4)
    tokens = torch.randn(3, 5, 6)
    mask = torch.zeros(3, 9, dtype=torch.bool)
    mask[:, 2:7] = True  # padding on both sides
    padded = torch.randn(3, 9, 6)
    padded[mask] = tokens.flatten(0, 1)
    padded = garbage(padded, mask)
    output = head(padded, mask)
    same(output, head(tokens))
    couplings = output.couplings[0].unflatten(1, (9, 2))
    assert not couplings[~mask].any()
    output.scores.square().sum().backward()
    gradients = [p.grad for p in head.parameters() if p.grad is not None]
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)


@pytest.mark.parametrize("name", ["inverted-attention", "attention", "em", "pairwise"])
def test_samples_of_different_lengths_share_a_batch(name: str) -> None:
    torch.manual_seed(0)
    head = tc.CapsuleHead(6, 3, routing=ROUTINGS[name], n_types=2, d=4)
    tokens = torch.randn(3, 7, 6)
    lengths = (7, 2, 4)
    mask = torch.arange(7) < torch.tensor(lengths)[:, None]
    together = head(garbage(tokens, mask), mask).scores
    for sample, length in enumerate(lengths):
        alone = head(tokens[sample : sample + 1, :length]).scores[0]
        torch.testing.assert_close(together[sample], alone, rtol=1e-4, atol=1e-5)


def test_a_padded_map_keeps_its_coordinates() -> None:
    torch.manual_seed(0)
    head = tc.CapsuleHead(6, 3, n_types=2, d=4)
    features = torch.randn(2, 6, 3, 4)
    padded = torch.full((2, 6, 5, 6), 7.0)
    padded[:, :, 1:4, :4] = features
    mask = torch.zeros(2, 5, 6, dtype=torch.bool)
    mask[:, 1:4, :4] = True
    same(head(padded, mask), head(features))


def test_a_full_mask_is_no_mask_and_an_empty_one_gives_finite_scores() -> None:
    torch.manual_seed(0)
    for factory in ROUTINGS.values():
        head = tc.CapsuleHead(6, 3, routing=factory, n_types=2, d=4)
        tokens = torch.randn(2, 4, 6)
        full = torch.ones(2, 4, dtype=torch.bool)
        same(head(tokens, full), head(tokens))
        assert head(tokens, ~full).scores.isfinite().all()


@pytest.mark.parametrize("name", ROUTINGS)
def test_linear_capsules_do_not_see_absent_children(name: str) -> None:
    torch.manual_seed(0)
    layer = tc.LinearCapsules(6, 3, 4, 4, routing=ROUTINGS[name], weight_std=0.5)
    poses, activations = torch.randn(2, 6, 4), torch.rand(2, 6)
    mask = torch.tensor([[True, True, False, True, False, True]]).expand(2, -1)
    children = tc.Capsules(garbage(poses, mask), activations)
    routed = layer(children, mask=mask)
    other = tc.Capsules(poses, activations.masked_fill(~mask, 0.7))
    for got, expected in zip(routed, layer(other, mask=mask), strict=True):
        torch.testing.assert_close(got, expected)
        assert got.isfinite().all()
    assert not routed.couplings[~mask].any()
    unmasked = layer(other)
    assert not torch.allclose(unmasked.poses, routed.poses, atol=1e-3)


@pytest.mark.parametrize("name", ROUTINGS)
def test_a_padded_grid_changes_nothing_for_class_capsules(name: str) -> None:
    torch.manual_seed(0)
    layer = tc.ClassCapsules(3, 2, 4, 4, routing=ROUTINGS[name], weight_std=0.5)
    poses, activations = torch.randn(2, 2, 3, 3, 4), torch.rand(2, 2, 3, 3)
    mask = torch.zeros(2, 4, 5, dtype=torch.bool)
    mask[:, 1:3, :3] = True
    wide = tc.Capsules(torch.randn(2, 4, 5, 3, 4), torch.rand(2, 4, 5, 3))
    wide.poses[:, 1:3, :3] = poses
    assert wide.activations is not None
    wide.activations[:, 1:3, :3] = activations
    expected = layer(tc.Capsules(poses, activations))
    routed = layer(tc.Capsules(garbage(wide.poses, mask), wide.activations), mask=mask)
    torch.testing.assert_close(routed.poses, expected.poses, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(routed.activations, expected.activations, rtol=1e-4, atol=1e-5)
    assert not routed.couplings.unflatten(1, (4, 5, 3))[~mask].any()
    assert not torch.allclose(layer(wide).poses, expected.poses, atol=1e-3)


def test_votes_prepared_before_are_masked_too() -> None:
    torch.manual_seed(0)
    layer = tc.LinearCapsules(6, 3, 4, 4, routing=tc.InvertedAttentionRouting)
    children, mask = tc.Capsules(torch.randn(2, 6, 4)), torch.rand(2, 6) < 0.5
    expected = layer(children, mask=mask)
    for votes in (layer.votes(children), layer.votes(children).dense()):
        got = layer(children, votes=votes, mask=mask)
        torch.testing.assert_close(got.poses, expected.poses)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: tc.CapsuleHead(6, 3)(torch.randn(2, 4, 6), m), r"\[2, 4\], False for padding"),
        (
            lambda m: tc.LinearCapsules(5, 3, 4, 4)(tc.Capsules(torch.randn(2, 5, 4)), mask=m),
            r"mask of LinearCapsules must be booleans \[2, 5\], True for",
        ),
        (
            lambda m: tc.ClassCapsules(5, 3, 4, 4)(
                tc.Capsules(torch.randn(2, 1, 1, 5, 4), torch.rand(2, 1, 1, 5)), mask=m
            ),
            r"must be booleans \[2, 1, 1, 5\] or \[2, 1, 1\], True for",
        ),
    ],
)
@pytest.mark.parametrize("mask", [torch.ones(2, 7, dtype=torch.bool), torch.ones(2, 4), "all"])
def test_a_wrong_mask_gets_one_sentence(call: Any, message: str, mask: object) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        call(mask)
    assert "\n" not in str(caught.value)


def test_normalized_votes_take_no_mask() -> None:
    make = partial(tc.LinearCapsules, 6, 3, 4, 4, vote_norm=tc.VoteNorm)
    children = tc.Capsules(torch.randn(2, 6, 4))
    with pytest.raises(ValueError, match="build the layer without vote_norm"):
        make()(children, mask=torch.ones(2, 6, dtype=torch.bool))


class MeanRouting(tc.Routing):
    """A routing that divides by the number of children and does not know masks."""

    competes_over = "none"

    def forward(
        self, children: tc.Capsules, votes: tc.Votes | Tensor, parents: Tensor | None = None
    ) -> tc.Routed:
        dense = self.cast(votes)
        poses = dense.mean(dim=1)
        return tc.Routed(poses, tc.lengths(poses), torch.ones_like(dense[..., 0]))


def test_the_contract_finds_a_routing_that_counts_absent_children() -> None:
    factory = cast(RoutingFactory, MeanRouting)
    with pytest.raises(AssertionError, match="absent children change the poses"):
        absent_children_change_nothing(factory)
