"""Sabour 2017, https://arxiv.org/abs/1710.09829: Table 1 and section 7.

Adam at TensorFlow's defaults with a learning rate that decays by 0.96 every 2,000 steps, batch
128; MNIST shifted by up to 2 pixels. The paper does not say how long it trains or how it chooses
the epoch; the authors' code says 300,000 steps for MNIST.
"""

from functools import partial

from torchcaps.data import Shift
from torchcaps.recipes.base import Published, Recipe
from torchcaps.recipes.losses import margin
from torchcaps.recipes.schedules import exponential

__all__ = ["sabour"]


def sabour() -> list[Recipe]:
    """Every row of Table 1 and section 7."""
    mnist = Recipe(
        "sabour2017/mnist",
        "sabour2017/mnist",
        "mnist",
        Published("Table 1", 99.75, 0.005, "mean of 3 trials, epoch chosen unsaid"),
        iterations=3,
        train_transforms=(Shift(2),),
        loss=margin,
        reconstruction_weight=0.0005,
        lr=1e-3,
        schedule=partial(exponential, rate=0.96, every=2_000, floor=1e-3),
        epochs=640,
        batch_size=128,
    )
    return [mnist, mnist.variant("sabour2017/mnist-1", iterations=1)]
