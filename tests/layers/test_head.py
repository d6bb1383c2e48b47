"""A capsule head on any backbone."""

import importlib
import subprocess
import sys
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

import torchcaps as tc
from torchcaps.routing import RoutingFactory

ROUTINGS: dict[str, RoutingFactory] = {
    "inverted attention": partial(tc.InvertedAttentionRouting, iterations=2),
    "dynamic": tc.DynamicRouting,
    "dynamic with priors": partial(tc.DynamicRouting, learned_priors=True),
    "em": partial(tc.EMRouting, iterations=2),
    "attention": tc.AttentionRouting,
    "pairwise": tc.PairwiseRouting,
    "discriminative": tc.DiscriminativeRouting,
}


@pytest.mark.parametrize("name", ROUTINGS)
def test_poses_of_one_number_have_no_room_for_coordinates(name: str) -> None:
    features = torch.randn(2, 4, 3, 3)
    head = tc.CapsuleHead(4, n_classes=2, routing=ROUTINGS[name], d=1, coordinates=False)
    assert head(features).scores.shape == (2, 2)
    if name in ("attention", "discriminative") or name.startswith("dynamic"):  # they add none
        head = tc.CapsuleHead(4, n_classes=2, routing=ROUTINGS[name], d=1)
        assert head(features).scores.shape == (2, 2)
    else:
        with pytest.raises(ValueError, match="at least 2 numbers: set coordinates=False"):
            tc.CapsuleHead(4, n_classes=2, routing=ROUTINGS[name], d=1)


@pytest.mark.parametrize("name", ROUTINGS)
def test_a_head_takes_maps_and_tokens_of_any_size(name: str) -> None:
    torch.manual_seed(0)
    head = tc.CapsuleHead(12, n_classes=7, routing=ROUTINGS[name], n_types=4, d=9)
    for features, positions in (
        (torch.randn(2, 12, 7, 7), 49),
        (torch.randn(1, 12, 3, 5), 15),
        (torch.randn(2, 12, 1, 1), 1),
        (torch.randn(2, 10, 12), 10),
    ):
        output = head(features)
        b = features.shape[0]
        assert output.scores.shape == (b, 7)
        assert output.capsules.poses.shape == (b, 7, 9)
        assert output.couplings[0].shape == (b, positions * 4, 7)
        assert output.scores.isfinite().all()
    output.scores.square().sum().backward()
    unused = {n for n, p in head.named_parameters() if p.grad is None}
    assert unused == set()


def test_a_head_takes_the_features_of_a_resnet_50() -> None:
    head = tc.CapsuleHead(2048, n_classes=20)
    output = head(torch.randn(2, 2048, 7, 7))
    tc.cross_entropy_loss(output.scores, torch.tensor([0, 19])).backward()
    assert output.couplings[0].shape == (2, 49 * 32, 20)
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in head.parameters())


def test_tokens_are_a_map_of_one_column() -> None:
    head = tc.CapsuleHead(8, 3)
    tokens = torch.randn(2, 6, 8)
    as_map = tokens.transpose(1, 2).unsqueeze(-1)
    assert torch.equal(head(tokens).scores, head(as_map).scores)


def test_coordinates_tell_places_apart() -> None:
    torch.manual_seed(0)
    features = torch.randn(2, 8, 4, 4)
    aware, unaware = tc.CapsuleHead(8, 3), tc.CapsuleHead(8, 3, coordinates=False)
    unaware.load_state_dict(aware.state_dict())
    turned = features.flip(-1)
    assert not torch.allclose(aware(features).scores, aware(turned).scores, atol=1e-4)
    torch.testing.assert_close(unaware(features).scores, unaware(turned).scores)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_a_head_learns_on_a_users_own_backbone(channels: int) -> None:
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Conv2d(channels, 16, 3, stride=2), nn.ReLU())
    model = nn.Sequential(backbone, tc.CapsuleHead(16, 4, n_types=4, d=4))
    images, labels = torch.randn(16, channels, 9, 11), torch.arange(16) % 4
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        loss = tc.cross_entropy_loss(model(images).scores, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]


