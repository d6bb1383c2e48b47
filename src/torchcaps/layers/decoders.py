"""Decoders: an image from the pose of one class capsule.

In training the capsule of the true class is decoded, at test time that of the predicted class, as
Zhao 2020 says. Sabour 2017 and Choi 2019 describe training only, and their code takes the label at
test time too. :meth:`Decoder.decode` decodes any class, for example several in one image.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchcaps.errors import InputError
from torchcaps.functional import check_classes

ImageShape = tuple[int, int, int]


class Decoder(nn.Module, ABC):
    """Base class of the decoders, which choose a class capsule and draw it as an image.

    Args:
        n_classes: class capsules j.
        d: size of their poses.
        image_shape: channels, height and width of the image.
    """

    def __init__(self, n_classes: int, d: int, image_shape: ImageShape) -> None:
        super().__init__()
        if not isinstance(image_shape, tuple) or len(image_shape) != 3:
            raise ValueError(f"image_shape must be (channels, height, width), not {image_shape!r}")
        if n_classes < 1 or d < 1 or min(image_shape) < 1:
            raise ValueError(
                f"a decoder needs at least one class, pose entry and pixel, not {n_classes} "
                f"classes with poses of {d} and images of {tuple(image_shape)}"
            )
        self.n_classes = n_classes
        self.d = d
        self.image_shape = image_shape

    def forward(self, poses: Tensor, scores: Tensor, targets: Tensor | None = None) -> Tensor:
        """Return images ``[b c h w]`` drawn from class poses ``[b j e]``.

        Args:
            poses: poses of the class capsules.
            scores: ``[b j]``; at test time the capsule with the highest is decoded.
            targets: class numbers ``[b]``, needed in training and not looked at otherwise.
        """
        if scores.shape != poses.shape[:2]:
            raise ValueError(
                f"scores {list(scores.shape)} must be one per class pose {list(poses.shape[:2])}"
            )
        if not self.training:
            return self.decode(poses, scores.argmax(dim=-1))
        if targets is None:
            raise ValueError(
                "in training the decoder reconstructs from the true class: pass targets, or call "
                "eval() to reconstruct from the predicted one"
            )
        return self.decode(poses, targets)

    def decode(self, poses: Tensor, chosen: Tensor) -> Tensor:
        """Return images ``[b c h w]`` drawn from the capsules of the chosen classes ``[b]``."""
        if poses.shape[1:] != (self.n_classes, self.d):
            raise ValueError(
                f"the decoder takes poses [b {self.n_classes} {self.d}], not {list(poses.shape)}"
            )
        if chosen.shape != poses.shape[:1] or chosen.is_floating_point():
            raise ValueError(
                f"chosen classes must be {poses.shape[0]} integers, not {chosen.dtype} "
                f"{list(chosen.shape)}"
            )
        check_classes(chosen, self.n_classes)
        images: Tensor = self.pixels(poses, chosen).reshape(-1, *self.image_shape)
        return images

    @abstractmethod
    def pixels(self, poses: Tensor, chosen: Tensor) -> Tensor:
        """Return pixel values between 0 and 1 from the capsules of the chosen classes."""


@final
class FullyConnectedDecoder(Decoder):
    """Sabour 2017, Fig. 2: all capsules but the chosen one masked to zero, then linear layers.

    Args:
        n_classes: class capsules j.
        d: size of their poses.
        image_shape: channels, height and width of the image.
        hidden: sizes of the hidden layers; Sabour has 512 and 1024, Choi 512 and 512.
    """

    def __init__(
        self,
        n_classes: int,
        d: int,
        image_shape: ImageShape,
        *,
        hidden: Sequence[int] = (512, 1024),
    ) -> None:
        super().__init__(n_classes, d, image_shape)
        channels, height, width = image_shape
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise((n_classes * d, *hidden)):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        last = hidden[-1] if hidden else n_classes * d
        self.layers = nn.Sequential(
            *layers, nn.Linear(last, channels * height * width), nn.Sigmoid()
        )

    def pixels(self, poses: Tensor, chosen: Tensor) -> Tensor:
        """Decode the masked capsules."""
        is_chosen = torch.arange(self.n_classes, device=chosen.device) == chosen[:, None]
        masked = torch.where(is_chosen[..., None], poses, 0)
        pixels: Tensor = self.layers(masked.flatten(1))
        return pixels


@final
class DenseNorm(nn.BatchNorm1d):
    """Batch normalization that takes a batch of one, too: by the running statistics."""

    def forward(self, features: Tensor) -> Tensor:
        """Normalize ``[b n]``."""
        if features.shape[0] > 1:
            return super().forward(features)
        return F.batch_norm(
            features, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
        )


@final
class DeconvolutionDecoder(Decoder):
    """Zhao 2020, section 4.3: only the chosen pose, then three transposed convolutions.

    Slopes and batch normalization have the defaults of Keras, in which the authors wrote it.

    Args:
        n_classes: class capsules j.
        d: size of their poses.
        image_shape: channels, height and width of the image; both sides multiples of 4.
        width: channels of the first feature map; each transposed convolution halves them.
    """

    def __init__(self, n_classes: int, d: int, image_shape: ImageShape, *, width: int = 64) -> None:
        super().__init__(n_classes, d, image_shape)
        channels, image_height, image_width = image_shape
        if image_height % 4 or image_width % 4:
            raise InputError(
                f"the deconvolution decoder doubles its map twice: {image_height}x{image_width} "
                "images must have sides that are multiples of 4"
            )
        if width < 4 or width % 4:
            raise ValueError(f"width must be a multiple of 4, not {width}")
        height, across = image_height // 4, image_width // 4
        self.layers = nn.Sequential(
            nn.Linear(d, height * across * width),
            DenseNorm(height * across * width, eps=1e-3, momentum=0.01),
            nn.LeakyReLU(0.3),
            nn.Unflatten(1, (width, height, across)),
            nn.ConvTranspose2d(width, width // 2, 5, padding=2),
            nn.BatchNorm2d(width // 2, eps=1e-3, momentum=0.01),
            nn.LeakyReLU(0.3),
            nn.ConvTranspose2d(width // 2, width // 4, 5, stride=2, padding=2, output_padding=1),
            nn.BatchNorm2d(width // 4, eps=1e-3, momentum=0.01),
            nn.LeakyReLU(0.3),
            nn.ConvTranspose2d(width // 4, channels, 5, stride=2, padding=2, output_padding=1),
            nn.Sigmoid(),
        )

    def pixels(self, poses: Tensor, chosen: Tensor) -> Tensor:
        """Decode the chosen pose alone."""
        index = chosen.long().view(-1, 1, 1).expand(-1, 1, self.d)
        pixels: Tensor = self.layers(poses.gather(1, index).squeeze(1))
        return pixels
