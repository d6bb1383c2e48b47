"""Sabour 2017, https://arxiv.org/abs/1710.09829: Table 1, sections 5.2 and 7.

Adam at TensorFlow's defaults with a learning rate that decays by 0.96 every 2,000 steps, batch
128; MNIST shifted by up to 2 pixels. The paper does not say how long it trains or how it chooses
the epoch; the authors' code trains on all images, for 300,000 steps on MNIST and 600,000 on
CIFAR-10, to which the epochs amount. The learning rate has come down to a 450th by then, and the
last epoch is scored. The convolutional network of section 5.2 (66 % on affNIST) has no recipe: the
paper says no more of it than that it pools and drops out.
"""

from functools import partial

from torchcaps.data import (
    Brightness,
    CenterCrop,
    Contrast,
    Crop,
    Flip,
    Shift,
    Standardize,
)
from torchcaps.recipes.base import Published, Recipe
from torchcaps.recipes.losses import binary_cross_entropy, cross_entropy, margin
from torchcaps.recipes.schedules import exponential

__all__ = ["SCORED", "decay", "sabour"]

decay = partial(exponential, rate=0.96, floor=1e-3)
"""The learning rate of the authors' code falls by 0.96 every so many steps, to 1e-6."""

TRIALS = "mean of 3 trials, the epoch's choice unsaid"
ONE = "one number, the epoch's choice unsaid"
SCORED = " Scored on 100,000 pairs, ten of each test digit, where the paper has 10 million."


def sabour() -> list[Recipe]:
    """Every row of Table 1, section 5.2 and section 7."""
    mnist = Recipe(
        "sabour2017/mnist",
        "sabour2017/mnist",
        "mnist",
        Published("Table 1", 99.75, 0.005, TRIALS),
        notes="300,000 steps as in the authors' code; the paper does not say how long it trains.",
        iterations=3,
        train_transforms=(Shift(2),),
        loss=margin,
        reconstruction_weight=0.0005,
        lr=1e-3,
        schedule=partial(decay, every=2_000),
        epochs=641,
        batch_size=128,
        hold_out=False,
    )
    return [
        mnist,
        mnist.variant(
            "sabour2017/mnist-1", published=Published("Table 1", 99.71, 0.011, TRIALS), iterations=1
        ),
        *_mnist_without_decoder(mnist),
        *_multimnist(mnist),
        *_affnist(mnist),
        *_other_sets(mnist),
    ]


def _mnist_without_decoder(mnist: Recipe) -> list[Recipe]:
    plain = mnist.variant(
        "sabour2017/mnist-plain",
        network="sabour2017/mnist-plain",
        published=Published("Table 1", 99.65, 0.036, TRIALS),
        reconstruction_weight=0.0,
    )
    baseline = plain.variant(
        "sabour2017/mnist-baseline",
        network="sabour2017/mnist-baseline",
        published=Published("Table 1", 99.61, what=ONE),
        notes="Steps and decay as for the capsule network; the paper names Adam only. The rate "
        "rises over the first epoch: at 0.001 the first step, over 100,352 inputs of the first "
        "hidden layer, could leave every unit of it dead.",
        iterations=None,
        loss=cross_entropy,
        warmup=1.0,
    )
    single = Published("Table 1", 99.66, 0.032, TRIALS)
    return [
        plain,
        plain.variant("sabour2017/mnist-plain-1", published=single, iterations=1),
        baseline,
    ]


