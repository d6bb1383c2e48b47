"""The runs of a study: every data set, seed and head."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from torchcaps.campaign import Entry
from torchcaps.errors import UsageError
from torchcaps.recipes.study import HEADS, PREFIX, Study
from torchcaps.recipes.tools.loading import find_head, find_recipe, find_study
from torchcaps.results import ComparisonRow, datasets_of


@dataclass(frozen=True)
class StudyRun:
    """One network of a study.

    Attributes:
        study: the study.
        dataset: name of the data set within the study.
        head: name of the head in tables.
        entry: the run of the campaign that trains it.
    """

    study: Study
    dataset: str
    head: str
    entry: Entry

    @property
    def key(self) -> tuple[str, str, str, int]:
        """The key of this network's row in a record."""
        return self.study.name, self.dataset, self.head, self.entry.seed

    @property
    def has_speed(self) -> bool:
        """Return whether speed is measured too: for the first seed only, since it has no spread."""
        return self.entry.seed == self.study.seeds[0]

    def to_json(self) -> str:
        """Return the run as one line of text, for another process."""
        entry = self.entry
        return json.dumps([self.study.name, self.dataset, self.head, entry.source, entry.seed])

    @classmethod
    def from_json(cls, text: str) -> "StudyRun":
        """Return the run of :meth:`to_json`'s text, and register its network."""
        study, dataset, head, source, seed = json.loads(text)
        return cls(find_study(study), dataset, head, Entry(find_recipe(source), source, seed))


def plan_study(
    study: Study, *, heads: Sequence[str] = (), routings: Sequence[str] = ()
) -> list[StudyRun]:
    """Return the runs of a study, one data set after another, and within it seed by seed.

    Args:
        study: the study.
        heads: names of heads; without any, all heads of the package.
        routings: routings of a user that enter too, such as ``my_routing.py:MyRouting``.
    """
    texts = [*(heads or HEADS), *routings]
    names = [find_head(text)[0] for text in texts]
    for number, name in enumerate(names):
        if name in names[:number] or (name in HEADS and texts[number] != name):
            raise UsageError(f"two heads are named {name}: give your routing a name of its own")
    return [
        StudyRun(study, dataset, name, _entry(study, dataset, text, seed))
        for dataset in study.datasets
        for seed in study.seeds
        for name, text in zip(names, texts, strict=True)
    ]


def _entry(study: Study, dataset: str, text: str, seed: int) -> Entry:
    source = f"{PREFIX}{study.name}/{dataset}/{text}"
    return Entry(find_recipe(source), source, seed)


def sort_rows(rows: Sequence[ComparisonRow]) -> list[ComparisonRow]:
    """Return rows by data set, seed and head, for they are written as they are completed.

    Data sets keep the order in which they appear, and routings of a user come last.
    """
    datasets, heads = datasets_of(rows), [*HEADS]

    def order(row: ComparisonRow) -> tuple[int, int, int]:
        head = heads.index(row.head) if row.head in heads else len(heads)
        return datasets.index(row.dataset), row.seed, head

    return sorted(rows, key=order)
