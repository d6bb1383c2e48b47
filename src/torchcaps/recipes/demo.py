"""Small networks on digits drawn by `strokes`: no files, a minute or less on a laptop."""

from functools import partial
from typing import Any

from torchcaps.recipes.base import Published, Recipe
from torchcaps.recipes.losses import cross_entropy, log_likelihood, margin, spread
from torchcaps.recipes.schedules import one_cycle


def demo() -> list[Recipe]:
    """One recipe per routing."""
    dynamic = Recipe(
        "demo/strokes-dynamic",
        "demo/strokes-dynamic",
        "strokes",
        Published("no paper"),
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
    ]
