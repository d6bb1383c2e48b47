"""Segmentation of two overlapping objects (Sabour 2017, section 6.2; Zhao 2020, Table 5).

The two capsules are decoded one at a time. Every pixel with ink in a drawing belongs to that
object, so a pixel may belong to both. The paper counts any non-zero intensity as ink. A sigmoid is
never zero, so ink here is an intensity of at least ``threshold``, also in the true objects.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from torchcaps.analysis.outputs import evaluating
from torchcaps.analysis.reconstruction import class_poses, decoder_of
from torchcaps.errors import InputError
from torchcaps.models import Network

Choice = Literal["labels", "predictions", "absent"]


@dataclass(frozen=True, eq=False)
class Segmentation:
    """Two decoded objects of each image.

    Attributes:
        images: ``[b c h w]``.
        labels: ``[b 2]``, the true classes.
        predictions: ``[b 2]``, the classes with the two highest scores, in the order of the labels
            that they match.
        chosen: ``[b 2]``, the classes decoded.
        drawings: ``[b 2 c h w]``.
        iou: ``[b 2]``, intersection over union with the ink of the corresponding true object.
        ink: ``[b 2]``, ink of each drawing relative to that of the corresponding true object.
    """

    images: Tensor
    labels: Tensor
    predictions: Tensor
    chosen: Tensor
    drawings: Tensor
    iou: Tensor
    ink: Tensor


def iou(drawings: Tensor, truth: Tensor, *, threshold: float = 0.5) -> Tensor:
    """Return the intersection over union of the ink of ``[... c h w]``; 1 if neither has any."""
    ours, theirs = ((image.amax(dim=-3) >= threshold).flatten(-2) for image in (drawings, truth))
    both = (ours & theirs).sum(dim=-1)
    either = (ours | theirs).sum(dim=-1)
    return torch.where(either > 0, both / either.clamp_min(1), 1.0)


def segment(
    network: Network,
    images: Tensor,
    labels: Tensor,
    targets: Tensor,
    *,
    choice: Choice = "labels",
    threshold: float = 0.5,
) -> Segmentation:
    """Decode two classes of every image and compare them with the true objects.

    Args:
        network: a network with a decoder.
        images: ``[b c h w]``, two objects each.
        labels: ``[b 2]``.
        targets: ``[b 2 c h w]``, each object alone.
        choice: decode the labels, the two predictions, or the first label and the likeliest class
            that is neither a label nor a prediction (the * of Fig. 5).
        threshold: smallest intensity that counts as ink.
    """
    if labels.dim() != 2 or labels.shape[1] != 2 or int(labels.min()) < 0:
        raise InputError("segmentation needs images with two objects each, labels [b 2]")
    decoder = decoder_of(network)
    poses, scores = class_poses(network, images)
    predictions = match_order(scores.topk(2, dim=-1).indices, labels)
    if choice == "labels":
        chosen = labels
    elif choice == "predictions":
        chosen = predictions
    elif choice == "absent":
        others = scores.scatter(1, torch.cat([labels, predictions], dim=1), -torch.inf)
        chosen = torch.stack([labels[:, 0], others.argmax(dim=-1)], dim=1)
    else:
        raise ValueError(f'choice must be "labels", "predictions" or "absent", not {choice!r}')
    with evaluating(network):
        drawings = torch.stack([decoder.decode(poses, one) for one in chosen.unbind(dim=1)], dim=1)
    overlap = iou(drawings, targets, threshold=threshold)
    ink = drawings.flatten(2).sum(dim=-1) / targets.flatten(2).sum(dim=-1).clamp_min(1e-6)
    return Segmentation(images, labels, predictions, chosen, drawings, overlap, ink)


def match_order(predictions: Tensor, labels: Tensor) -> Tensor:
    """Swap two predictions ``[b 2]`` where that matches more of the labels."""
    straight = (predictions == labels).sum(dim=1)
    crossed = (predictions.flip(1) == labels).sum(dim=1)
    return torch.where((crossed > straight)[:, None], predictions.flip(1), predictions)
