"""What is kept of a finished run: its row, its curve and, if it is to be shipped, its weights."""

import hashlib
import re
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torchcaps.errors import InputError, TorchcapsError, UsageError
from torchcaps.models import load
from torchcaps.models.weights.files import describe, save_packed
from torchcaps.models.weights.pretrained import MAX_WEIGHT_BYTES, file_name, weights_folder
from torchcaps.recipes import RECIPES
from torchcaps.results import COLUMNS, Row, add_row, keep_curve, misfits, read_rows
from torchcaps.train.evaluation.files import evaluate_files
from torchcaps.train.outputs.folder import RunFolder, default_folder

__all__ = ["finished_runs", "keep", "ship"]

TOLERANCE = 0.05
"""Points by which packed weights may score otherwise than the run did."""

FACTS = ("recipe", "seed", "epochs", "modified", "validation", "commit", "weights_sha256")
"""What a shipped file says of its run, beside its own accuracy."""


def keep(folder: RunFolder, record: str | Path) -> bool:
    """Add the row of a finished run to a record, if it is not in there, and its curve beside it.

    Returns:
        Whether the run has a row: one without test images has none.
    """
    row = _row(folder)
    if row["test"] is None:
        return False
    entry = Row(**row)
    add_row(record, entry)
    keep_curve(record, entry, folder.epochs())
    return True


def finished_runs(path: str | Path) -> list[RunFolder]:
    """The run of a folder, or those of its ``seedN`` folders; a recipe is its folder in runs/."""
    path = Path(path)
    if not path.exists():
        if path.as_posix() not in RECIPES:
            raise InputError(f"there is no folder {path}, and no recipe of that name")
        path = default_folder(path.as_posix(), 0).parent
    if path.is_file():
        raise InputError(f"{path} is neither a run folder nor a CSV of results named .csv")
    seeds = [place for place in sorted(path.glob("seed*")) if place.name[4:].isdigit()]
    runs = [run for run in map(RunFolder, (path, *seeds)) if run.result() is not None]
    if not runs:
        raise InputError(f"{path} holds no finished run: train it first, or name its folder")
    return runs


def ship(
    runs: Sequence[RunFolder],
    *,
    store: str = "int8",
    into: str | Path | None = None,
    record: str | Path | None = None,
    replace: bool = False,
    data_dir: Path | None = None,
    device: str = "auto",
) -> dict[Path, dict[str, Any]]:
    """Write the best run of each recipe as weights that come with the package.

    The best is so on held-out images, or on the test images where none were held out; a run with
    changed settings is taken where there is no other. A file that is there stays where its run was
    as good by the same rule. A new one is scored anew on the test images, and refused where it does
    not do what its run did.

    Args:
        runs: finished ones.
        store: "int8" or "float16".
        into: the folder; by default the package's own.
        record: the rows of the runs whose files are there; a run that is not among them counts as
            its file says.
        replace: write the best of these runs even where a better one's file is there.
        data_dir: the data folder.
        device: "auto", "cpu", "cuda" or "cuda:N".

    Returns:
        What each file says of itself, by path; of one that stayed ``"stayed"`` says why.
    """
    folder = weights_folder() if into is None else Path(into)
    recipes: dict[str, list[tuple[RunFolder, dict[str, Any]]]] = {}
    for run in runs:
        row = _row(run)
        if row["test"] is None or (run.description() or {}).get("data") is not None:
            raise UsageError(f"{run.path} was trained on your own images: only recipes are shipped")
        recipes.setdefault(row["recipe"], []).append((run, row))
    written = {}
    for recipe, candidates in recipes.items():
        path = folder / file_name(recipe)
        folders, rows = zip(*candidates, strict=True)
        best = _best(rows)
        stays = dict if replace else partial(_stays, path, rows, best, record)
        run = folders[rows.index(best)]
        written[path] = stays() or _ship(run, best, path, store, data_dir, device, stays)
    return written


