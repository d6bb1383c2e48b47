"""The folder of a run.

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

from torchcaps.data import describe_own
from torchcaps.errors import InputError, UsageError
from torchcaps.recipes import RECIPES, Recipe
from torchcaps.results import AccuracyRow, CurvePoint, RoutingPoint
from torchcaps.storage import append_line, read_lines, write_text
from torchcaps.train.checkpoint.files import checkpoints

FILES = (
    "run.json",
    "metrics.jsonl",
    "checkpoints",
    "weights.safetensors",
    "result.json",
    "tensorboard",
)
"""The files of a run; other files in its folder are left alone."""
NEWER_KEYS = ("hold_out", "classes", "images", "files_sha256")
"""Keys that descriptions of earlier versions lack where a run has the user's own images."""
SPEED_SETTINGS = ("compile", "channels_last")
"""Settings that change the speed of a step, and of its results only the rounding."""


def default_folder(recipe: str, seed: int) -> Path:
    """Return the run folder of a recipe and seed, unless another is chosen."""
    return Path("runs") / recipe / f"seed{seed}"


class RunFolder:
    """The files of a run on disk."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoints"
        self.metrics = self.path / "metrics.jsonl"
        self.weights = self.path / "weights.safetensors"
        self._lock: FileLock | None = None

    @property
    def is_finished(self) -> bool:
        """Return whether the run has ended and has a result."""
        return self._read("result.json") is not None

    def row(self) -> AccuracyRow | None:
        """Return the row of a finished run; None while it is not finished."""
        values = self._read("result.json")
        if values is None:
            return None
        recipe = RECIPES.get(str(values.get("recipe")))
        try:
            row = AccuracyRow.from_dict(values)
        except ValueError as error:
            raise InputError(
                f"{self.path / 'result.json'} is not the result of a run: {error}; train it again"
            ) from None
        if recipe is None or "epochs" not in row.changes:
            return row
        # the results of earlier versions do not say how many epochs the recipe asks for
        changes = {key: value for key, value in row.changes.items() if key != "epochs"}
        values = {**row.to_dict(), "recipe_epochs": recipe.epochs, "changes": changes}
        return AccuracyRow.from_dict(values)

    def description(self) -> dict[str, Any] | None:
        """Return the recipe, seed and settings of the run; None before it has started."""
        return self._read("run.json")

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            content = json.loads((self.path / name).read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise InputError(
                f"{self.path / name} cannot be read ({error}): put it back, or train the run "
                "again with torchcaps train and --fresh"
            ) from None
        if not isinstance(content, dict):
            raise InputError(f"{self.path / name} is not what a run writes; use another folder")
        return content

    def open(self, expected: dict[str, Any], *, resume: bool | None) -> Path | None:
        """Lock the folder for a run; return the new folder of an earlier run that was moved aside.

        Args:
            expected: description of the run; a folder of another run is refused.
            resume: True requires a checkpoint, False moves an earlier run aside, None resumes if it
                can.
        """
        self._acquire()
        aside = self._move_aside() if resume is False else None
        # a run without a checkpoint, such as one with a wrong data folder, needs no protection
        is_started = bool(checkpoints(self.checkpoints)) or self.is_finished
        before = self.description() if is_started else None
        if before is not None:
            self._check_same(before, expected)
        elif is_started:
            raise UsageError(
                f"{self.path} holds a run and no run.json that says which: "
                "choose another folder with --out, or start over with --fresh"
            )
        if resume and not is_started:
            raise UsageError(f"{self.path} has no checkpoint to resume: leave --resume out")
        if before is None:
            self.write("run.json", expected)
        return aside

    def _check_same(self, before: dict[str, Any], expected: dict[str, Any]) -> None:
        """Refuse a folder whose run differs from the wanted one."""
        if isinstance(before.get("settings"), dict):
            # a setting that is newer than the run has its present value, and speed may change
            settings = {k: v for k, v in before["settings"].items() if k not in SPEED_SETTINGS}
            before["settings"] = expected["settings"] | settings
        for key, value in expected.items():
            if before.get(key, value if key in NEWER_KEYS else None) != value:
                raise UsageError(
                    f"{self.path} holds a run with {_difference(key, before.get(key), value)}: "
                    "choose another folder with --out, or start over with --fresh"
                )

    def _acquire(self) -> None:
        """Make the folder and lock it."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(self.path / ".lock")
            self._lock.acquire(timeout=0)
        except Timeout:
            raise UsageError(f"another process is training into {self.path}") from None
        except OSError as error:
            raise InputError(
                f"{self.path} cannot be written ({error.strerror}); choose another with --out"
            ) from None

    def is_in_use(self) -> bool:
        """Return whether a process is training into the folder."""
        path = self.path / ".lock"
        try:
            if path.exists():
                FileLock(path).acquire(timeout=0).lock.release()
        except Timeout:
            return True
        return False

    def close(self) -> None:
        """Unlock the folder."""
        if self._lock is not None:
            self._lock.release()

    def _move_aside(self) -> Path | None:
        """Move the files of an earlier run to a folder beside this one, and no other files."""
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
        """Write a JSON file, completely or not at all."""
        write_text(self.path / name, json.dumps(value, indent=2) + "\n")

    def log(self, point: CurvePoint, routing: RoutingPoint | None = None) -> None:
        """Add an epoch to the metrics."""
        append_line(self.metrics, point.to_line(routing))

    def curve(self) -> list[CurvePoint]:
        """Return the logged epochs in order; damaged lines are left out."""
        points = map(CurvePoint.from_line, read_lines(self.metrics))
        by_epoch = {point.epoch: point for point in points if point is not None}
        return [by_epoch[epoch] for epoch in sorted(by_epoch)]

    def routing_curve(self) -> list[RoutingPoint]:
        """Return the routing of the logged epochs in order."""
        points = map(RoutingPoint.from_line, read_lines(self.metrics))
        by_epoch = {point.epoch: point for point in points if point is not None}
        return [by_epoch[epoch] for epoch in sorted(by_epoch)]

    def forget_after(self, step: int) -> None:
        """Remove the metrics of steps that a resumed run takes again."""
        lines = []
        for line in read_lines(self.metrics):
            with suppress(ValueError, TypeError, AttributeError):
                if json.loads(line).get("step", 0) <= step:
                    lines.append(line)
        if self.metrics.exists():
            write_text(self.metrics, "".join(f"{line}\n" for line in lines))


