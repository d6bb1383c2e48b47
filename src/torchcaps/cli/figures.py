"""``torchcaps figures``: draw figures of trained networks."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchcaps.cli.shared import DataDir, Device, counting, load_own, make_folder

if TYPE_CHECKING:
    from torchcaps.analysis import Subject
    from torchcaps.figures import Effort

SPEED = Path("results/speed.csv")

Out = Annotated[Path, typer.Option(help="Folder to write to: each network gets a folder in it.")]
RecipeName = Annotated[
    str | None,
    typer.Option(help="Recipe of data and transforms, or your FILE.py:NAME; default the run's."),
]
Samples = Annotated[
    int, typer.Option(min=20, max=1_000_000, help="Test images of each measurement.")
]
Quick = Annotated[
    bool, typer.Option("--quick", help="Measure few images: a first look, with more noise.")
]


def figures(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN_OR_WEIGHTS...",
            help="Run folders, weight files or recipes; several are compared.",
        ),
    ],
    only: Annotated[
        list[str] | None, typer.Option(help="Draw only this figure; may be repeated.")
    ] = None,
    data_dir: DataDir = None,
    out: Out = Path("figures"),
    recipe: RecipeName = None,
    samples: Samples = 1000,
    quick: Quick = False,
    speed: Annotated[Path, typer.Option(help="CSV file of the benchmark, for costs.")] = SPEED,
    device: Device = "auto",
) -> None:
    """Draw a page of figures: routing, parse trees, equivariance, robustness."""
    from torchcaps import figures as drawing
    from torchcaps.analysis import open_subject
    from torchcaps.train.process import choose_device

    drawing.check_names(only or ())
    where = choose_device(device)
    chosen = load_own(recipe)
    subjects = [open_subject(run, data_dir=data_dir, recipe=chosen, device=where) for run in runs]
    make_folder(out, "--out")
    folder = drawing.subject_folder(out, subjects)
    options = [word for name in only or () for word in ("--only", name)]
    options += ["--recipe", recipe] if recipe else []
    options += ["--quick"] if quick else ["--samples", str(samples)]
    if quick:
        effort = replace(drawing.QUICK, speed=speed)
    else:
        effort = drawing.Effort(samples=samples, attacked=min(200, samples), speed=speed)
    seconds = _estimate(subjects, only or (), effort, quick)
    with counting() as count:
        index = drawing.report(
            subjects,
            folder,
            command=shlex.join(["torchcaps", "figures", *runs, *options, "--out", str(out)]),
            only=only or (),
            effort=effort,
            progress=_bar(count, seconds),
        )
    typer.echo(f"{index}")


def _estimate(
    subjects: "Sequence[Subject]", only: Sequence[str], effort: "Effort", quick: bool
) -> dict[str, float]:
    """Say about how long the figures take, and return the seconds of each."""
    from torchcaps.figures import GALLERY, estimate_seconds

    names = [name for name in GALLERY if not only or name in only]
    seconds = estimate_seconds(subjects, names, effort)
    typer.echo(_announce(len(names), sum(seconds.values()), quick), err=True)
    return seconds


def _announce(count: int, seconds: float, quick: bool) -> str:
    """Return the number of figures and about how long they take."""
    duration = f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
    advice = "; --quick measures fewer images" if seconds > 60 and not quick else ""
    return f"drawing up to {count} figures: about {duration}{advice}"


def _bar(
    count: Callable[[str, int, int], None], seconds: Mapping[str, float]
) -> Callable[[str], None]:
    """Return what advances a bar by the expected share of each figure, when the next one starts."""
    total, before = round(10 * sum(seconds.values())), 0

    def progress(name: str) -> None:
        nonlocal before
        count("figures", total, before)
        before = round(10 * seconds[name])

    return progress