def _multimnist(mnist: Recipe) -> list[Recipe]:
    """1,000 epochs show every digit with 1,000 partners, as the paper's 60 million pairs do."""
    multi = mnist.variant(
        "sabour2017/multimnist",
        network="sabour2017/multimnist",
        dataset="multimnist",
        published=Published("Table 1", 94.8, what=ONE + "; section 6.2 says 95.0"),
        notes="Pairs drawn anew every epoch, 54 million in all where the paper has 60; how often "
        "it shows them is unsaid. Decay ten times slower than on MNIST (section 6.2), to 0.4 of "
        "the first rate, so that the epoch is chosen on pairs of held-out digits. The "
        "reconstruction weighs 0.01, which is what the authors' code makes of the paper's 0.0005 "
        "(it halves the margin loss and takes its mean over classes): after 9 epochs 84.0 % of the "
        "held-out pairs are right with it, 82.2 with 0.0005." + SCORED,
        train_transforms=(),
        reconstruction_weight=0.01,
        test_draws=10,
        measure="top2",
        schedule=partial(decay, every=20_000),
        epochs=1_000,
        hold_out=True,
    )
    baseline = multi.variant(
        "sabour2017/multimnist-baseline",
        network="sabour2017/multimnist-baseline",
        published=Published("Table 1", 91.9, what=ONE),
        notes="The decay step was searched for and is not printed; the capsule network's here. The "
        "rate rises over the first epoch, as for MNIST's baseline." + SCORED,
        iterations=None,
        loss=binary_cross_entropy,
        warmup=1.0,
        reconstruction_weight=0.0,
    )
    single = Published("Table 1", 92.5, what=ONE)
    return [
        multi,
        multi.variant("sabour2017/multimnist-1", published=single, iterations=1),
        baseline,
    ]


def _affnist(mnist: Recipe) -> list[Recipe]:
    moved = mnist.variant(
        "sabour2017/affnist",
        network="sabour2017/affnist",
        dataset="expanded_mnist",
        test_dataset="affnist",
        published=Published("section 5.2", 79.0, what="stopped at 99.23 % on expanded MNIST"),
        notes="The paper stops early, at 99.23 % on the expanded test digits, and does not say "
        "when; 10 epochs here, the best of them on held-out expanded digits.",
        train_transforms=(),
        epochs=10,
        hold_out=True,
    )
    style = moved.variant(
        "sabour2017/affnist-style",
        test_dataset="affnist_style",
        published=Published("section 5.2", 79.0, what="on affNIST itself, stopped early"),
        notes="Scored on digits under affNIST's ranges of maps, which need no download; the "
        "paper's number is on affNIST itself. Else as sabour2017/affnist.",
    )
    return [moved, style]


def _other_sets(mnist: Recipe) -> list[Recipe]:
    cifar10 = mnist.variant(
        "sabour2017/cifar10",
        network="sabour2017/cifar10",
        dataset="cifar10",
        published=Published("section 7", 89.4, what="ensemble of 7, the epoch's choice unsaid"),
        notes="600,000 steps, crops, flips, brightness and contrast as in the authors' code, which "
        "has no decoder here; the paper says 24x24 patches.",
        train_transforms=(Crop(24), Flip(), Brightness(), Contrast(), Standardize()),
        test_transforms=(CenterCrop(24), Standardize()),
        reconstruction_weight=0.0,
        epochs=1_538,
        ensemble=7,
    )
    smallnorb = mnist.variant(
        "sabour2017/smallnorb",
        network="sabour2017/smallnorb",
        dataset="smallnorb",
        published=Published("section 7", 97.3, what=ONE),
        notes="Crops only, as the paper says: its code also changes brightness and contrast and "
        "standardizes, which a decoder of pixels in 0..1 rules out. 300,000 steps.",
        resize=48,
        train_transforms=(Crop(32),),
        test_transforms=(CenterCrop(32),),
        epochs=1_587,
    )
    svhn = mnist.variant(
        "sabour2017/svhn",
        network="sabour2017/svhn",
        dataset="svhn",
        published=Published("section 7", 95.7, what=ONE),
        notes="The paper gives the widths and nothing of the training: no augmentation, no decoder "
        "and 300,000 steps here.",
        train_transforms=(),
        reconstruction_weight=0.0,
        epochs=524,
    )
    return [cifar10, smallnorb, svhn]
