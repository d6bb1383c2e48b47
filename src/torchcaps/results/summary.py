"""Mean, standard deviation and number of runs of each recipe, from the record of results."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from torchcaps.papers import PAPERS
from torchcaps.recipes import RECIPES, twins
from torchcaps.results.accuracy import DEFINITION, AccuracyRow
from torchcaps.results.curves import CurvePoint

TITLES = {**{key: paper.label for key, paper in PAPERS.items()}, "demo": "Demo"}
"""Headings in order, by the part of a recipe's name before the slash."""

SUPERSEDED = "superseded"
"""Mark of results whose recipe or network was corrected after the runs."""

Curves = Callable[[AccuracyRow], Sequence[CurvePoint]]
"""Returns the training curve of a row; empty where none is recorded."""


def no_curve(row: AccuracyRow) -> Sequence[CurvePoint]:
    """Return no points: best epochs are then not known."""
    return ()


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
        best_epoch: mean over the runs of the test accuracy of the best epoch; None unless every
            run watched its test accuracy.
        changes: settings that differ from the recipe's, and ``uncommitted code``; empty for runs
            of the recipe as it is.
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
    best_epoch: float | None = None
    changes: str = ""

    @property
    def is_whole(self) -> bool:
        """Return whether the runs have the recipe's epochs and its present definition."""
        return self.of_epochs is None and not self.superseded

    @property
    def trained(self) -> str:
        """The epochs, and those of the recipe where they differ, such as ``60 of 640``."""
        return f"{self.epochs}" + ("" if self.of_epochs is None else f" of {self.of_epochs}")

    def accuracy(self) -> str:
        """Return mean and spread, such as ``99.70 ± 0.03``."""
        return f"{self.mean:.2f}" + ("" if self.spread is None else f" ± {self.spread:.2f}")

    def text(self) -> str:
        """Return accuracy, number of seeds, and how the runs differ from the recipe."""
        shorter = "" if self.of_epochs is None else f", {self.trained} epochs"
        superseded = f", {SUPERSEDED}" if self.superseded else ""
        return f"{self.accuracy()} (n = {self.n}{shorter}{superseded})"


def summarize(rows: Iterable[AccuracyRow], curves: Curves = no_curve) -> list[Summary]:
    """Return the mean and spread of each recipe over its unchanged runs, grouped by paper.

    Of several runs with one seed the latest counts. Runs of another number of epochs than the
    recipe's get a summary of their own. Runs with other changes or uncommitted code do not count.
    Superseded runs count until the corrected recipe has a run.

    Args:
        rows: the rows of the record.
        curves: see :data:`Curves`.
    """
    summaries = [_summary(runs, curves) for runs in _grouped(rows)]
    return sorted(
        summaries,
        key=lambda one: (*recipe_order(one.recipe), one.of_epochs is not None, -one.epochs),
    )


def runs_of(summary: Summary, rows: Iterable[AccuracyRow]) -> list[AccuracyRow]:
    """Return the runs that a summary is of, one per seed."""
    return next(
        runs
        for runs in _grouped(rows)
        if (runs[0].recipe, runs[0].trained) == (summary.recipe, summary.trained)
    )


def summarize_changed(rows: Iterable[AccuracyRow]) -> list[Summary]:
    """Return the mean and spread of runs with changed settings or uncommitted code.

    Runs of one recipe with the same changes and as many epochs are one summary. Of several runs
    with one seed the latest counts.
    """
    groups: dict[tuple[str, int, int, str], dict[int, AccuracyRow]] = {}
    for row in rows:
        if row.test is not None and not row.is_comparable:
            key = (row.recipe, row.epochs, row.recipe_epochs, _changes(row))
            seeds = groups.setdefault(key, {})
            if row.seed not in seeds or row.date >= seeds[row.seed].date:
                seeds[row.seed] = row
    summaries = [
        replace(_summary(list(seeds.values()), no_curve), changes=key[-1])
        for key, seeds in groups.items()
    ]
    return sorted(summaries, key=lambda one: (*recipe_order(one.recipe), -one.epochs, one.changes))


def _changes(row: AccuracyRow) -> str:
    changes = [f"{key}={value}" for key, value in row.changes.items() if key != DEFINITION]
    return ", ".join([*changes, *(["uncommitted code"] * row.dirty)])


def select_shown(summaries: Iterable[Summary]) -> list[Summary]:
    """Leave out shorter runs of a recipe, except where they have more seeds than longer ones."""
    most_seeds: dict[str, int] = {}
    shown = []
    for summary in summaries:
        if summary.n > most_seeds.get(summary.recipe, 0):
            most_seeds[summary.recipe] = summary.n
            shown.append(summary)
    return shown


def results_by_recipe(rows: Iterable[AccuracyRow], curves: Curves = no_curve) -> dict[str, Summary]:
    """Return the result to show for each recipe: its longest runs, or those of a twin.

    A twin is a recipe that trains the same network in the same way; see
    :func:`torchcaps.recipes.twins`.
    """
    longest: dict[str, Summary] = {}
    for summary in summarize(rows, curves):
        longest.setdefault(summary.recipe, summary)
    results = dict(longest)
    for name in RECIPES:
        candidates = [longest[twin] for twin in twins(name) if twin in longest]
        if candidates:
            results[name] = max(
                candidates, key=lambda one: (one.is_whole, one.epochs, one.n, one.recipe == name)
            )
    return results


def _grouped(rows: Iterable[AccuracyRow]) -> list[list[AccuracyRow]]:
    """Return the runs of each recipe and number of epochs, the latest of each seed."""
    groups: dict[tuple[str, int, int], dict[int, AccuracyRow]] = {}
    comparable = [row for row in rows if row.is_comparable and row.test is not None]
    current = {row.recipe for row in comparable if not row.is_superseded}
    for row in comparable:
        if not (row.is_superseded and row.recipe in current):
            seeds = groups.setdefault((row.recipe, row.epochs, row.recipe_epochs), {})
            if row.seed not in seeds or row.date >= seeds[row.seed].date:
                seeds[row.seed] = row
    return [list(seeds.values()) for seeds in groups.values()]


def _summary(runs: list[AccuracyRow], curves: Curves) -> Summary:
    """Summarize runs of one recipe and as many epochs, one per seed."""
    tests = [run.test for run in runs if run.test is not None]
    last = runs[-1]
    best = [_best_epoch(curves(run)) for run in runs]
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
        best_epoch=None if None in best else statistics.fmean(one for one in best if one),
    )


def _best_epoch(points: Sequence[CurvePoint]) -> float | None:
    """Return the highest watched test accuracy; None for a run that did not watch it."""
    return max((point.test for point in points if point.test is not None), default=None)


def paper_of(recipe: str) -> str:
    """Return the key of a recipe's paper."""
    return recipe.partition("/")[0]


def recipe_order(recipe: str) -> tuple[int, str, str]:
    """Return a sort key of recipes: by paper, then by name."""
    papers, paper = list(TITLES), paper_of(recipe)
    return papers.index(paper) if paper in papers else len(papers), paper, recipe