def test_a_head_by_dynamic_routing_learns_although_it_adds_up_the_votes_of_a_whole_map() -> None:
    torch.manual_seed(0)
    head = tc.CapsuleHead(16, 4, routing=tc.DynamicRouting, n_types=8)
    labels = torch.arange(32) % 4
    features = 0.5 * torch.randn(32, 16, 7, 7) + torch.randn(4, 16, 1, 1)[labels]
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-2)
    for _ in range(40):
        scores = head(features).scores
        optimizer.zero_grad()
        tc.margin_loss(scores, labels).backward()
        optimizer.step()
    assert (scores.argmax(dim=-1) == labels).float().mean() > 0.9


def library(name: str) -> Any:
    """An optional library, or a skip: some of its builds do not import beside this torch."""
    try:
        return importlib.import_module(name)
    except Exception as error:
        pytest.skip(f"{name} does not import here: {error}")


def test_a_head_sits_on_a_torchvision_resnet() -> None:
    resnet = library("torchvision").models.resnet18()
    model = nn.Sequential(*list(resnet.children())[:-2], tc.CapsuleHead(512, n_classes=7))
    output = model(torch.randn(2, 3, 96, 64))
    assert output.scores.shape == (2, 7)
    tc.cross_entropy_loss(output.scores, torch.tensor([0, 6])).backward()


@pytest.mark.parametrize("name", ["resnet18", "vit_tiny_patch16_224"])
def test_a_head_sits_on_a_timm_backbone(name: str) -> None:
    backbone = library("timm").create_model(name, n_classes=0, in_chans=4)
    head = tc.CapsuleHead(backbone.num_features, n_classes=5)
    output = head(backbone.forward_features(torch.randn(2, 4, 224, 224)))
    assert output.scores.shape == (2, 5)
    tc.cross_entropy_loss(output.scores, torch.tensor([0, 4])).backward()


def test_wrong_features_get_one_sentence() -> None:
    head = tc.CapsuleHead(8, 3)
    for features in (torch.randn(2, 9, 4, 4), torch.randn(2, 6, 9), torch.randn(2, 8)):
        with pytest.raises(ValueError, match=r"takes a map \[b 8 h w\] or tokens \[b n 8\]"):
            head(features)
    with pytest.raises(ValueError, match="a matrix pose is square"):
        tc.CapsuleHead(8, 3, d=10)


def test_a_thousand_classes_train_within_four_gigabytes() -> None:
    code = """
import resource, torch, torchcaps as tc
head = tc.CapsuleHead(512, 1000)
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
for _ in range(2):
    loss = tc.cross_entropy_loss(head(torch.randn(2, 512, 7, 7)).scores, torch.tensor([1, 999]))
    optimizer.zero_grad(); loss.backward(); optimizer.step()
assert loss.isfinite()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 4


@pytest.mark.parametrize("name", ROUTINGS)
def test_a_head_is_exported_for_any_batch(name: str) -> None:
    torch.manual_seed(0)
    head = tc.CapsuleHead(16, n_classes=5, routing=ROUTINGS[name]).eval()
    batch = torch.export.Dim("batch")
    whole = torch.export.export(head, (torch.rand(3, 16, 6, 6),), dynamic_shapes=({0: batch},))
    for size in (2, 200):
        features = torch.rand(size, 16, 6, 6)
        torch.testing.assert_close(whole.module()(features).scores, head(features).scores)


def test_per_sample_gradients_by_vmap() -> None:
    torch.manual_seed(0)
    head = tc.CapsuleHead(4, n_classes=3, n_types=2, d=4)
    features, classes = torch.rand(3, 4, 2, 2), torch.tensor([0, 2, 1])
    weights = dict(head.named_parameters())

    def loss(weights: Any, one: torch.Tensor, target: torch.Tensor) -> Any:
        scores = torch.func.functional_call(head, weights, (one[None],)).scores
        return tc.cross_entropy_loss(scores, target[None])

    found = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(weights, features, classes)
    for index in range(3):
        alone = torch.func.grad(loss)(weights, features[index], classes[index])
        for name, gradient in alone.items():
            torch.testing.assert_close(found[name][index], gradient, msg=name)
