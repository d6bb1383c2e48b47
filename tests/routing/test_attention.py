"""Attention routing: the logits, which a GPU takes in one matrix product."""

import torch

from torchcaps.routing.attention import _logits, _spread_product


def test_one_product_with_zeros_between_parents_gives_the_logits_and_their_gradients() -> None:
    votes = torch.randn(3, 4, 10, dtype=torch.float64, requires_grad=True)  # [b j (i e)]
    weight = torch.randn(4, 10, 5, dtype=torch.float64, requires_grad=True)  # [j (i e) i]
    expected, got = _logits(votes, weight), _spread_product(votes, weight)
    torch.testing.assert_close(got, expected)
    towards = torch.randn_like(expected)
    gradients = (torch.autograd.grad(x, (votes, weight), towards) for x in (got, expected))
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs)
