"""Mazzia 2021: Efficient-CapsNet on MNIST, MultiMNIST and smallNORB, and a modern variant.

Settings are those of the authors' code: Adam with Keras' defaults, learning rate 0.0005 decayed by
0.97 an epoch down to 0.00005, batch size 16, 150 epochs. The mean squared error of the pixels
weighs 0.392 beside the margin loss. The code takes the epoch of the best test accuracy; here the
last epoch is scored.

Rows leave their number out: the one accuracy that we could verify is that of an ensemble, 99.84 %
on MNIST (Table 3, https://pmc.ncbi.nlm.nih.gov/articles/PMC8290018/table/Tab3). The copies of
Tables 2 and 4 there lack the numbers of Efficient-CapsNet.
"""

from functools import partial

import torch

from torchcaps.data import Affine, CenterCrop, Crop, Cutout, Sometimes
from torchcaps.recipes.base import Published, Recipe
from torchcaps.recipes.losses import margin
from torchcaps.recipes.schedules import exponential
from torchcaps.recipes.tools.presets import DIGITS, DIGITS_NOTES, modernize

STEPS_PER_EPOCH = 3_750
UNVERIFIED = "the paper's number could not be verified"


def _decay(epoch: int) -> partial[float]:
    """Return the authors' schedule for epochs of so many steps."""
    return partial(exponential, rate=0.97, every=epoch, steps=150 * epoch, floor=0.1)


def published() -> list[Recipe]:
    """Return one row per data set, and MNIST without the decoder."""
    mnist = Recipe(
        "mazzia2021/mnist",
        "mazzia2021/mnist",
        "mnist",
        Published("Table 2", what=UNVERIFIED),
        notes="Rotation, shift, squeeze and a 4x4 erased square have the ranges of the authors' "
        "code. It draws their sizes from a normal distribution; we draw them uniformly.",
        train_transforms=(
            Sometimes(Affine(rotation=30), 0.5),
            Affine(translation=0.1, scale=(0.85, 1.0)),
            Cutout(4),
        ),
        loss=margin,
        reconstruction_weight=0.392,
        reconstruction="mean",
        optimizer=partial(torch.optim.Adam, eps=1e-7),
        lr=5e-4,
        schedule=_decay(STEPS_PER_EPOCH),
        epochs=150,
        batch_size=16,
        hold_out=False,
    )
    return [mnist, *_variants(mnist)]


def _variants(mnist: Recipe) -> list[Recipe]:
    return [
        mnist.variant(
            "mazzia2021/mnist-plain",
            network="mazzia2021/mnist-plain",
            published=Published(
                "Table 2", what="no such row: the paper trains with the decoder", is_row=False
            ),
            notes="The paper's 161,824 parameters, without a decoder. Otherwise as "
            "mazzia2021/mnist.",
            reconstruction_weight=0.0,
        ),
        mnist.variant(
            "mazzia2021/multimnist",
            network="mazzia2021/multimnist",
            dataset="multimnist",
            published=Published("section on MultiMNIST", what=UNVERIFIED),
            notes="Digits shift by up to 6 pixels, as in the authors' code. Scored on 100,000 "
            "pairs, ten for each test digit.",
            train_transforms=(),
            shift=6,
            test_draws=10,
            measure="top2",
        ),
        mnist.variant(
            "mazzia2021/smallnorb",
            network="mazzia2021/smallnorb",
            dataset="smallnorb",
            published=Published("Table 4", what=UNVERIFIED),
            notes="48x48 patches of 64x64 images. The authors' code also changes brightness and "
            "contrast and standardizes images, which a decoder of pixels in 0 to 1 rules out.",
            resize=64,
            train_transforms=(Crop(48),),
            test_transforms=(CenterCrop(48),),
            schedule=_decay(1_519),
        ),
    ]


def modern() -> list[Recipe]:
    """Return the modern variants."""
    mnist = published()[0]
    digits = modernize(mnist, DIGITS_NOTES, train_transforms=(DIGITS,), epochs=200, lr=2e-3)
    return [digits]
