"""The scales of EM networks: activations of their convolutions differ, are learned and matter."""

from functools import partial
from itertools import islice

import torch
from torch import Tensor, nn

import torchcaps as tc
from torchcaps.capsules import Routed
from torchcaps.data import Batches, load
from torchcaps.models.hinton2018 import BALANCED, Scales
from torchcaps.models.parts.backbones import ConvBackbone

STEPS = 120


def trained(scales: Scales | None, seed: int = 0) -> tc.EMCapsNet:
    """Train a small network on generated digits."""
    torch.manual_seed(seed)
    backbone = partial(ConvBackbone, out_channels=16, kernel_size=5, stride=2)
    network = tc.EMCapsNet(
        (1, 28, 28), 10, backbone=backbone, widths=(4, 4, 4), iterations=2, scales=scales
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for batch in islice(Batches(load("strokes"), 32, seed=seed).epoch(0), STEPS):
        scores = network(batch.images).scores
        loss = tc.spread_loss(scores, batch.labels, margin=0.9)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network.eval()


def activations(network: tc.EMCapsNet, images: Tensor) -> dict[str, Tensor]:
    """Return the activations of both convolutions."""
    first = network.conv1(network.primary(network.backbone(images)))
    return {"conv1": first.activations, "conv2": network.conv2(first).activations}


def accuracy(network: tc.EMCapsNet, images: Tensor, labels: Tensor) -> float:
    return 100 * float((network(images).scores.argmax(dim=1) == labels).float().mean())


@torch.no_grad()
def accuracies(network: tc.EMCapsNet) -> tuple[dict[str, Tensor], float, float]:
    """Return activations on test digits, and accuracy with them and with their means."""
    batch = Batches(load("strokes", "test"), 500).batch(torch.arange(500))
    found = activations(network, batch.images)
    whole = accuracy(network, batch.images, batch.labels)

    def replace(_: nn.Module, __: object, routed: Routed, *, mean: Tensor) -> Routed:
        return routed._replace(activations=mean.expand_as(routed.activations))

    for name, values in found.items():
        hook = partial(replace, mean=values.mean())
        network.get_submodule(name).register_forward_hook(hook)
    return found, whole, accuracy(network, batch.images, batch.labels)


def is_spread(values: Tensor) -> bool:
    """Return whether activations go below 0.2 and above 0.8, and nine tenths of them span 0.5."""
    low, high = values.flatten().quantile(torch.tensor([0.05, 0.95])).tolist()
    return float(values.min()) < 0.2 and float(values.max()) > 0.8 and high - low > 0.5


def test_activations_of_convolutions_are_spread_and_matter_after_a_short_training() -> None:
    found, whole, without = accuracies(trained(BALANCED))
    assert all(is_spread(values) for values in found.values())
    assert whole - without > 2


def test_without_the_scales_activations_stay_at_one_half_and_carry_nothing() -> None:
    found, whole, without = accuracies(trained(None))
    for values in found.values():
        assert not is_spread(values)
        assert float(values.std()) < 0.05
    assert abs(whole - without) < 2


def test_the_scale_of_beta_multiplies_what_is_learned() -> None:
    torch.manual_seed(0)
    sizes = tc.Sizes(6, 3, 4, 4)
    capsules, votes = tc.Capsules(torch.rand(2, 6, 4), torch.rand(2, 6)), torch.rand(2, 6, 3, 4)
    scaled, plain = tc.EMRouting(sizes, beta_scale=500.0), tc.EMRouting(sizes)
    nn.init.constant_(scaled.beta_a, 0.4)
    nn.init.constant_(plain.beta_a, 200.0)
    torch.testing.assert_close(scaled(capsules, votes), plain(capsules, votes))
