"""Batch normalization by the images of one GPU, on one."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchcaps as tc
from torchcaps.errors import UsageError
from torchcaps.recipes import RECIPES, get
from torchcaps.train import TrainOptions, train
from torchcaps.train.building import check_recipe, distribute
from torchcaps.train.norms import GhostBatchNorm2d, use_ghost_batches
from torchcaps.train.process import Process


def pair(images: int, **settings: Any) -> tuple[nn.BatchNorm2d, GhostBatchNorm2d]:
    """A usual normalization and the one that takes its place, with weights that matter."""
    torch.manual_seed(0)
    usual = nn.BatchNorm2d(3, **settings).double()
    with torch.no_grad():
        usual.weight.uniform_(0.5, 2)
        usual.bias.normal_()
    network = nn.Sequential(copy.deepcopy(usual))
    use_ghost_batches(network, images)
    (shared,) = network
    assert isinstance(shared, GhostBatchNorm2d)
    return usual, shared


def test_each_share_is_normalized_as_a_gpu_of_its_own_would_do_it() -> None:
    usual, shared = pair(4)
    images = (torch.randn(12, 3, 5, 6).double() * 3 + 1).requires_grad_()
    gpus = [copy.deepcopy(usual) for _ in range(3)]
    expected = torch.cat([gpu(part) for gpu, part in zip(gpus, images.chunk(3), strict=True)])
    ours = shared(images)
    torch.testing.assert_close(ours, expected)
    upstream = torch.randn_like(ours)
    inputs = (images, shared.weight, shared.bias)
    gradients = torch.autograd.grad(ours, inputs, upstream)
    theirs = torch.autograd.grad(expected, (images, *(g.weight for g in gpus)), upstream)
    torch.testing.assert_close(gradients[0], theirs[0])
    torch.testing.assert_close(gradients[1], torch.stack(theirs[1:]).sum(0))
    torch.testing.assert_close(gradients[2], upstream.sum((0, 2, 3)))
    for name in ("running_mean", "running_var"):
        mean = torch.stack([getattr(gpu, name) for gpu in gpus]).mean(0)
        torch.testing.assert_close(getattr(shared, name), mean)
    assert shared.state_dict()["num_batches_tracked"] == 1


@pytest.mark.parametrize("momentum", [0.1, 0.01, None])
def test_one_share_and_evaluation_are_the_usual_normalization(momentum: float | None) -> None:
    usual, shared = pair(6, momentum=momentum, eps=1e-3)
    for _ in range(2):
        images = torch.randn(6, 3, 4, 4).double()
        torch.testing.assert_close(shared(images), usual(images))
    torch.testing.assert_close(shared.eval()(images[:1]), usual.eval()(images[:1]))
    assert shared.state_dict().keys() == usual.state_dict().keys()
    torch.testing.assert_close(shared.state_dict(), usual.state_dict())


def test_all_batches_count_alike_without_a_momentum() -> None:
    _, shared = pair(2, momentum=None)
    batches = torch.randn(3, 8, 3, 4, 4).double()
    for batch in batches:
        shared(batch)
    torch.testing.assert_close(shared.running_mean, batches.mean((0, 1, 3, 4)))


@pytest.mark.parametrize(
    ("batch", "images", "shares"), [(128, 16, 8), (100, 16, 5), (37, 16, 1), (8, 16, 1), (6, 1, 6)]
)
def test_shares_are_equal_and_have_the_images_asked_for(
    batch: int, images: int, shares: int
) -> None:
    _, shared = pair(images)
    assert shared.shares(batch) == shares
    assert batch % shares == 0


def test_memory_format_and_precision_stay() -> None:
    _, shared = pair(2)
    shared = shared.float()
    images = torch.randn(4, 3, 4, 4).bfloat16().contiguous(memory_format=torch.channels_last)
    ours = shared(images)
    assert ours.dtype == torch.bfloat16
    assert ours.is_contiguous(memory_format=torch.channels_last)
    compiled = torch.compile(shared, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(images), ours)


def test_a_network_keeps_its_weights_and_their_names() -> None:
    network = tc.build("tsai2020/cifar10-resnet")
    before = dict(network.state_dict())
    use_ghost_batches(network, 16)
    after = network.state_dict()
    assert list(after) == list(before)
    assert all(after[name] is before[name] or after[name].equal(before[name]) for name in before)
    norms = [m for m in network.modules() if isinstance(m, nn.BatchNorm2d)]
    assert norms
    assert all(isinstance(norm, GhostBatchNorm2d) for norm in norms)
    assert network.training
    assert all(norm.training for norm in norms)


def test_networks_of_tsai_with_batch_normalization_see_sixteen_images_at_a_time() -> None:
    for name, recipe in RECIPES.items():
        if not name.startswith("tsai2020/"):
            assert recipe.norm_batch == 0
            continue
        with torch.device("meta"):
            network = tc.build(recipe.network)
        normed = any(isinstance(m, nn.BatchNorm2d) for m in network.modules())
        published = "-modern" not in name and "-routed" not in name
        assert recipe.norm_batch == (16 if normed and published else 0), name


def test_a_run_normalizes_by_shares_and_its_weights_are_the_usual_network(tmp_path: Path) -> None:
    recipe = get("demo/strokes-attention").variant("normed", network="choi2019/mnist")
    small = {"limit": 64, "batch_size": 16, "test_limit": 32, "epochs": 1}
    rows = {}
    for images in (0, 4):
        options = TrainOptions(out=tmp_path / str(images), device="cpu", tensorboard=False)
        rows[images] = train(recipe.override(**small, norm_batch=images), options)
    assert "norm_batch=4" in rows[4].modified
    assert rows[0].weights_sha256 != rows[4].weights_sha256
    network = tc.load(tmp_path / "4" / "weights.safetensors")
    assert not any(isinstance(m, GhostBatchNorm2d) for m in network.modules())


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="has no batch normalization of feature maps"):
        check_recipe(get("sabour2017/mnist").override(norm_batch=16))
    recipe, gpu = get("tsai2020/cifar10-resnet"), Process(torch.device("cuda"), world=2)
    with pytest.raises(UsageError, match="set norm_batch to 0"):
        distribute(tc.build(recipe.network), recipe, 0, gpu, sync_batch_norm=True)
