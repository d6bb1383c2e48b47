"""Reconstructions from the capsule of the label and of the prediction (Sabour 2017, Fig. 3)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps.analysis.outputs import evaluating, in_parts
from torchcaps.analysis.subjects import Prepared
from torchcaps.errors import InputError
from torchcaps.layers import Decoder
from torchcaps.models import Network


@dataclass(frozen=True, eq=False)
class Reconstructions:
    """Reconstructions of some images.

    Attributes:
        images: ``[b c h w]``, as the network sees them.
        labels: ``[b]``.
        predictions: ``[b]``.
        from_label: ``[b c h w]``, decoded from the capsule of the true class.
        from_prediction: ``[b c h w]``, decoded from the capsule of the predicted class.
        error_label: ``[b]``, mean squared error per pixel of ``from_label``.
        error_prediction: ``[b]``, that of ``from_prediction``.
    """

    images: Tensor
    labels: Tensor
    predictions: Tensor
    from_label: Tensor
    from_prediction: Tensor
    error_label: Tensor
    error_prediction: Tensor

    def take(self, chosen: Tensor) -> "Reconstructions":
        """Return the images that an index or mask selects."""
        return Reconstructions(*(tensor[chosen] for tensor in vars(self).values()))

    @property
    def failures(self) -> "Reconstructions":
        """The misclassified images."""
        return self.take(self.predictions != self.labels)


def decoder_of(network: Network) -> Decoder:
    """Return the network's decoder; raise InputError if it has none."""
    for module in network.modules():
        if isinstance(module, Decoder):
            return module
    raise InputError(
        f"{network.name or type(network).__name__} has no decoder and reconstructs nothing: take "
        "a network with a decoder"
    )


def class_poses(network: Network, images: Tensor) -> tuple[Tensor, Tensor]:
    """Return poses of the class capsules ``[b n e]`` and scores ``[b n]``."""
    output = in_parts(network, images)
    if output.capsules is None:
        raise InputError(f"{network.name or type(network).__name__} has no class capsules")
    return output.capsules.poses, output.scores


def reconstructions(network: Network, images: Tensor, labels: Tensor) -> Reconstructions:
    """Decode every image from the capsules of its label and of its prediction."""
    decoder = decoder_of(network)
    poses, scores = class_poses(network, images)
    predictions = scores.argmax(dim=-1)
    with evaluating(network):
        true = torch.cat([decoder.decode(p, c) for p, c in _pairs(poses, labels)])
        guess = torch.cat([decoder.decode(p, c) for p, c in _pairs(poses, predictions)])
    if isinstance(network, Prepared):
        images = network.prepare(images)
    if true.shape != images.shape:
        raise InputError(
            f"the decoder draws {list(true.shape[1:])} and the images are {list(images.shape[1:])}"
        )
    errors = ((drawn - images).square().flatten(1).mean(dim=1) for drawn in (true, guess))
    return Reconstructions(images, labels, predictions, true, guess, *errors)


def _pairs(poses: Tensor, classes: Tensor) -> "zip[tuple[Tensor, Tensor]]":
    return zip(poses.split(250), classes.split(250), strict=True)
