"""Networks for a laptop's processor: one of every routing for images, and one for signals."""

from collections.abc import Sequence
from functools import partial
from typing import final

import torch
from torch import Tensor, nn

from torchcaps.capsules import Capsules, Output
from torchcaps.errors import InputError
from torchcaps.layers import (
    CapsuleHead,
    Decoder,
    FullyConnectedDecoder,
    LinearCapsules,
    PrimaryCapsules,
)
from torchcaps.models.entry import MNIST, Entry
from torchcaps.models.network import ImageShape, Network
from torchcaps.models.parts.heads import class_layer
from torchcaps.routing import (
    ROUTINGS,
    DynamicRouting,
    EMRouting,
    InvertedAttentionRouting,
    RoutingFactory,
)
from torchcaps.routing.base import preview_routing

TUNED: dict[str, RoutingFactory] = {
    "em": partial(EMRouting, cost_scale=5.0),
    "inverted-attention": partial(InvertedAttentionRouting, iterations=2),
}
DEMO_ROUTINGS: dict[str, RoutingFactory] = {**ROUTINGS, **TUNED}
"""The routing of each demo network: the defaults of its class, but for those tuned here."""


POSE_MEAN = (0.0, 0.0, 0.0, 0.95, 0.95, 0.0, 2.52)
POSE_STD = (1.617, 1.617, 11.55, 0.1155, 0.1155, 0.1732, 0.6466)
"""Mean and standard deviation of the poses of `strokes`: pixels, degrees, factors and x per y."""

N_CAPSULES = 10
"""Class capsules that `PoseCapsNet` reads."""

SHORTEST_SIGNAL = 32
"""Values of the shortest signal that passes the convolutions."""


