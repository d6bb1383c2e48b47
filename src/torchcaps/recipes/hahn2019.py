"""Hahn 2019: ResNet-20 with six heads on CIFAR-10 and SVHN.

Settings are those of the authors' code, at https://github.com/coder3000/SR-CapsNet: SGD at 0.1 with
momentum 0.9 and weight decay 1e-4, batch size 64, 350 epochs on CIFAR-10 and 200 on SVHN. The
learning rate is divided by 10 after 150 and 250 epochs, and after 100 and 150. A tenth of the
training images is held out to choose the epoch. Capsules train with the negative log-likelihood of
their activations, which dynamic and EM routing first scale to sum to one.

The experiments on smallNORB have a smaller network and new viewpoints in the test, and no recipe.
We could not verify the numbers of the paper, so that no row has one.
"""

from functools import partial

import torch

from torchcaps.data import Flip, Normalize, PadCrop
from torchcaps.recipes.base import Published, Recipe
from torchcaps.recipes.losses import (
    Loss,
    cross_entropy,
    log_likelihood,
    proportional_cross_entropy,
)
from torchcaps.recipes.schedules import milestones

UNVERIFIED = "the paper's number could not be verified"
CIFAR10 = Normalize((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
SVHN = Normalize((0.4310, 0.4302, 0.4463), (0.1965, 0.1984, 0.1992))
"""The statistics of the authors' code."""

LOSSES: dict[str, Loss] = {
    "self": log_likelihood,
    "dynamic": proportional_cross_entropy,
    "em": proportional_cross_entropy,
    "average": cross_entropy,
    "max": cross_entropy,
    "connected": cross_entropy,
}
"""The loss of each head."""


def published() -> list[Recipe]:
    """Return one row per data set and head."""
    cifar10 = Recipe(
        "hahn2019/cifar10",
        "hahn2019/resnet20-self",
        "cifar10",
        Published("CIFAR-10, ResNet-20", what=UNVERIFIED),
        notes="One layer of class capsules, the default of the authors' code.",
        train_transforms=(PadCrop(4), Flip(), CIFAR10),
        test_transforms=(CIFAR10,),
        optimizer=partial(torch.optim.SGD, momentum=0.9),
        lr=0.1,
        weight_decay=1e-4,
        schedule=partial(milestones, at=(150 / 350, 250 / 350)),
        epochs=350,
        batch_size=64,
    )
    svhn = cifar10.variant(
        "hahn2019/svhn",
        dataset="svhn",
        published=Published("SVHN, ResNet-20", what=UNVERIFIED),
        train_transforms=(PadCrop(4), SVHN),
        test_transforms=(SVHN,),
        schedule=partial(milestones, at=(100 / 200, 150 / 200)),
        epochs=200,
    )
    return [
        recipe.variant(f"{recipe.name}-{head}", network=f"hahn2019/resnet20-{head}", loss=loss)
        for recipe in (cifar10, svhn)
        for head, loss in LOSSES.items()
    ]
