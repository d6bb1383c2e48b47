"""The accuracy of finished runs: one row per run in ``results/accuracy.csv``."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from torchcaps.results import csv_file
from torchcaps.results.earlier import MODIFIED, split_modified
from torchcaps.results.typed_row import Setting, TypedRow

ACCURACY = Path("results/accuracy.csv")
"""The record, relative to the current folder."""


DEFINITION = "definition"
"""The change of a run whose recipe or network was corrected later."""


@dataclass(frozen=True, kw_only=True)
class AccuracyRow(TypedRow):
    """One finished run.

    Attributes:
        recipe: name of the recipe.
        seed: seed of the run.
        test: test accuracy in percent; None without test images.
        validation: accuracy on held-out images at the chosen epoch, in percent; None without them.
        paper: accuracy that the paper prints, in percent; None where it prints none.
        parameters: number of learned values.
        epochs: epochs trained.
        recipe_epochs: epochs that the recipe asks for.
        changes: other settings that differ from the recipe's; empty for the recipe as it is.
            ``definition`` counts the corrections of a recipe and its network; 1 was the first.
        seconds: duration of training and validation.
        images_per_s: training throughput.
        peak_mib: peak memory of the device in MiB; None where it was not measured.
        dirty: whether the code differed from the commit.
        commit: commit of the code.
        gpu: name of the GPU, or of the processor.
        torch: version of PyTorch.
        date: end of the run, in UTC.
        weights_sha256: hash of the saved weights.
        command: command that started the run; empty for a run from Python.
    """

    TITLE: ClassVar[str] = "results"
    EARLIER: ClassVar[Mapping[str, tuple[str, ...]]] = {MODIFIED: ("recipe_epochs", "changes")}

    recipe: str
    seed: int
    test: float | None
    validation: float | None
    paper: float | None
    parameters: int
    epochs: int
    recipe_epochs: int
    changes: dict[str, Setting]
    seconds: float
    images_per_s: float
    peak_mib: float | None
    dirty: bool
    commit: str
    gpu: str
    torch: str
    date: str
    weights_sha256: str
    command: str = ""

    def __post_init__(self) -> None:
        if not self.recipe.strip():
            raise ValueError("a row must name its recipe")
        for name in ("test", "validation", "paper"):
            percent = getattr(self, name)
            if percent is not None and not 0 <= percent <= 100:
                raise ValueError(f"{name} must be between 0 and 100 percent, not {percent}")
        self.check_numbers()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build a row from plain data, also from that of earlier versions.

        Earlier versions wrote all changes as one text, and the first ones no command.
        """
        values = {"command": "", **values}
        text, epochs = values.pop(MODIFIED, None), values.get("epochs")
        if isinstance(text, str) and isinstance(epochs, int):
            values["recipe_epochs"], values["changes"] = split_modified(text, epochs)
        return super().from_dict(values)

    @classmethod
    def from_cells(cls, cells: Mapping[str, str]) -> Self:
        """Build a row from the cells of a CSV file, also from one with the column ``modified``."""
        if not cells.get("test"):
            raise ValueError("test must be a number, not ''")
        if MODIFIED not in cells:
            return super().from_cells(cells)
        row = super().from_cells({**cells, "recipe_epochs": cells["epochs"]})
        epochs, changes = split_modified(cells[MODIFIED], row.epochs)
        return type(row)(**{**row.to_dict(), "recipe_epochs": epochs, "changes": changes})

    @property
    def modified(self) -> str:
        """The changes as text, such as ``epochs=60 of 640 lr=0.1``; empty for an unchanged run."""
        shorter = [f"epochs={self.trained}"] if self.epochs != self.recipe_epochs else []
        return " ".join([*shorter, *(f"{key}={value}" for key, value in self.changes.items())])

    @property
    def trained(self) -> str:
        """The epochs, and those of the recipe where they differ, such as ``60 of 640``."""
        whole = "" if self.epochs == self.recipe_epochs else f" of {self.recipe_epochs}"
        return f"{self.epochs}{whole}"

    @property
    def is_comparable(self) -> bool:
        """Return whether committed code ran the recipe, changed in its epochs at most."""
        return not self.dirty and not set(self.changes) - {DEFINITION}

    @property
    def is_superseded(self) -> bool:
        """Return whether the recipe or its network was corrected after the run."""
        return DEFINITION in self.changes


def read_rows(path: str | Path) -> list[AccuracyRow]:
    """Return every row of a record, oldest first."""
    return csv_file.read(path, AccuracyRow)


def append_row(path: str | Path, row: AccuracyRow) -> None:
    """Add a row to a record, completely or not at all; concurrent processes wait for each other."""
    csv_file.append(path, AccuracyRow, [row])


def add_row(path: str | Path, row: AccuracyRow) -> bool:
    """Add a row to a record unless its run is in it; return whether it was added."""

    def is_new(row: AccuracyRow, known: list[AccuracyRow]) -> bool:
        return all((r.weights_sha256, r.date) != (row.weights_sha256, row.date) for r in known)

    return csv_file.append(path, AccuracyRow, [row], accept=is_new) == 1


def check_record(path: str | Path) -> None:
    """Refuse a record that cannot be added to, before the run whose row it shall hold."""
    csv_file.check_writable(path, AccuracyRow)
