"""The folder of a run: what it is, what it has reached, and who is writing to it.

run.json             recipe, seed and settings
metrics.jsonl        one line per epoch
checkpoints/         the newest two and the best; see `torchcaps.train.checkpoint.files`
weights.safetensors  the network at the chosen epoch; `torchcaps.load` reads it
result.json          the row of results/accuracy.csv
tensorboard/         scalars and images, where tensorboard is installed
"""

import json
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from torchcaps.data import describe_folder
from torchcaps.errors import InputError, UsageError
from torchcaps.recipes import Recipe
from torchcaps.storage import append_line, read_lines, write_text
from torchcaps.train.checkpoint.files import checkpoints
from torchcaps.train.facts import HOW

__all__ = ["RunFolder", "default_folder", "described", "unfinished"]

FILES = (
    "run.json",
    "metrics.jsonl",
    "checkpoints",
    "weights.safetensors",
    "result.json",
    "tensorboard",
)
"""What a run writes into its folder; whatever else lies there is not its own."""
LATER = ("hold_out", "classes", "images", "files_sha256")
"""What runs of earlier versions do not say of a user's images."""


def default_folder(recipe: str, seed: int) -> Path:
    """Where a run goes that is not told where."""
    return Path("runs") / recipe / f"seed{seed}"


class RunFolder:
    """Reads and writes the files of a run."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoints"
        self.metrics = self.path / "metrics.jsonl"
        self.weights = self.path / "weights.safetensors"
        self.lock: FileLock | None = None

    def result(self) -> dict[str, Any] | None:
        """The row of a finished run."""
        return self._read("result.json")

    def description(self) -> dict[str, Any] | None:
        """What was asked of the run."""
        return self._read("run.json")

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            read = json.loads((self.path / name).read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise InputError(
                f"{self.path / name} cannot be read ({error}); start anew with --fresh"
            ) from None
        if not isinstance(read, dict):
            raise InputError(f"{self.path / name} is not what a run writes; use another folder")
        return read

    def open(self, asked: dict[str, Any], *, resume: bool | None) -> Path | None:
        """Take the folder for a run; returns where an earlier run was put, if it was.

        Args:
            asked: recipe, seed and settings; a folder of another run is refused.
            resume: True needs a checkpoint, False sets what is there aside, None goes on if it can.
        """
        self._take()
        aside = self._set_aside() if resume is False else None
        # a run that reached nothing, such as one with a wrong data folder, is no run to protect
        reached = checkpoints(self.checkpoints) or self.result() is not None
        before = self.description() if reached else None
        if reached and before is None:
            raise UsageError(
                f"{self.path} holds a run and no run.json that says which: "
                "choose another folder with --out, or start anew with --fresh"
            )
        if before is not None:
            if isinstance(before.get("settings"), dict):
                # a setting that was not there yet when the run began is as it is now, and how
                # fast a step is may change on the way
                was = {k: v for k, v in before["settings"].items() if k not in HOW}
                before["settings"] = asked["settings"] | was
            for key, value in asked.items():
                if before.get(key, value if key in LATER else None) != value:
                    raise UsageError(
                        f"{self.path} holds a run with {_differs(key, before.get(key), value)}: "
                        "choose another folder with --out, or start anew with --fresh"
                    )
        if resume and not reached:
            raise UsageError(f"{self.path} has no checkpoint to resume: leave --resume out")
        if before is None:
            self.write("run.json", asked)
        return aside

    def _take(self) -> None:
        """Make the folder and keep other processes from writing to it."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.lock = FileLock(self.path / ".lock")
            self.lock.acquire(timeout=0)
        except Timeout:
            raise UsageError(f"another process is training into {self.path}") from None
        except OSError as error:
            raise InputError(
                f"{self.path} cannot be written ({error.strerror}); choose another with --out"
            ) from None

    def close(self) -> None:
        """Let other processes have the folder."""
        if self.lock is not None:
            self.lock.release()

    def _set_aside(self) -> Path | None:
        """Keep an earlier run beside this one; nothing is deleted, nothing else is moved."""
        entries = [entry for entry in self.path.iterdir() if entry.name in FILES]
        if not entries:
            return None
        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-%f")
        path = self.path.absolute()
        aside = path.with_name(f"{path.name}.before-{stamp}")
        aside.mkdir()
        for entry in entries:
            entry.rename(aside / entry.name)
        return aside

    def write(self, name: str, value: dict[str, Any]) -> None:
        """A JSON file, whole or not at all."""
        write_text(self.path / name, json.dumps(value, indent=2) + "\n")

    def log(self, row: dict[str, Any]) -> None:
        """A line of metrics."""
        append_line(self.metrics, json.dumps(row))

    def epochs(self) -> list[dict[str, Any]]:
        """What was logged of each epoch, in order."""
        rows = {}
        for line in read_lines(self.metrics):
            with suppress(ValueError, TypeError, AttributeError):
                row = json.loads(line)
                whole = all(type(row.get(key)) is int for key in ("epoch", "step"))
                if row.get("kind") == "epoch" and whole:
                    numbers = {k: v for k, v in row.items() if isinstance(v, int | float)}
                    rows[row["epoch"]] = numbers
        return [rows[epoch] for epoch in sorted(rows)]

    def forget_after(self, step: int) -> None:
        """Drop metrics of steps that a resumed run takes again."""
        kept = []
        for line in read_lines(self.metrics):
            with suppress(ValueError, TypeError, AttributeError):
                if json.loads(line).get("step", 0) <= step:
                    kept.append(line)
        if self.metrics.exists():
            write_text(self.metrics, "".join(f"{line}\n" for line in kept))


def _differs(key: str, before: object, now: object) -> str:
    if isinstance(before, dict) and isinstance(now, dict):
        for name in before.keys() | now.keys():
            if before.get(name) != now.get(name):
                return f"{name} {before.get(name)} and not {now.get(name)}"
    if key == "files_sha256":
        return "images of other names or sizes than --data has now"
    if isinstance(before, list) and isinstance(now, list):
        return f"{key} {', '.join(map(str, before))} and not {', '.join(map(str, now))}"
    return f"{key} {before} and not {now}"


def described(recipe: Recipe, seed: int, own: Path | None) -> dict[str, Any]:
    """What makes two runs the same run."""
    run = {"recipe": recipe.name, "seed": seed, "settings": recipe.settings(), "data": None}
    if own is None:
        return run
    own = own.expanduser().resolve()
    # whether a tenth is held out where there is nothing else to score
    hold_out = recipe.hold_out or "hold_out" not in recipe.asked
    found = describe_folder(own) if own.is_dir() else {}
    return {**run, "data": str(own), "hold_out": hold_out, **found}


def unfinished(path: Path, recipe: Recipe, seed: int) -> bool:
    """Whether a folder holds this very run, begun and not ended."""
    folder = RunFolder(path)
    try:
        return folder.result() is None and folder.description() == described(recipe, seed, None)
    except InputError:
        return False
