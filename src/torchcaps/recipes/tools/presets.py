"""Parts that several recipes share: what a modern recipe changes, transforms, optimizers.

A modern recipe trains a published network, with the same parameters, by today's methods: one-cycle
learning rates, larger batches, stronger augmentation and averaged weights. It trains on all images
and takes the last epoch, so no epoch is chosen. It keeps the number that its paper prints.
Learning rates and lengths come from short trials of Tsai's and Sabour's networks; for the others
they are first guesses.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch

from torchcaps.data import Affine
from torchcaps.optim import Muon
from torchcaps.recipes.base import Recipe
from torchcaps.recipes.schedules import one_cycle

DIGITS = Affine(rotation=10, translation=2 / 28, scale=(0.9, 1.1), shear=0.1)
"""Small rotation, translation, scale and shear of a digit; pixels stay in 0..1."""

DIGITS_NOTES = "AdamW, one-cycle learning rate, small affine maps. All 60,000 images, last epoch."
PAIRS_NOTES = "Muon, one-cycle learning rate. New pairs are drawn every epoch from all 60,000 "
"digits, last epoch. "

NESTEROV = partial(torch.optim.SGD, momentum=0.9, nesterov=True)

MUON: dict[str, Any] = {
    "optimizer": Muon,
    "lr": 5e-3,
    "weight_decay": 4e-3,  # multiplied by a learning rate 2.5 times as high
    "batch_size": 256,
}


def modernize(recipe: Recipe, notes: str, **changes: Any) -> Recipe:
    """Return the modern variant of a published recipe; by default AdamW at 1e-3, batch 512."""
    defaults: dict[str, Any] = {
        "optimizer": torch.optim.AdamW,
        "lr": 1e-3,
        "weight_decay": 0.01,
        "decay_all": False,
        "schedule": one_cycle,
        "warmup": 0.0,
        "batch_size": 512,
        "norm_batch": 0,
        "average": 0.999,
        "hold_out": False,
        "compile": True,
    }
    return recipe.variant(f"{recipe.name}-modern", notes=notes, **{**defaults, **changes})


def named(recipes: Iterable[Recipe]) -> dict[str, Recipe]:
    """Return recipes by name."""
    return {recipe.name: recipe for recipe in recipes}
