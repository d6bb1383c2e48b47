"""Small networks on generated digits and signals, and on MNIST: minutes on a laptop."""

from functools import partial
from typing import Any

from torchcaps.data import Normalize, find
from torchcaps.models.demo import POSE_STD
from torchcaps.recipes.base import Published, Recipe
from torchcaps.recipes.losses import (
    cross_entropy,
    log_likelihood,
    margin,
    spread,
    squared_error,
)
from torchcaps.recipes.schedules import one_cycle
from torchcaps.recipes.tools.presets import DIGITS

MNIST: dict[str, Any] = {
    "dataset": "mnist",
    "train_transforms": (DIGITS,),
    "reconstruction_weight": 0.005,
    "batch_size": 128,
    "limit": 0,
    "epochs": 8,
    "hold_out": False,
}
"""What the networks on MNIST change: all 60,000 images, sharper reconstructions."""


def demo() -> list[Recipe]:
    """Return one recipe per routing on strokes and on MNIST, one of poses and one of signals."""
    strokes = _strokes()
    return [*strokes, *(_on_mnist(recipe) for recipe in strokes), _pose(), _waveforms()]


def _pose() -> Recipe:
    return Recipe(
        "demo/strokes-pose",
        "demo/strokes-pose",
        "strokes",
        Published("no paper", is_row=False),
        targets="pose",
        measure="r2",
        loss=partial(squared_error, std=POSE_STD),
        lr=6e-3,
        schedule=partial(one_cycle, peak=0.3),
        epochs=1,
        batch_size=32,
        limit=32_000,
        precision="float32",
    )


def _waveforms() -> Recipe:
    facts = find("waveforms")
    normalize = Normalize(facts.mean, facts.std)
    return Recipe(
        "demo/waveforms",
        "demo/waveforms",
        "waveforms",
        Published("no paper", is_row=False),
        loss=margin,
        train_transforms=(normalize,),
        test_transforms=(normalize,),
        lr=3e-3,
        schedule=partial(one_cycle, peak=0.3),
        epochs=5,
        batch_size=64,
        precision="float32",
        hold_out=False,
    )


def _on_mnist(recipe: Recipe) -> Recipe:
    return recipe.variant(recipe.name.replace("strokes", "mnist"), **MNIST)


def _strokes() -> list[Recipe]:
    dynamic = Recipe(
        "demo/strokes-dynamic",
        "demo/strokes-dynamic",
        "strokes",
        Published("no paper", is_row=False),
        loss=margin,
        reconstruction_weight=0.0005,
        lr=3e-3,
        schedule=partial(one_cycle, peak=0.3),
        epochs=1,
        batch_size=64,
        limit=19_200,
        precision="float32",
    )

    def other(routing: str, **changes: Any) -> Recipe:
        name = f"demo/strokes-{routing}"
        return dynamic.variant(name, network=name, **changes)

    # steep from the start: the run is short
    steep = partial(spread, sigmoid_steps=1_500_000)
    return [
        dynamic,
        other("em", loss=steep),
        other("inverted-attention", loss=cross_entropy),
        other("attention"),
        other("pairwise", loss=cross_entropy),
        other("discriminative", coefficient_lr=1e-3),
        other("self", loss=log_likelihood, lr=1e-2),
        other("self-attention"),
        other("variational", loss=steep),
    ]
