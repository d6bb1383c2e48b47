"""Losses of recipes that have no public function of their own."""

import pytest
import torch

from torchcaps.recipes.losses import log_likelihood


def test_log_likelihood_is_that_of_the_target_class() -> None:
    activations = torch.tensor([[0.7, 0.2, 0.1], [0.25, 0.25, 0.5]], requires_grad=True)
    targets, step = torch.tensor([0, 1]), torch.zeros(())
    loss = log_likelihood(activations, targets, step=step, smoothing=0.0)
    expected = -(torch.tensor(0.7).log() + torch.tensor(0.25).log()) / 2
    torch.testing.assert_close(loss, expected)
    certain = torch.tensor([[1.0, 0.0]], requires_grad=True)
    wrong = log_likelihood(certain, torch.tensor([1]), step=step, smoothing=0.0)
    assert wrong.item() == pytest.approx(16.118, abs=1e-2)  # -log of 1e-7
    (gradient,) = torch.autograd.grad(wrong, certain)
    assert gradient.isfinite().all()
