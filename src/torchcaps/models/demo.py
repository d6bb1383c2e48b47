"""A network small enough to train on a laptop's processor, for every routing alike."""

from collections.abc import Callable
from typing import final

from torch import Tensor, nn

from torchcaps.capsules import Capsules, Output
from torchcaps.layers import (
    ConvTransformCapsules,
    Decoder,
    FullyConnectedDecoder,
    LinearCapsules,
    PrimaryCapsules,
    Squash,
)
from torchcaps.models.network import ImageShape, Network
from torchcaps.routing import DynamicRouting, RoutingFactory

__all__ = ["SmallCapsNet"]


@final
class SmallCapsNet(Network):
    """Two convolutions, 8 types of primary capsules, one capsule per class, a small decoder.

    Args:
        image_shape: channels, height and width of the images.
        n_classes: classes.
        routing: a routing class, or a partial of one.
        nonlinearity: of the primary capsules.
        activations: give the primary capsules activations beside their poses, for EM routing.
        classifier: score by a linear classifier shared by the class capsules, as Tsai 2020 does,
            and not by what the routing gives as activation.
        transform: a convolutional transform that keeps the types apart, as Choi 2019 has it.
    """

    def __init__(
        self,
        image_shape: ImageShape,
        n_classes: int,
        *,
        routing: RoutingFactory = DynamicRouting,
        nonlinearity: Callable[[int, int], nn.Module] = Squash,
        activations: bool = False,
        classifier: bool = False,
        transform: bool = False,
    ) -> None:
        super().__init__(image_shape, n_classes)
        height, width = ((((n - 5) // 2 + 1) - 2 - 3) // 2 + 1 for n in image_shape[1:])
        if min(height, width) < 1:
            raise ValueError(
                f"images of {image_shape[1]}x{image_shape[2]} are too small for SmallCapsNet: "
                "they must have at least 13x13 pixels"
            )
        self.backbone = nn.Sequential(
            nn.Conv2d(image_shape[0], 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU()
        )
        self.primary = PrimaryCapsules(
            32, 8, 8, kernel_size=3, stride=2, nonlinearity=nonlinearity, activations=activations
        )
        self.classes: LinearCapsules | ConvTransformCapsules
        if transform:
            if height != width:
                raise ValueError(f"attention routing here needs square images, not {image_shape}")
            self.classes = ConvTransformCapsules(
                8, n_classes, 8, 16, kernel_size=height, routing=routing
            )
        else:
            self.classes = LinearCapsules(height * width * 8, n_classes, 8, 16, routing=routing)
        self.classifier = nn.Linear(16, 1) if classifier else None
        self.decoder: Decoder = FullyConnectedDecoder(n_classes, 16, image_shape, hidden=(128, 256))

    def forward(
        self, images: Tensor, targets: Tensor | None = None, *, couplings: bool = False
    ) -> Output:
        """Scores, class capsules and reconstructions."""
        routed = self.classes(self.primary(self.backbone(self.checked(images))))
        # a convolutional transform gives its one position as a grid of 1x1
        poses = routed.poses.flatten(1, -2)
        scores = routed.activations.flatten(1)
        if self.classifier is not None:
            scores = self.classifier(poses).squeeze(-1)
        reconstruction = self.reconstruct(self.decoder, poses, scores, targets, 1)
        kept = (routed.couplings,) if couplings else ()
        return Output(scores, Capsules(poses, scores), kept, reconstruction)
