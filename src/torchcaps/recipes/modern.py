"""The headline rows trained as one would today: same network, same parameters.

One-cycle learning rates over larger batches, stronger augmentation, averaged weights. Every
training image is used and the last epoch taken, at which the learning rate has come down to
nothing: there is no epoch to choose. Each row keeps the number its paper prints. Rates and lengths
come from short trials of the Tsai and the Sabour network and are first guesses for the others.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from torchcaps.data import (
    Affine,
    Channels,
    Cutout,
    Elastic,
    Flip,
    Normalize,
    PadCrop,
    Shift,
    Sometimes,
    Standardize,
    find,
)
from torchcaps.optim import Muon
from torchcaps.recipes.base import Recipe
from torchcaps.recipes.choi2019 import choi
from torchcaps.recipes.sabour2017 import SCORED, sabour
from torchcaps.recipes.schedules import one_cycle
from torchcaps.recipes.tsai2020 import NORMALIZE, tsai
from torchcaps.recipes.yang2021 import yang
from torchcaps.recipes.zhao2020 import zhao

__all__ = ["modern"]

DIGITS = Affine(rotation=10, translation=2 / 28, scale=(0.9, 1.1), shear=0.1)
"""A little of everything a hand does; pixels stay in 0..1."""

SHARP_DIGITS = (
    Shift(2),
    Sometimes(Affine(rotation=10, scale=(0.9, 1.1), shear=0.1), 0.4),
    Sometimes(Elastic(1.5, 5), 0.4),
)
"""Whole pixels for all; two of five digits are rotated, two of five bent, the rest stay sharp."""

Row = Callable[..., Recipe]

SGD = partial(torch.optim.SGD, momentum=0.9, nesterov=True)


def modern() -> list[Recipe]:
    """The modern variants."""
    published = {
        recipe.name: recipe
        for recipes in (sabour(), tsai(), choi(), zhao(), yang())
        for recipe in recipes
    }

    def row(name: str, notes: str, **changes: Any) -> Recipe:
        """By default Adam with decoupled decay, to 1e-3."""
        settings: dict[str, Any] = {
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
        return published[name].variant(f"{name}-modern", notes=notes, **{**settings, **changes})

    return [*_digits(row), *_overlapping(row), *_pictures(row)]


def _digits(row: Row) -> list[Recipe]:
    notes = "AdamW, one cycle, small affine maps; all 60,000 images, last epoch."
    recipes = [
        row(
            "sabour2017/mnist",
            "AdamW, one cycle, shifts by whole pixels, two of five digits rotated a little, two of "
            "five bent; all 60,000 images, last epoch.",
            train_transforms=SHARP_DIGITS,
            batch_size=256,
            lr=2e-3,
            epochs=200,
        ),
        row("choi2019/mnist", notes, train_transforms=(DIGITS,), epochs=100, batch_size=256),
    ]
    for penalty in ("l1", "l2"):
        name = f"yang2021/mnist-{penalty}"
        settings = {"coefficient_lr": 5e-5}  # a way of 0.3 in all, as far as on other sets
        recipes.append(row(name, notes, train_transforms=(DIGITS,), epochs=100, **settings))
    return recipes


def _overlapping(row: Row) -> list[Recipe]:
    facts = find("diverse_multimnist")
    normalize = Normalize(facts.mean * 3, facts.std * 3)
    bent = Sometimes(Affine(rotation=10, scale=(0.9, 1.1), shear=0.1), 0.5)
    drawn = "one cycle; pairs drawn anew from all 60,000 digits, last epoch."
    settings = {
        "optimizer": Muon,
        "lr": 5e-3,
        "weight_decay": 4e-3,  # times a rate 2.5 times as high
        "batch_size": 256,
    }
    recipes = [
        row(
            "sabour2017/multimnist",
            f"Muon, {drawn} After 7 of 20 epochs 86.6 % of the held-out pairs were right, 83.6 "
            f"with AdamW at 0.004.{SCORED}",
            epochs=500,
            **settings,
        ),
    ]
    for pose in ("matrix", "vector"):
        recipes.append(
            row(
                f"tsai2020/diversemultimnist-{pose}",
                f"Muon, {drawn} Half of the images go through a small affine map. In a network a "
                "tenth as wide Muon had 53.5 % of the held-out images right after 600 steps of "
                "128, AdamW 29.2 at 0.001 and 50.6 at 0.01.",
                train_transforms=(bent, Channels(3), normalize),
                test_transforms=(Channels(3), normalize),
                epochs=150,
                **settings,
            )
        )
    return recipes


def _pictures(row: Row) -> list[Recipe]:
    tsai_notes = (
        "SGD with Nesterov momentum, one cycle to 0.4, batch 512, label smoothing 0.1, a 14x14 "
        "cutout; all 50,000 images, last epoch."
    )
    zhao_notes = (
        "SGD with Nesterov momentum, one cycle to 0.4, batch 512, label smoothing 0.1, an 8x8 "
        "cutout; all images, last epoch."
    )
    choi_notes = "AdamW, one cycle, crops, flips and an 8x8 gray cutout; all 50,000, last epoch."
    tsai_settings = {"optimizer": SGD, "lr": 0.4, "weight_decay": 5e-4, "decay_all": True}
    zhao_settings = {
        "optimizer": SGD,
        "lr": 0.4,
        "weight_decay": 3e-4,
        "label_smoothing": 0.1,
        "train_transforms": (Standardize(), Flip(), PadCrop(4), Cutout(8)),
    }
    return [
        row(
            "tsai2020/cifar10-resnet",
            tsai_notes,
            train_transforms=(PadCrop(4), Flip(), NORMALIZE, Cutout(14)),
            label_smoothing=0.1,
            epochs=300,
            **tsai_settings,
        ),
        row("zhao2020/cifar10", zhao_notes, epochs=300, **zhao_settings),
        row("zhao2020/fashion-mnist", zhao_notes, epochs=200, **zhao_settings),
        row(
            "choi2019/cifar10",
            choi_notes,
            train_transforms=(PadCrop(4), Flip(), Cutout(8, fill=120)),
            epochs=200,
            batch_size=256,
        ),
    ]
