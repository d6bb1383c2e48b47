"""A small network for one-dimensional signals, which are images of height 1."""

from functools import partial
from typing import final

from torch import Tensor, nn

from torchcaps.capsules import Capsules, Output
from torchcaps.errors import InputError
from torchcaps.layers import LinearCapsules, PrimaryCapsules
from torchcaps.models.entry import Entry
from torchcaps.models.network import ImageShape, Network
from torchcaps.routing import DynamicRouting, RoutingFactory
from torchcaps.routing.base import preview_routing

SHORTEST = 32


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
        if height != 1 or length < SHORTEST:
            raise InputError(
                f"SignalCapsNet takes signals of height 1 and {SHORTEST} values or more, not "
                f"images of {height}x{length}"
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


def networks() -> dict[str, Entry]:
    """Return the network of the `waveforms` data set."""
    make = partial(SignalCapsNet, routing=DynamicRouting)
    return {"waveforms": Entry(make, (1, 1, 256), 8)}
