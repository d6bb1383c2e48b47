"""How much of each paper is measured: its rows, and the claims of its abstract."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from torchcaps.data import find
from torchcaps.papers import PAPERS
from torchcaps.recipes import RECIPES, Recipe
from torchcaps.results.claims import Verdict
from torchcaps.results.summary import Summary, paper_of

OBTAINABLE = ("mnist", "fashion_mnist", "cifar10", "cifar100")
"""The data sets whose rows are counted, beside those that are generated from them."""

MODERN = "-modern"
"""Suffix of the recipe that trains a published network with today's methods."""

THREE_SEEDS = 3


@dataclass(frozen=True)
class Coverage:
    """Counts over one paper, or over several.

    Attributes:
        paper: key of the paper; empty for a sum.
        rows: recipes of rows that the paper prints or draws.
        allowed: those that MNIST, Fashion-MNIST, CIFAR-10 and CIFAR-100 allow.
        measured: those with a run of any length, superseded or not.
        whole: those with a run of all epochs and the present definition.
        seeds: those with three such runs.
        claims: claims of the abstract.
        judged: those judged by measurements that are not provisional.
        seen: those judged and seen.
    """

    paper: str
    rows: int = 0
    allowed: int = 0
    measured: int = 0
    whole: int = 0
    seeds: int = 0
    claims: int = 0
    judged: int = 0
    seen: int = 0

    def __add__(self, other: "Coverage") -> "Coverage":
        pairs = zip(self.counts(), other.counts(), strict=True)
        return Coverage("", *(first + second for first, second in pairs))

    def counts(self) -> tuple[int, ...]:
        """Return the counts in the order of the attributes."""
        return tuple(value for value in vars(self).values() if isinstance(value, int))


def is_allowed(recipe: Recipe) -> bool:
    """Return whether a recipe needs no other data than :data:`OBTAINABLE`."""
    names = {recipe.dataset, recipe.test_dataset, recipe.validation_dataset} - {""}
    return all(_origin(name) in OBTAINABLE for name in names)


def _origin(dataset: str) -> str:
    """Return the set that a generated set is made from, or the set itself."""
    return find(dataset).source.removeprefix("made from ") if _is_made(dataset) else dataset


def _is_made(dataset: str) -> bool:
    return find(dataset).source.startswith("made from ")


def published_rows(paper: str) -> list[Recipe]:
    """Return the recipes of the rows that a paper prints or draws."""
    return [
        recipe
        for name, recipe in RECIPES.items()
        if paper_of(name) == paper and recipe.published.is_row and not name.endswith(MODERN)
    ]


def cover(
    results: Mapping[str, Summary], verdicts: Mapping[str, Sequence[Verdict]]
) -> list[Coverage]:
    """Count what is measured of each paper.

    Args:
        results: the result of each recipe that has one.
        verdicts: the verdicts on the claims of each paper's abstract.
    """
    return [_cover_paper(paper, results, verdicts.get(paper, ())) for paper in PAPERS]


def _cover_paper(
    paper: str, results: Mapping[str, Summary], verdicts: Iterable[Verdict]
) -> Coverage:
    rows = published_rows(paper)
    allowed = [recipe for recipe in rows if is_allowed(recipe)]
    measured = [results[recipe.name] for recipe in allowed if recipe.name in results]
    whole = [summary for summary in measured if summary.is_whole]
    verdicts = list(verdicts)
    judged = [one for one in verdicts if one.is_judged]
    return Coverage(
        paper,
        rows=len(rows),
        allowed=len(allowed),
        measured=len(measured),
        whole=len(whole),
        seeds=sum(summary.n >= THREE_SEEDS for summary in whole),
        claims=len(verdicts),
        judged=len(judged),
        seen=sum(one.word == "seen" for one in judged),
    )
