"""What is kept of a finished run: its row, its curve and, if it is to be shipped, its weights."""

import hashlib
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchcaps.models import load
from torchcaps.models.files import save_packed
from torchcaps.models.pretrained import MOST_BYTES, file_name, weights_folder
from torchcaps.recipes import RECIPES
from torchcaps.results import COLUMNS, Row, add_row, keep_curve, misfits
from torchcaps.train.folder import RunFolder
from torchcaps.train.process import UseError
from torchcaps.train.scoring import evaluate_files

__all__ = ["finished_runs", "keep", "ship"]

TOLERANCE = 0.05
"""Points by which packed weights may score otherwise than the run did."""

FACTS = ("recipe", "seed", "epochs", "modified", "commit", "weights_sha256")
"""What a shipped file says of its run, beside its own accuracy."""


def keep(folder: RunFolder, record: str | Path, *, command: str = "") -> None:
    """Add the row of a finished run to a record, if it is not in there, and its curve beside it.

    A run without test images has no row.
    """
    row = _row(folder)
    if row["test"] is None:
        return
    entry = Row(**row, command=command)
    add_row(record, entry)
    keep_curve(record, entry, folder.epochs())


def finished_runs(path: str | Path) -> list[RunFolder]:
    """The run of a folder, or those of its ``seedN`` folders."""
    path = Path(path)
    if path.is_file():
        raise ValueError(f"{path} is neither a run folder nor a CSV of results named .csv")
    seeds = [place for place in sorted(path.glob("seed*")) if place.name[4:].isdigit()]
    runs = [run for run in map(RunFolder, (path, *seeds)) if run.result() is not None]
    if not runs:
        raise ValueError(f"{path} holds no finished run: train it first, or name its folder")
    return runs


def ship(
    runs: Sequence[RunFolder],
    *,
    store: str = "int8",
    into: str | Path | None = None,
    data_dir: Path | None = None,
    device: str = "auto",
) -> dict[Path, dict[str, Any]]:
    """Write the best run of each recipe as weights that come with the package.

    The best is so on held-out images, or on the test images where none were held out; a run with
    changed settings is taken where there is no other. The file is scored anew on the test images,
    and refused where it does not do what its run did.

    Args:
        runs: finished ones.
        store: "int8" or "float16".
        into: the folder; by default the package's own.
        data_dir: the data folder.
        device: "auto", "cpu", "cuda" or "cuda:N".

    Returns:
        What each file says of itself, by path.
    """
    folder = weights_folder() if into is None else Path(into)
    recipes: dict[str, list[tuple[RunFolder, dict[str, Any]]]] = {}
    for run in runs:
        row = _row(run)
        if row["test"] is None or (run.description() or {}).get("data") is not None:
            raise UseError(f"{run.path} was trained on your own images: only recipes are shipped")
        recipes.setdefault(row["recipe"], []).append((run, row))
    written = {}
    for recipe, candidates in recipes.items():
        held_out = all(row["validation"] is not None for _, row in candidates)
        measure = "validation" if held_out else "test"
        run, row = max(candidates, key=lambda one: (not one[1]["modified"], one[1][measure]))
        path = folder / file_name(recipe)
        written[path] = _ship(run, row, path, store, data_dir, device)
    return written


def _row(folder: RunFolder) -> dict[str, Any]:
    """The row of a finished run; a changed number of epochs names the recipe's own too."""
    result = folder.result() or {}
    if wrong := misfits(result):
        raise ValueError(
            f"{folder.path / 'result.json'} is not what a run writes: {wrong[0]} is missing or of "
            "another type; train it again"
        )
    row: dict[str, Any] = {column: result.get(column) for column in COLUMNS if column != "command"}
    if recipe := RECIPES.get(row["recipe"]):
        whole = rf"\g<0> of {recipe.epochs}"
        row["modified"] = re.sub(r"\bepochs=\d+\b(?! of)", whole, row["modified"])
    return row


def _ship(
    run: RunFolder, row: dict[str, Any], path: Path, store: str, data_dir: Path | None, device: str
) -> dict[str, Any]:
    """Write one file, if it fits and scores as its run did."""
    network = load(run.weights)
    if hashlib.sha256(run.weights.read_bytes()).hexdigest() != row["weights_sha256"]:
        raise ValueError(f"{run.weights} is not the file its run wrote: train it again")
    facts = {key: row[key] for key in FACTS}
    with tempfile.TemporaryDirectory() as place:
        trial = Path(place) / path.name
        save_packed(network, trial, store=store, trained=facts)
        if (size := trial.stat().st_size) > MOST_BYTES:
            raise UseError(
                f"{path.name} would have {size:,} bytes as {store} and may have {MOST_BYTES:,}: "
                "store it as int8, or ship a smaller network"
            )
        (score,) = evaluate_files([trial], data_dir=data_dir, device=device).values()
    if abs(score["percent"] - row["test"]) > TOLERANCE:
        raise ValueError(
            f"{path.name} scores {score['percent']:.2f} % and its run {row['test']:.2f} %: store "
            "it as float16, or see whether the test images are those of the run"
        )
    facts |= {"test": score["percent"], "images": score["images"]}
    path.parent.mkdir(parents=True, exist_ok=True)
    save_packed(network, path, store=store, trained=facts)
    return facts
