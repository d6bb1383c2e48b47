"""Finished runs as rows, curves and weights that ship with the package."""

import hashlib
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torchcaps.errors import InputError, TorchcapsError, UsageError
from torchcaps.models.weights.facts import FACTS
from torchcaps.models.weights.files import describe, save_packed
from torchcaps.models.weights.pretrained import MAX_WEIGHT_BYTES, file_name, weights_folder
from torchcaps.provenance import is_source_tree
from torchcaps.recipes import RECIPES
from torchcaps.results import AccuracyRow, add_row, keep_curve, read_rows
from torchcaps.train.evaluation.files import evaluate_files
from torchcaps.train.evaluation.trained import load_trained
from torchcaps.train.outputs.folder import RunFolder, default_folder

TOLERANCE = 0.05
"""Percentage points by which the accuracy of packed weights may differ from the run's."""


def record_run(folder: RunFolder, record: str | Path) -> bool:
    """Add the row of a finished run to a record, unless it is there, and its curve beside it.

    Returns:
        Whether the run has a test accuracy; one without test images is not recorded.
    """
    row = _row(folder)
    if row.test is None:
        return False
    add_row(record, row)
    keep_curve(record, row, folder.curve())
    return True


def finished_runs(path: str | Path) -> list[RunFolder]:
    """Return the finished runs of a run folder, of its ``seedN`` folders, or of a recipe's."""
    path = Path(path)
    if not path.exists():
        if path.as_posix() not in RECIPES:
            raise InputError(f"there is no folder {path}, and no recipe of that name")
        path = default_folder(path.as_posix(), 0).parent
    if path.is_file():
        raise InputError(f"{path} is neither a run folder nor a CSV of results named .csv")
    seeds = [folder for folder in sorted(path.glob("seed*")) if folder.name[4:].isdigit()]
    runs = [run for run in map(RunFolder, (path, *seeds)) if run.is_finished]
    if not runs:
        raise InputError(f"{path} holds no finished run: train it first, or name its folder")
    return runs


def _row(folder: RunFolder) -> AccuracyRow:
    row = folder.row()
    if row is None:
        raise InputError(f"{folder.path} holds no finished run: train it first")
    return row


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
    """Write the weights of the best run of each recipe as a file that ships with the package.

    The best run has the highest accuracy on held-out images, or on test images where none were
    held out. Runs with changed settings count only where there are no others. A file of an equally
    good or better run stays. A new file is scored on the test images, and refused if its accuracy
    differs from the run's.

    Args:
        runs: finished runs.
        store: "int8" or "float16".
        into: the folder of the files; by default the source tree's own. An installed package
            has no default.
        record: the rows of the runs behind existing files; without a row, the file itself counts.
        replace: write the best of these runs even over the file of a better one.
        data_dir: the data folder.
        device: "auto", "cpu", "cuda" or "cuda:N".

    Returns:
        The facts of each file by path; ``"stayed"`` says why an existing file stays.
    """
    if into is None and not is_source_tree():
        raise UsageError("an installed package keeps its own weights: choose a folder with --into")
    folder = weights_folder() if into is None else Path(into)
    recipes: dict[str, list[tuple[RunFolder, AccuracyRow]]] = {}
    for run in runs:
        row = _row(run)
        if row.test is None or (run.description() or {}).get("data") is not None:
            raise UsageError(f"{run.path} was trained on your own images: only recipes are shipped")
        recipes.setdefault(row.recipe, []).append((run, row))
    files = {}
    for recipe, candidates in recipes.items():
        path = folder / file_name(recipe)
        rows = [row for _, row in candidates]
        best = _best(rows)
        run = next(run for run, row in candidates if row is best)
        describe_kept = dict if replace else partial(_describe_kept, path, best, rows, record)
        files[path] = describe_kept() or _write(
            run, best, path, store, data_dir, device, describe_kept
        )
    return files


