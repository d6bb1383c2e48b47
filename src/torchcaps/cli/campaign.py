"""``torchcaps campaign``: many runs side by side, within a time limit."""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchcaps.cli.shared import DataDir, Json

if TYPE_CHECKING:
    from rich.table import Table

    from torchcaps.campaign import Entry, Pace, Worker

RECORD = Path("results/accuracy.csv")
MAX_SHOWN = 8
"""Runs of a list whose live table has a row for each of them."""


Minutes = Annotated[float | None, typer.Option(min=0.5, help="Time limit; runs go on next time.")]
Parallel = Annotated[int, typer.Option(min=1, max=64, help="Runs side by side per GPU.")]
Devices = Annotated[
    list[str] | None,
    typer.Option("--device", help="cpu or cuda:N, repeated; default every GPU."),
]
Out = Annotated[Path, typer.Option(help="The folder of the run folders.")]
Mps = Annotated[
    bool, typer.Option("--mps", help="Let runs share a GPU by NVIDIA MPS, not take turns on it.")
]
PlanOnly = Annotated[bool, typer.Option("--plan", help="Print the plan and train nothing.")]


def campaign(
    runs_list: Annotated[
        Path, typer.Argument(metavar="LIST", help="A file with a recipe per line.")
    ],
    minutes: Minutes = None,
    parallel: Parallel = 1,
    devices: Devices = None,
    mps: Mps = False,
    out: Out = Path("runs"),
    record: Annotated[Path, typer.Option("--results", help="CSV file for the rows.")] = RECORD,
    data_dir: DataDir = None,
    plan_only: PlanOnly = False,
    as_json: Json = False,
) -> None:
    """Train a list of recipes and seeds side by side; resume what is unfinished."""
    from torchcaps.campaign import Pace, Settings, mps_daemon, read_list, run_campaign
    from torchcaps.results import read_rows

    entries = read_list(runs_list)
    settings = Settings(
        minutes=minutes,
        parallel=parallel,
        devices=tuple(devices or ()),
        runs=out,
        record=record,
        data_dir=data_dir,
    )
    # rows of the record and of the folder where results are kept tell how long a run takes
    files = {path.resolve(): path for path in (record, RECORD) if path.exists()}
    pace = Pace([row for path in files.values() for row in read_rows(path)])
    if plan_only:
        print_plan(entries, settings, pace, as_json)
        return
    with mps_daemon(wanted=mps) as environment, shown(pace, quiet=as_json) as show:
        workers = run_campaign(entries, replace(settings, environment=environment), show=show)
    _print_end(workers, as_json)


def _gpu(device: str) -> str:
    import torch

    from torchcaps.provenance import hardware

    return hardware(torch.device(device))


def print_plan(entries: "Sequence[Entry]", settings: Any, pace: "Pace", as_json: bool) -> None:
    """Print the expected outcome of every run, and train nothing."""
    from torchcaps.campaign import Worker, plan
    from torchcaps.campaign.runner import left

    slots = settings.slots
    workers = [Worker(entry, settings.runs, settings.record) for entry in entries]
    # runs that share a GPU slow each other down; alone is what the record knows
    seconds = left(workers, pace, _gpu(slots[0]))
    planned = plan(entries, seconds, slots=len(slots), limit=settings.seconds)
    if as_json:
        rows = [
            {"run": one.entry.name, "device": slots[one.slot], "seconds": one.seconds}
            | {"start": None if one.start == float("inf") else one.start, "expected": one.verdict}
            for one in planned
        ]
        typer.echo(json.dumps(rows, indent=2))
        return
    for one, worker in zip(planned, workers, strict=True):
        verdict = "finished" if worker.state == "finished" else one.verdict
        typer.echo(f"{_time(one.seconds):>9}  {verdict:17}  {one.entry.name}")


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


@contextmanager
def shown(pace: "Pace", *, quiet: bool) -> "Iterator[Callable[[Sequence[Worker]], None]]":
    """Yield a function that shows the state of all runs: live on a terminal, lines elsewhere."""
    if quiet:
        yield lambda workers: None
        return
    if not sys.stdout.isatty():
        yield _Lines()
        return
    from rich.live import Live

    with Live(refresh_per_second=2) as live:
        shown = 0.0

        def show(workers: "Sequence[Worker]") -> None:
            nonlocal shown
            if time.monotonic() - shown >= 0.5:
                live.update(make_table(workers, pace))
                shown = time.monotonic()

        yield show


class _Lines:
    """A printer of one line whenever the state or the epoch of a run has changed."""

    def __init__(self) -> None:
        self.last: dict[str, str] = {}

    def __call__(self, workers: "Sequence[Worker]") -> None:
        for worker in workers:
            epoch = worker.curve()[-1].epoch if worker.curve() else 0
            line = f"{worker.state} {epoch}/{worker.entry.recipe.epochs} {_accuracy(worker)}"
            if self.last.get(worker.entry.name, "waiting 0") != line and worker.state != "waiting":
                typer.echo(f"{worker.entry.name}: {line.strip()}")
            self.last[worker.entry.name] = line


def _accuracy(worker: "Worker") -> str:
    """Return the test accuracy of a finished run, or the newest one of a running run."""
    row = worker.row() if worker.state == "finished" else None
    if row is not None and row.test is not None:
        return f"test {row.test:.2f} %"
    if not worker.curve():
        return ""
    point = worker.curve()[-1]
    for name in ("test", "validation", "train"):
        if (value := getattr(point, name)) is not None:
            return f"{name} {value:.2f} %"
    return ""


def make_table(workers: "Sequence[Worker]", pace: "Pace") -> "Table":
    """Return a row per run; of a long list, the runs that are running or have failed."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, caption=_counts(workers), caption_justify="left")
    for heading in ("run", "device", "state", "epoch", "accuracy", "left"):
        table.add_column(heading, justify="right" if heading in ("epoch", "left") else "left")
    if len(workers) > MAX_SHOWN:
        workers = [worker for worker in workers if worker.state in ("running", "failed")]
    for worker in workers:
        curve, recipe = worker.curve(), worker.entry.recipe
        needed = pace.seconds_left(recipe, curve, _gpu(worker.device or "cpu"))
        table.add_row(
            worker.entry.name,
            worker.device,
            worker.state,
            f"{curve[-1].epoch if curve else 0}/{recipe.epochs}",
            _accuracy(worker),
            "" if worker.state in ("finished", "failed") else _time(needed),
        )
    return table


def _counts(workers: "Sequence[Worker]") -> str:
    """Return how many runs are in each state, such as ``2 finished, 1 failed``."""
    counts = Counter(worker.state.value for worker in workers)
    states = ("running", "finished", "saved", "waiting", "failed")
    return ", ".join(f"{counts[state]} {state}" for state in states if counts[state])


def _facts(worker: "Worker") -> dict[str, Any]:
    row = worker.row()
    return {
        "run": worker.entry.name,
        "state": worker.state,
        "folder": str(worker.path),
        "test": None if row is None else row.test,
        "problem": worker.problem,
    }


def _print_end(workers: "Sequence[Worker]", as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps([_facts(worker) for worker in workers], indent=2))
    else:
        typer.echo(_counts(workers))
    failed = [worker for worker in workers if worker.state == "failed"]
    for worker in failed:
        typer.echo(f"{worker.entry.name} failed: {worker.problem} (see {worker.log})", err=True)
    if failed:
        raise typer.Exit(1)
