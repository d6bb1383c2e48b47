"""Controls: recipes that change one thing to settle a finding of ``docs/papers/audit.md``.

Their names end in ``-control-`` and what they change, or in ``-routed``. They have no published
number. The page names the finding that each of them settles.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from torchcaps.recipes.base import Published, Recipe
from torchcaps.recipes.losses import Loss, margin, spread

FROZEN = 1e-12
"""Learning rate at which a coefficient moves by less than 1e-7 in a whole run."""


def controls(recipes: Mapping[str, Recipe]) -> list[Recipe]:
    """Return the controls of recipes, by name."""
    return [
        *_loss_scale(recipes),
        *_couplings(recipes),
        *_vector_poses(recipes),
        *_own_losses(recipes),
        *_coefficients(recipes),
    ]


def _finding(finding: str, what: str) -> Published:
    """Return what stands in place of a paper's number."""
    return Published(f"finding {finding} of the audit", what=what, is_row=False)


def _control(recipe: Recipe, what: str, change: str, finding: str, **changes: Any) -> Recipe:
    """Return a recipe with one change."""
    return recipe.variant(
        f"{recipe.name}-control-{what}",
        published=_finding(finding, "a control; nothing printed"),
        notes=f"As {recipe.name}, with one change: {change}.",
        **changes,
    )


def _loss_scale(recipes: Mapping[str, Recipe]) -> list[Recipe]:
    """Return Sabour's rows in the loss scale of the authors' code."""
    change = "the margin loss is divided by 20, as the authors' code does"
    return [
        _control(
            recipes[f"sabour2017/{name}"],
            "code-scale",
            change,
            "S4",
            loss=partial(margin, scale=1 / 20),
        )
        for name in ("mnist", "mnist-plain", "multimnist")
    ]


def routed(recipe: Recipe, network: str) -> Recipe:
    """Return a recipe whose couplings leave uniform.

    Weight decay on vote weights, whose size LayerNorm hides from the loss, makes agreements vanish.
    """
    return recipe.variant(
        recipe.name.removesuffix("-modern") + "-routed",
        network=network,
        published=_finding("T3", "couplings that decide; not published"),
        notes=f"As {recipe.name} with three changes that let couplings leave uniform: no weight "
        "decay on vote weights, norms and biases; agreements without the scale of 1/sqrt(d), as "
        "Eq. 2 prints them; 3 iterations.",
        iterations=3,
        decay_all=False,
        decay_votes=False,
    )


def _couplings(recipes: Mapping[str, Recipe]) -> list[Recipe]:
    """Return Tsai's networks with couplings that decide, and what lies between."""
    cifar10 = recipes["tsai2020/cifar10-resnet-modern"]
    pairs = recipes["tsai2020/diversemultimnist-matrix-modern"]
    spared = "no weight decay on vote weights, norms and biases"
    rows = [
        routed(cifar10, "tsai2020/cifar10-resnet-unscaled"),
        routed(pairs, "tsai2020/diversemultimnist-matrix-unscaled"),
    ]
    for recipe in (cifar10, pairs):
        few = _control(
            recipe, "uniform", "1 iteration, which couples uniformly", "T3", iterations=1
        )
        rows.append(few)
        rows += [
            _control(
                recipe,
                f"spared-{iterations}",
                f"{spared}; {iterations} iterations",
                "T3",
                iterations=iterations,
                decay_all=False,
                decay_votes=False,
            )
            for iterations in (2, 4)
        ]
    change = "the first 1,000 training images, 50 times as many epochs"
    rows += [
        _control(recipe, "1000-images", change, "T3", limit=1_000, epochs=50 * recipe.epochs)
        for recipe in (cifar10, rows[0])
    ]
    return rows


def _vector_poses(recipes: Mapping[str, Recipe]) -> list[Recipe]:
    """Return Tsai's vector poses on overlapping digits, one change at a time, for 80 epochs."""
    short = recipes["tsai2020/diversemultimnist-vector"]
    change = partial(_control, short, finding="T5", epochs=80, test_draws=10)
    plain_sgd = partial(torch.optim.SGD, momentum=0.0)
    return [
        change("draws", "10 draws of the test images, 80 epochs"),
        change("no-momentum", "SGD without momentum, 80 epochs", optimizer=plain_sgd),
        change("no-decay", "no weight decay, 80 epochs", weight_decay=0.0),
        change("1-iteration", "1 iteration, 80 epochs", iterations=1),
        change("3-iterations", "3 iterations, 80 epochs", iterations=3),
        change(
            "extra",
            "a further layer of ten capsules, 80 epochs",
            network="tsai2020/diversemultimnist-vector-extra",
        ),
    ]


def _own_losses(recipes: Mapping[str, Recipe]) -> list[Recipe]:
    """Return Zhao's comparisons with the loss of each routing's own paper."""
    pairs: list[tuple[str, Loss]] = [
        ("affnist-style-dynamic", margin),
        ("affnist-style-em", spread),
    ]
    pairs += [(f"smallnorb-dynamic-{n}", margin) for n in (1, 2, 3)]
    pairs += [(f"smallnorb-em-{n}", spread) for n in (1, 2, 3)]
    change = "the loss of the routing's own paper instead of cross-entropy"
    return [
        _control(recipes[f"zhao2020/{name}"], "own-loss", change, "Z3", loss=loss)
        for name, loss in pairs
    ]


def _coefficients(recipes: Mapping[str, Recipe]) -> list[Recipe]:
    """Return Yang's coefficients with more and less room to move, and other starts."""
    rows = []
    base = recipes["yang2021/fashion-mnist-l1"]
    # the learning rate of the recipe lets a coefficient move by 0.48 in total
    for travel in (0.0, 0.05, 0.5, 5.0):
        rows.append(
            _control(
                base,
                f"travel-{travel:g}",
                f"a coefficient moves by {travel:g} at most",
                "Y1",
                coefficient_lr=base.coefficient_lr * travel / 0.48 or FROZEN,
            )
        )
    rows += [
        _control(
            recipes[f"yang2021/fashion-mnist-{penalty}"],
            f"penalty-{strength:g}",
            f"lambda is {strength:g}",
            "Y2",
            coefficient_penalty=strength,
        )
        for penalty in ("l1", "l2")
        for strength in (0.1, 1.0)
    ]
    held_out = "the epoch is chosen on held-out images"
    for name in ("l1", "dynamic"):
        recipe = recipes[f"yang2021/fashion-mnist-{name}"]
        rows.append(
            _control(
                recipe,
                "cooler",
                f"a learning rate of 0.0001, as in the authors' code; {held_out}",
                "Y3",
                lr=1e-4,
                hold_out=True,
            )
        )
    rows.append(
        _control(
            base,
            "tenth",
            f"coefficients start at 0.1 and vote weights at 0.1; {held_out}",
            "Y3",
            network="yang2021/fashion-mnist-l1-tenth",
            hold_out=True,
        )
    )
    return rows
