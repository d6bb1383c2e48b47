"""Averaged weights are scored with statistics of their own."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchcaps as tc
from torchcaps.data import Batches
from torchcaps.layers import VoteNorm
from torchcaps.recipes import Recipe, get
from torchcaps.train import TrainOptions, train
from torchcaps.train.evaluation.evaluator import recompute_statistics
from torchcaps.train.images import load_sources

CPU = torch.device("cpu")
NORMS = (nn.modules.batchnorm._BatchNorm, VoteNorm)


def normed(network: str, **changes: Any) -> Recipe:
    """Two short epochs of a network with running statistics."""
    recipe = get("demo/strokes-attention").variant("normed", network=network)
    small = {"limit": 96, "batch_size": 16, "test_limit": 32, "epochs": 2, "average": 0.9}
    return recipe.override(**{**small, **changes})


def statistics(network: nn.Module) -> list[torch.Tensor]:
    return [buffer for name, buffer in network.named_buffers() if name.endswith(("_mean", "_var"))]


def batches_of(recipe: Recipe) -> Batches:
    """What a run of the recipe trains on."""
    sources = load_sources(recipe, root=None, own_folder=None, device=CPU)
    return Batches(
        sources.train, recipe.batch_size, transforms=sources.train_transforms, drop_last=True
    )


@pytest.mark.parametrize("name", ["choi2019/mnist", "zhao2020/fashion-mnist"])
def test_statistics_are_the_mean_over_the_batches(name: str) -> None:
    torch.manual_seed(0)
    network = tc.build(name).eval()
    usual = [m.momentum for m in network.modules() if isinstance(m, NORMS)]
    recipe = normed(name, batch_size=8, limit=24, hold_out=False)
    batches = list(batches_of(recipe).epoch(0))
    first = [tensor.clone() for tensor in statistics(network)[:2]]
    by_batch = []
    for batch in batches:
        recompute_statistics(network, [batch], recipe, CPU)
        # of the first norm: what comes to the others depends on those before them
        by_batch.append([tensor.clone() for tensor in statistics(network)[:2]])
    recompute_statistics(network, iter(batches), recipe, CPU)
    for ours, start, *each in zip(statistics(network)[:2], first, *by_batch, strict=True):
        torch.testing.assert_close(ours, torch.stack(each).mean(0), rtol=1e-4, atol=1e-6)
        assert not torch.allclose(ours, start, rtol=0.01)
    assert not any(module.training for module in network.modules())
    assert [m.momentum for m in network.modules() if isinstance(m, NORMS)] == usual


def test_no_more_images_are_looked_at_than_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchcaps.train.evaluation.evaluator.STATISTICS_IMAGES", 20)
    recipe = normed("choi2019/mnist", batch_size=8, hold_out=False)
    batches = batches_of(recipe).epoch(0)
    recompute_statistics(tc.build("choi2019/mnist").eval(), batches, recipe, CPU)
    assert len(list(batches)) == 12 - 3


def test_a_run_saves_statistics_of_the_averaged_weights(tmp_path: Path) -> None:
    recipe = normed("choi2019/mnist", hold_out=False)
    train(recipe, TrainOptions(out=tmp_path, device="cpu", tensorboard=False))
    network = tc.load(tmp_path / "weights.safetensors").eval()
    saved = [tensor.clone() for tensor in statistics(network)]
    recompute_statistics(network, batches_of(recipe).epoch(0), recipe, CPU)
    for ours, again in zip(saved, statistics(network), strict=True):
        torch.testing.assert_close(ours, again, rtol=1e-4, atol=1e-5)