@final
class SmallCapsNet(Network):
    """Two convolutions, 8 types of primary capsules, one capsule per class, a small decoder.

    Args:
        image_shape: channels, height and width of the images.
        n_classes: classes.
        routing: a routing class, or a partial of one. Its attributes decide the rest: nonlinearity
            and activations of the primary capsules, and whether a shared linear classifier scores.
            If it competes over children, a convolutional transform keeps their types apart.
    """

    def __init__(
        self,
        image_shape: ImageShape,
        n_classes: int,
        *,
        routing: RoutingFactory,
    ) -> None:
        super().__init__(image_shape, n_classes)
        height, width = ((((n - 5) // 2 + 1) - 2 - 3) // 2 + 1 for n in image_shape[1:])
        if min(height, width) < 1:
            raise InputError(
                f"images of {image_shape[1]}x{image_shape[2]} are too small for SmallCapsNet: "
                "they must have at least 13x13 pixels"
            )
        self.backbone = nn.Sequential(
            nn.Conv2d(image_shape[0], 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU()
        )
        kind = preview_routing(routing)
        self.primary = PrimaryCapsules.below(kind, 32, 8, 8, kernel_size=3, stride=2)
        self.classes = class_layer(
            kind,
            routing,
            (height, width),
            n_types=8,
            n_classes=n_classes,
            d_child=8,
            d_parent=16,
        )
        self.classifier = nn.Linear(16, 1) if kind.scores_by == "logit" else None
        self.decoder: Decoder = FullyConnectedDecoder(n_classes, 16, image_shape, hidden=(128, 256))

    def forward(
        self, images: Tensor, targets: Tensor | None = None, *, couplings: bool = False
    ) -> Output:
        """Return scores, class capsules and reconstructions."""
        routed = self.classes(self.primary(self.backbone(self.checked(images))))
        # a convolutional transform gives its one position as a grid of 1x1
        poses = routed.poses.flatten(1, -2)
        scores = routed.activations.flatten(1)
        if self.classifier is not None:
            scores = self.classifier(poses).squeeze(-1)
        reconstruction = self.reconstruct(self.decoder, poses, scores, targets, 1)
        returned = (routed.couplings,) if couplings else ()
        return Output(scores, Capsules(poses, scores), returned, reconstruction)


@final
class SignalCapsNet(Network):
    """Three convolutions along a signal, 8 types of primary capsules, one capsule per class.

    Args:
        image_shape: channels, 1 and length of the signals.
        n_classes: classes.
        routing: a routing class, or a partial of one. If it scores by logits, a shared linear
            classifier reads the class capsules.
    """

    def __init__(self, image_shape: ImageShape, n_classes: int, *, routing: RoutingFactory) -> None:
        super().__init__(image_shape, n_classes)
        channels, height, length = image_shape
        if height != 1 or length < SHORTEST_SIGNAL:
            raise InputError(
                f"SignalCapsNet takes signals of height 1 and of {SHORTEST_SIGNAL} values or more, "
                f"not images of {height}x{length}"
            )
        kind = preview_routing(routing)
        self.backbone = nn.Sequential(
            nn.Conv2d(channels, 32, (1, 9), (1, 2), (0, 4)),
            nn.ReLU(),
            nn.Conv2d(32, 32, (1, 7), (1, 2), (0, 3)),
            nn.ReLU(),
            nn.Conv2d(32, 64, (1, 5), (1, 2), (0, 2)),
            nn.ReLU(),
        )
        self.primary = PrimaryCapsules.below(kind, 64, 8, 8, kernel_size=(1, 4), stride=(1, 2))
        positions = (-(-length // 8) - 4) // 2 + 1
        self.classes = LinearCapsules(positions * 8, n_classes, 8, 16, routing=routing)
        self.classifier = nn.Linear(16, 1) if kind.scores_by == "logit" else None

    def forward(
        self, images: Tensor, targets: Tensor | None = None, *, couplings: bool = False
    ) -> Output:
        """Return scores and class capsules."""
        routed = self.classes(self.primary(self.backbone(self.checked(images))))
        scores = routed.activations
        if self.classifier is not None:
            scores = self.classifier(routed.poses).squeeze(-1)
        returned = (routed.couplings,) if couplings else ()
        return Output(scores, Capsules(routed.poses, scores), returned)


@final
class PoseCapsNet(Network):
    """Two convolutions and a capsule head that predicts numbers, such as the pose of a digit.

    ``scores`` are the numbers in their own units.

    Args:
        image_shape: channels, height and width of the images.
        n_classes: how many numbers.
        mean: mean of each number over the training images.
        std: standard deviation of each number over the training images.
    """

    predicts = "numbers"

    def __init__(
        self,
        image_shape: ImageShape,
        n_classes: int,
        *,
        mean: Sequence[float],
        std: Sequence[float],
    ) -> None:
        super().__init__(image_shape, n_classes)
        if not len(mean) == len(std) == n_classes:
            raise InputError(f"this network predicts {len(mean)} numbers, not {n_classes}")
        self.backbone = nn.Sequential(
            nn.Conv2d(image_shape[0], 16, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(16, 32, 5, stride=2, padding=2),
            nn.ReLU(),
        )
        self.head = CapsuleHead(32, N_CAPSULES, n_types=8, outputs=n_classes)
        self.mean = nn.Buffer(torch.tensor(mean))
        self.std = nn.Buffer(torch.tensor(std))

    def forward(
        self, images: Tensor, targets: Tensor | None = None, *, couplings: bool = False
    ) -> Output:
        """Return the numbers as scores, and the capsules that they are read from."""
        output: Output = self.head(self.backbone(self.checked(images)))
        numbers = output.scores * self.std + self.mean
        return output._replace(scores=numbers, couplings=output.couplings if couplings else ())


def networks() -> dict[str, Entry]:
    """Return one small network per routing, and those of poses and of the `waveforms` data set."""
    small = {
        f"strokes-{name}": Entry(partial(SmallCapsNet, routing=routing), MNIST)
        for name, routing in DEMO_ROUTINGS.items()
    }
    signals = partial(SignalCapsNet, routing=DynamicRouting)
    poses = partial(PoseCapsNet, mean=POSE_MEAN, std=POSE_STD)
    return {
        **small,
        "strokes-pose": Entry(poses, MNIST, len(POSE_MEAN)),
        "waveforms": Entry(signals, (1, 1, 256), 8),
    }
