"""A capsule head for anyone's backbone."""

from typing import final

import torch
from torch import Tensor, nn

from torchcaps.capsules import Capsules, Output
from torchcaps.checks import check_sizes
from torchcaps.layers.linear import ClassCapsules
from torchcaps.layers.primary import PrimaryCapsules
from torchcaps.routing import defaults
from torchcaps.routing.base import RoutingFactory


@final
class CapsuleHead(nn.Module):
    """Class capsules on top of any features: a map ``[b c h w]`` or tokens ``[b n c]``.

    A 1x1 convolution makes primary capsules at every position; class capsules share their weights
    over positions, so that maps of any size work, and know where a child is by coordinate addition.
    A routing that learns something about each child (attention, discriminative) is local: it routes
    at every position among the types there, without coordinates.

    ``scores`` are logits for the default, two steps of inverted attention: train them with
    cross-entropy. Other routings score as their papers do: by lengths (dynamic, attention,
    discriminative: margin loss), activations (EM: spread loss) or agreement (pairwise:
    cross-entropy).

    With ``outputs=k`` the head predicts k numbers instead: a linear layer reads them from the poses
    of all class capsules, and ``scores`` ``[b k]`` are these numbers. Train them with a squared
    error.

    Args:
        in_channels: channels of the features.
        n_classes: classes; with ``outputs`` the number of capsules that are read.
        routing: a routing class, or a partial of one.
        n_types: types of primary capsules.
        d: size of all poses.
        matrix: read poses as square matrices, with d times fewer weights.
        coordinates: add the position of a child to its vote; None does so where it suits the
            routing; see :class:`ClassCapsules`.
        outputs: numbers to predict from the poses; None scores the classes.

    Example:
        >>> head = tc.CapsuleHead(64, n_classes=7)
        >>> head(torch.rand(2, 64, 8, 8)).scores.shape
        torch.Size([2, 7])
        >>> tc.CapsuleHead(64, n_classes=4, outputs=3)(torch.rand(2, 64, 8, 8)).scores.shape
        torch.Size([2, 3])
    """

    def __init__(
        self,
        in_channels: int,
        n_classes: int,
        *,
        routing: RoutingFactory = defaults.HEAD,
        n_types: int = 32,
        d: int = 16,
        matrix: bool = True,
        coordinates: bool | None = None,
        outputs: int | None = None,
    ) -> None:
        super().__init__()
        check_sizes(in_channels=in_channels, n_classes=n_classes, n_types=n_types, d=d)
        if outputs is not None:
            check_sizes(outputs=outputs)
        self.classes = ClassCapsules(
            n_types, n_classes, d, d, routing=routing, matrix=matrix, coordinates=coordinates
        )
        built = self.classes.routing
        if built.weight_std is not None:
            nn.init.normal_(self.classes.weight, std=built.weight_std)
        self.primary = PrimaryCapsules.below(built, in_channels, n_types, d)
        is_classifier = outputs is None and built.scores_by == "logit"
        self.classifier = nn.Linear(d, 1) if is_classifier else None
        self.readout = None if outputs is None else nn.Linear(n_classes * d, outputs)
        self.in_channels = in_channels

    def forward(self, features: Tensor, mask: Tensor | None = None) -> Output:
        """Return scores ``[b n]``, class capsules and their couplings ``[b (h w i) n]``.

        With ``outputs=k`` the scores ``[b k]`` are the predicted numbers.

        Args:
            features: a map ``[b c h w]`` or tokens ``[b n c]``.
            mask: booleans ``[b h w]`` or ``[b n]``, False for padding, which then changes nothing.
                None means no padding. Attention libraries often mark padding by True: invert those.
        """
        if not isinstance(features, Tensor) or not features.is_floating_point():
            kind = features.dtype if isinstance(features, Tensor) else type(features).__name__
            raise ValueError(f"CapsuleHead takes a tensor of floats, not {kind}")
        tokens = features.dim() == 3
        if tokens:
            features = features.transpose(1, 2).unsqueeze(-1)
        if features.dim() != 4 or features.shape[1] != self.in_channels:
            raise ValueError(
                f"CapsuleHead takes a map [b {self.in_channels} h w] or tokens "
                f"[b n {self.in_channels}], not {list(features.shape)}"
            )
        if mask is not None:
            mask = _check_mask(mask, features, tokens=tokens)
            features = features.masked_fill(~mask[:, None], 0)
        routed = self.classes(self.primary(features), mask=mask)
        scores = routed.activations
        if self.classifier is not None:
            scores = self.classifier(routed.poses).squeeze(-1)
        if self.readout is not None:
            scores = self.readout(routed.poses.flatten(1))
        return Output(scores, Capsules(routed.poses, routed.activations), (routed.couplings,))


def _check_mask(mask: Tensor, features: Tensor, *, tokens: bool) -> Tensor:
    """Return the mask as ``[b h w]``; refuse one that does not fit the features."""
    b, _, height, width = features.shape
    expected = (b, height) if tokens else (b, height, width)
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != expected:
        what = f"{mask.dtype} {list(mask.shape)}" if isinstance(mask, Tensor) else repr(mask)
        raise ValueError(
            f"the mask of CapsuleHead must be booleans {list(expected)}, False for padding, "
            f"not {what}"
        )
    return mask[..., None] if tokens else mask
