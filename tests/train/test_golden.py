"""Twenty optimizer steps per family reproduce a recorded loss curve.

``python tests/train/test_golden.py`` records new curves. Do so only for a change that is
meant to change them.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

import torchcaps as tc
from torchcaps.models.parts.backbones import ConvBackbone

CURVES = Path(__file__).parent / "golden" / "curves.json"

Loss = Callable[[tc.Output, Tensor, Tensor], Tensor]


def margin(output: tc.Output, targets: Tensor, images: Tensor) -> Tensor:
    loss = tc.margin_loss(output.scores, targets)
    if output.reconstruction is None:
        return loss
    return loss + tc.reconstruction_loss(output.reconstruction, images)


def entropy(output: tc.Output, targets: Tensor, images: Tensor) -> Tensor:
    return tc.cross_entropy_loss(output.scores, targets)


def spread(output: tc.Output, targets: Tensor, images: Tensor) -> Tensor:
    return tc.spread_loss(output.scores, targets, margin=0.9)


small = partial(ConvBackbone, out_channels=12, kernel_size=5, stride=2)
capsnet = partial(tc.CapsNet, (1, 28, 28), 4, backbone=small, n_types=3, stride=1)

FAMILIES: dict[str, tuple[Callable[[], tc.Network], Loss]] = {
    "sabour2017": (capsnet, margin),
    "hinton2018": (
        lambda: tc.EMCapsNet((1, 20, 20), 4, backbone=small, widths=(3, 3, 3)),
        spread,
    ),
    "tsai2020": (
        lambda: tc.AttentionCapsNet((1, 20, 20), 4, backbone=small, n_types=4, d=9, hidden=(5,)),
        entropy,
    ),
    "choi2019": (
        lambda: tc.ARCapsNet((1, 16, 16), 4, n_layers=2, d=6, n_channels=3, d_primary=4),
        margin,
    ),
    "zhao2020": (lambda: tc.ResCapsNet((1, 16, 16), 4, blocks=(1, 1, 1), hidden=(6,)), entropy),
    "yang2021": (partial(capsnet, routing=tc.DiscriminativeRouting), margin),
    "head": (
        lambda: tc.Classifier((1, 20, 20), 4, Scores(tc.CapsuleHead(12, 4, n_types=3, d=4))),
        entropy,
    ),
}


class Scores(torch.nn.Module):
    """The scores of a capsule head on a small backbone."""

    def __init__(self, head: tc.CapsuleHead) -> None:
        super().__init__()
        self.backbone = small(1)
        self.head = head

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.head(self.backbone(images)).scores
        return scores


def curve(family: str) -> list[float]:
    """Losses of 20 steps of Adam on four noisy pictures of bars, in float64."""
    torch.manual_seed(0)
    make, loss_of = FAMILIES[family]
    network = make().double()
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    side = network.image_shape[1]
    losses = []
    for _ in range(20):
        targets = torch.arange(8) % 4
        images = 0.2 * torch.rand(8, 1, side, side).double()
        for image, k in zip(images, targets.tolist(), strict=True):
            at = side // 4 * k + 1
            image[0, at : at + 2] += 0.8
        loss = loss_of(network(images, targets), targets, images)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("family", FAMILIES)
def test_twenty_steps_reproduce_the_recorded_curve(family: str) -> None:
    recorded = json.loads(CURVES.read_text())[family]
    assert curve(family) == pytest.approx(recorded, rel=1e-6)
    assert recorded[-1] < recorded[0]


if __name__ == "__main__":
    torch.set_num_threads(1)
    curves = {family: curve(family) for family in FAMILIES}
    CURVES.write_text(json.dumps(curves, indent=1) + "\n")
