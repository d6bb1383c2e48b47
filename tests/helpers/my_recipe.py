"""A recipe as a user writes it: a routing, a network and a recipe in a file of their own."""

from typing import ClassVar, Literal

from torch import Tensor, nn

import torchcaps as tc
from torchcaps.recipes import Published, Recipe
from torchcaps.recipes.losses import margin


class MeanRouting(tc.Routing):
    """A routing that averages its votes."""

    competes_over: ClassVar[Literal["parents", "children", "none"]] = "none"

    def forward(
        self, children: tc.Capsules, votes: tc.Votes | Tensor, parents: Tensor | None = None
    ) -> tc.Routed:
        """Average the votes."""
        dense = self.cast(votes)
        poses = tc.squash(dense.mean(dim=1))
        couplings = dense.new_full(dense.shape[:3], 1 / dense.shape[1])
        return tc.Routed(poses, tc.lengths(poses), couplings)


class TinyNet(tc.Network):
    """One convolution, primary capsules and class capsules."""

    def __init__(self, image_shape: tuple[int, int, int], n_classes: int) -> None:
        super().__init__(image_shape, n_classes)
        height, width = ((n - 9) // 4 // 2 for n in image_shape[1:])
        self.backbone = nn.Sequential(nn.Conv2d(image_shape[0], 8, 9, stride=4), nn.ReLU())
        self.primary = tc.PrimaryCapsules(8, 4, 4, kernel_size=2, stride=2)
        self.classes = tc.LinearCapsules(height * width * 4, n_classes, 4, 8, routing=MeanRouting)

    def forward(
        self, images: Tensor, targets: Tensor | None = None, *, couplings: bool = False
    ) -> tc.Output:
        """Return lengths of the class capsules."""
        routed = self.classes(self.primary(self.backbone(self.checked(images))))
        kept = (routed.couplings,) if couplings else ()
        return tc.Output(routed.activations, tc.Capsules(routed.poses, routed.activations), kept)


tc.register_network("me/tiny", TinyNet, image_shape=(1, 28, 28))

recipe = Recipe(
    "me/strokes",
    "me/tiny",
    "strokes",
    Published("no paper"),
    loss=margin,
    lr=3e-3,
    epochs=2,
    batch_size=32,
    limit=320,
    test_limit=100,
    precision="float32",
)


def wider() -> Recipe:
    """Return the recipe with larger batches."""
    return recipe.variant("me/strokes-wide", batch_size=64)
