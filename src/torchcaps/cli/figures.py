"""``torchcaps figures``: draw figures of trained networks."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from torchcaps.cli.shared import DataDir, Device, load_own, make_folder

SPEED = Path("results/speed.csv")


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
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("figures"),
    recipe: Annotated[
        str | None,
        typer.Option(
            help="Recipe of data and transforms, or your FILE.py:NAME; default the run's."
        ),
    ] = None,
    samples: Annotated[
        int, typer.Option(min=20, max=1_000_000, help="Test images of each measurement.")
    ] = 1000,
    speed: Annotated[Path, typer.Option(help="CSV file of the benchmark, for costs.")] = SPEED,
    device: Device = "auto",
) -> None:
    """Draw a page of figures: routing, parse trees, equivariance, robustness."""
    from torchcaps.analysis import open_subject
    from torchcaps.figures import Effort, check_names, report
    from torchcaps.train.process import choose_device

    check_names(only or ())
    where = choose_device(device)
    chosen = load_own(recipe)
    subjects = [open_subject(run, data_dir=data_dir, recipe=chosen, device=where) for run in runs]
    make_folder(out, "--out")
    words = ["torchcaps", "figures", *runs]
    for name in only or ():
        words += ["--only", name]
    if recipe:
        words += ["--recipe", recipe]
    index = report(
        subjects,
        out,
        command=shlex.join([*words, "--samples", str(samples), "--out", str(out)]),
        only=only or (),
        effort=Effort(samples=samples, attacked=min(200, samples), speed=speed),
        progress=lambda name: typer.echo(f"drawing {name}", err=True),
    )
    typer.echo(f"{index}")