def _best(rows: Sequence[AccuracyRow]) -> AccuracyRow:
    """Return the row of highest accuracy, among unmodified ones if there are any."""
    measure = _measure(rows)
    return max(rows, key=lambda row: (not row.modified, getattr(row, measure)))


def _measure(rows: Sequence[AccuracyRow]) -> str:
    """Return the accuracy that all rows have."""
    return "test" if any(row.validation is None for row in rows) else "validation"


def _describe_kept(
    path: Path, best: AccuracyRow, rows: Sequence[AccuracyRow], record: str | Path | None
) -> dict[str, Any]:
    """Return the facts of an existing file and why it stays; nothing if it is to be replaced."""
    existing = _existing(path, best, record)
    if existing is None or _best([existing, best]) is not existing:
        return {}
    if any(row.weights_sha256 == existing.weights_sha256 for row in rows):
        return {}
    measure = _measure([existing, best])
    changed = " of changed settings" if best.modified and not existing.modified else ""
    reason = (
        f"seed {existing.seed} has {getattr(existing, measure):.2f} % of the {measure} images "
        f"right, and seed {best.seed}, the best run given{changed}, "
        f"{getattr(best, measure):.2f} %; --replace takes it"
    )
    return {**describe(path)["trained"], "stayed": reason}


def _existing(path: Path, best: AccuracyRow, record: str | Path | None) -> AccuracyRow | None:
    """Return the row of the run behind a weight file; None if it holds no weights of the recipe.

    A record may know of changes that were found later. Without it the file's own facts count.
    """
    try:
        facts = describe(path)["trained"]
        if facts.get("recipe") != best.recipe or not isinstance(facts.get("test"), int | float):
            return None
        for row in [] if record is None else read_rows(record):
            if row.weights_sha256 == facts.get("weights_sha256"):
                return row
        # what the file does not say is not compared
        unknown = {"validation": None, "modified": "", "weights_sha256": ""}
        return AccuracyRow.from_dict({**best.to_dict(), **unknown, **facts})
    except (TorchcapsError, ValueError):
        return None


def _write(
    run: RunFolder,
    row: AccuracyRow,
    path: Path,
    store: str,
    data_dir: Path | None,
    device: str,
    describe_kept: Callable[[], dict[str, Any]],
) -> dict[str, Any]:
    """Write a weight file if its size and its accuracy allow; return its facts."""
    network = load_trained(run.path)
    if hashlib.sha256(run.weights.read_bytes()).hexdigest() != row.weights_sha256:
        raise InputError(f"{run.weights} is not the file its run wrote: train it again")
    values = ((name, getattr(row, name)) for name in FACTS)
    facts = {name: value for name, value in values if value is not None}
    with tempfile.TemporaryDirectory() as folder:
        trial = Path(folder) / path.name
        save_packed(network, trial, store=store, trained=facts)
        if (size := trial.stat().st_size) > MAX_WEIGHT_BYTES:
            raise UsageError(
                f"{path.name} would have {size:,} bytes as {store} and may have "
                f"{MAX_WEIGHT_BYTES:,}: store it as int8, or ship a smaller network"
            )
        (score,) = evaluate_files([trial], data_dir=data_dir, device=device).values()
    _check_accuracy(path, row, score["percent"])
    if existing := describe_kept():  # another process shipped it during the scoring
        return existing
    facts |= {"test": score["percent"], "images": score["images"]}
    path.parent.mkdir(parents=True, exist_ok=True)
    save_packed(network, path, store=store, trained=facts)
    return facts


def _check_accuracy(path: Path, row: AccuracyRow, percent: float) -> None:
    """Refuse packed weights whose accuracy differs from the run's."""
    if row.test is not None and abs(percent - row.test) <= TOLERANCE:
        return
    remedy = "store it as float16, or see whether the test images are those of the run"
    for setting in ("test_limit", "test_draws"):
        if setting in row.changes:
            remedy = f"train it without {setting}, to be scored on all test images"
    raise InputError(f"{path.name} scores {percent:.2f} % and its run {row.test:.2f} %: {remedy}")
