"""Hinton 2018: smallNORB.

Images are resized to 48x48 and standardized. Training takes random 32x32 crops with random
brightness and contrast; the test takes one central crop. The text standardizes first. The authors'
code does it last, which cancels the brightness. Optimizer and decay are those of the authors' code.
The paper does not say how long it trains; the code stops at 2,000,000 steps.
"""

from functools import partial

from torchcaps.data import Brightness, CenterCrop, Contrast, Crop, Standardize
from torchcaps.recipes.base import Published, Recipe
from torchcaps.recipes.losses import spread
from torchcaps.recipes.schedules import exponential


def published() -> list[Recipe]:
    """Return the network of the paper, and the small one."""
    smallnorb = Recipe(
        "hinton2018/smallnorb",
        "hinton2018/smallnorb",
        "smallnorb",
        Published("section 5", 98.2, what="one crop, choice of the epoch not stated"),
        notes="300 epochs. The paper does not say how long it trains, and the authors' code "
        "stops after 2,000,000 steps, which are 5,900 epochs. The learning rate decays as over "
        "those steps. The margin rises linearly over the run.",
        iterations=3,
        resize=48,
        train_transforms=(Standardize(), Crop(32), Brightness(), Contrast()),
        test_transforms=(Standardize(), CenterCrop(32)),
        loss=spread,
        lr=0.01,
        weight_decay=2e-7,
        schedule=partial(exponential, rate=0.96, every=20_000, steps=2_000_000),
        epochs=300,
        batch_size=64,
    )
    small = smallnorb.variant(
        "hinton2018/smallnorb-small",
        network="hinton2018/smallnorb-small",
        published=Published("section 5", 97.8, what="one crop, choice of the epoch not stated"),
    )
    return [smallnorb, small]
