"""Mean, standard deviation and number of runs of each recipe, from the record of results."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from torchcaps.papers import PAPERS
from torchcaps.results.accuracy import AccuracyRow

TITLES = {**{key: paper.label for key, paper in PAPERS.items()}, "demo": "Demo"}
"""Headings in order, by the part of a recipe's name before the slash."""


@dataclass(frozen=True)
class Summary:
    """The test accuracy of a recipe over its seeds.

    Attributes:
        recipe: name of the recipe.
        mean: mean test accuracy in percent.
        spread: standard deviation of the test accuracy; None for one seed.
        best: highest test accuracy.
        n: number of seeds.
        paper: accuracy that the paper prints.
        parameters: number of learned values.
        epochs: epochs trained.
        of_epochs: epochs that the recipe asks for, where they differ; None otherwise.
        seconds: mean duration of training.
        images_per_s: mean training throughput.
        gpu: names of the devices.
        superseded: whether the recipe or its network was corrected after the runs.
    """

    recipe: str
    mean: float
    spread: float | None
    best: float
    n: int
    paper: float | None
    parameters: int
    epochs: int
    of_epochs: int | None
    seconds: float
    images_per_s: float
    gpu: str
    superseded: bool = False

    @property
    def trained(self) -> str:
        """The epochs, and those of the recipe where they differ, such as ``60 of 640``."""
        return f"{self.epochs}" + ("" if self.of_epochs is None else f" of {self.of_epochs}")


def summarize(rows: Iterable[AccuracyRow]) -> list[Summary]:
    """Return the mean and spread of each recipe over its unchanged runs, grouped by paper.

    Of several runs with one seed the latest counts. Runs of another number of epochs than the
    recipe's get a summary of their own. Runs with other changes or uncommitted code do not count.
    Superseded runs count until the corrected recipe has a run.
    """
    groups: dict[tuple[str, int, int], dict[int, AccuracyRow]] = {}
    comparable = [row for row in rows if row.is_comparable and row.test is not None]
    current = {row.recipe for row in comparable if not row.is_superseded}
    for row in comparable:
        if not (row.is_superseded and row.recipe in current):
            seeds = groups.setdefault((row.recipe, row.epochs, row.recipe_epochs), {})
            if row.seed not in seeds or row.date >= seeds[row.seed].date:
                seeds[row.seed] = row
    summaries = [_summary(list(seeds.values())) for seeds in groups.values()]
    return sorted(
        summaries,
        key=lambda one: (*recipe_order(one.recipe), one.of_epochs is not None, -one.epochs),
    )


def _summary(runs: list[AccuracyRow]) -> Summary:
    """Summarize runs of one recipe and as many epochs, one per seed."""
    tests = [run.test for run in runs if run.test is not None]
    last = runs[-1]
    return Summary(
        recipe=last.recipe,
        mean=statistics.fmean(tests),
        spread=statistics.stdev(tests) if len(tests) > 1 else None,
        best=max(tests),
        n=len(tests),
        paper=last.paper,
        parameters=last.parameters,
        epochs=last.epochs,
        of_epochs=None if last.epochs == last.recipe_epochs else last.recipe_epochs,
        seconds=statistics.fmean(run.seconds for run in runs),
        images_per_s=statistics.fmean(run.images_per_s for run in runs),
        gpu=", ".join(sorted({run.gpu for run in runs})),
        superseded=last.is_superseded,
    )


def paper_of(recipe: str) -> str:
    """Return the key of a recipe's paper."""
    return recipe.partition("/")[0]


def recipe_order(recipe: str) -> tuple[int, str, str]:
    """Return a sort key of recipes: by paper, then by name."""
    papers, paper = list(TITLES), paper_of(recipe)
    return papers.index(paper) if paper in papers else len(papers), paper, recipe