def _difference(key: str, before: object, now: object) -> str:
    """Describe how a value of a run's description differs."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name in before.keys() | now.keys():
            if before.get(name) != now.get(name):
                return f"{name} {before.get(name)} and not {now.get(name)}"
    if key == "files_sha256":
        return "images of other names or sizes than --data has now"
    if isinstance(before, list) and isinstance(now, list):
        return f"{key} {', '.join(map(str, before))} and not {', '.join(map(str, now))}"
    return f"{key} {before} and not {now}"


def describe_run(
    recipe: Recipe,
    seed: int,
    own_folder: Path | None,
    start_from: str | Path | None = None,
    *,
    skip_bad: bool = False,
) -> dict[str, Any]:
    """Return what makes two runs the same run, ready for JSON.

    Args:
        recipe: the recipe.
        seed: the seed.
        own_folder: the folder or file of the user's own images.
        skip_bad: whether files of this folder that are no images are left out.
        start_from: the weights that the run starts from.
    """
    run = {"recipe": recipe.name, "seed": seed, "settings": recipe.settings(), "data": None}
    run["from"] = None if start_from is None else _name_start(start_from)
    if own_folder is None:
        return run
    own_folder = own_folder.expanduser().resolve()
    # whether a tenth is held out where there is nothing else to score
    hold_out = recipe.hold_out or "hold_out" not in recipe.overridden
    images = describe_own(own_folder)
    described = {**run, "data": str(own_folder), "hold_out": hold_out, **images}
    return {**described, "skip_bad": True} if skip_bad else described


def _name_start(start_from: str | Path) -> str:
    """Return the absolute path of weights, or the name of a recipe."""
    path = Path(start_from).expanduser()
    return str(path.resolve()) if path.exists() else path.as_posix()


def is_unfinished(path: Path, recipe: Recipe, seed: int) -> bool:
    """Return whether a folder holds this very run, started and not finished."""
    folder = RunFolder(path)
    try:
        return not folder.is_finished and folder.description() == describe_run(recipe, seed, None)
    except InputError:
        return False