def _best(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of unchanged recipes, if there are any, the one with most images right."""
    measure = _measure(rows)
    return max(rows, key=lambda row: (not row["modified"], row[measure]))


def _measure(rows: Sequence[dict[str, Any]]) -> str:
    return "test" if any(row["validation"] is None for row in rows) else "validation"


def _stays(
    path: Path, rows: Sequence[dict[str, Any]], best: dict[str, Any], record: str | Path | None
) -> dict[str, Any]:
    """What the file that is there says of itself, and why it stays; nothing where it does not."""
    there = _there(path, best["recipe"], record)
    if there is None or _best([there, best]) is not there:
        return {}
    if any(row["weights_sha256"] == there["weights_sha256"] for row in rows):
        return {}
    measure = _measure([there, best])
    changed = " of changed settings" if best["modified"] and not there["modified"] else ""
    why = (
        f"seed {there['seed']} has {there[measure]:.2f} % of the {measure} images right, and seed "
        f"{best['seed']}, the best run given{changed}, {best[measure]:.2f} %; --replace takes it"
    )
    return {**describe(path)["trained"], "stayed": why}


def _there(path: Path, recipe: str, record: str | Path | None) -> dict[str, Any] | None:
    """The row of the run whose weights a file holds; None where it holds none of the recipe."""
    try:
        said = describe(path)["trained"]
    except TorchcapsError:
        return None
    if said.get("recipe") != recipe or not isinstance(said.get("test"), int | float):
        return None
    row = {"weights_sha256": "", "modified": "", "validation": None, "seed": "?", **said}
    for one in [] if record is None else read_rows(record):
        if one.weights_sha256 == row["weights_sha256"]:
            row |= {key: getattr(one, key) for key in ("modified", "validation", "test")}
    return row


def _row(folder: RunFolder) -> dict[str, Any]:
    """The row of a finished run; a changed number of epochs names the recipe's own too."""
    result = folder.result() or {}
    if wrong := misfits(result):
        raise InputError(
            f"{folder.path / 'result.json'} is not what a run writes: {wrong[0]} is missing or of "
            "another type; train it again"
        )
    row: dict[str, Any] = {column: result.get(column) for column in COLUMNS}
    row["command"] = row["command"] or ""  # earlier runs did not say
    if recipe := RECIPES.get(row["recipe"]):
        whole = rf"\g<0> of {recipe.epochs}"
        row["modified"] = re.sub(r"\bepochs=\d+\b(?! of)", whole, row["modified"])
    return row


def _ship(
    run: RunFolder,
    row: dict[str, Any],
    path: Path,
    store: str,
    data_dir: Path | None,
    device: str,
    stays: Callable[[], dict[str, Any]],
) -> dict[str, Any]:
    """Write one file, if it fits and scores as its run did."""
    network = load(run.weights)
    if hashlib.sha256(run.weights.read_bytes()).hexdigest() != row["weights_sha256"]:
        raise InputError(f"{run.weights} is not the file its run wrote: train it again")
    facts = {key: row[key] for key in FACTS if row[key] is not None}
    with tempfile.TemporaryDirectory() as place:
        trial = Path(place) / path.name
        save_packed(network, trial, store=store, trained=facts)
        if (size := trial.stat().st_size) > MAX_WEIGHT_BYTES:
            raise UsageError(
                f"{path.name} would have {size:,} bytes as {store} and may have "
                f"{MAX_WEIGHT_BYTES:,}: store it as int8, or ship a smaller network"
            )
        (score,) = evaluate_files([trial], data_dir=data_dir, device=device).values()
    if abs(score["percent"] - row["test"]) > TOLERANCE:
        why = "store it as float16, or see whether the test images are those of the run"
        for key in ("test_limit", "test_draws"):
            if key in row["modified"]:
                why = f"train it without {key}, to be scored on all test images"
        raise InputError(
            f"{path.name} scores {score['percent']:.2f} % and its run {row['test']:.2f} %: {why}"
        )
    if kept := stays():  # shipped by another process while this one was scored
        return kept
    facts |= {"test": score["percent"], "images": score["images"]}
    path.parent.mkdir(parents=True, exist_ok=True)
    save_packed(network, path, store=store, trained=facts)
    return facts
