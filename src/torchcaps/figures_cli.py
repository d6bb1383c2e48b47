"""``torchcaps figures``: one line in the command line's module registers it."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["figures"]


def figures(
    places: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN_OR_WEIGHTS...",
            help="Run folders, weight files or recipes with shipped weights; several: compare.",
        ),
    ],
    only: Annotated[
        list[str] | None, typer.Option(help="Draw only this figure; may be given several times.")
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Data folder.")] = None,
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("figures"),
    dataset: Annotated[
        str | None, typer.Option(help="Other test images than the network's own.")
    ] = None,
    samples: Annotated[
        int, typer.Option(min=20, max=1_000_000, help="Test images of each measurement.")
    ] = 1000,
    speed: Annotated[Path, typer.Option(help="Rows of the benchmark, for the costs.")] = Path(
        "results/speed.csv"
    ),
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Look inside: reconstructions, routing, parse trees, equivariance, robustness, costs."""
    from torchcaps.analysis import open_subject
    from torchcaps.figures.base import Effort
    from torchcaps.figures.gallery import GALLERY, report

    try:
        wrong = [name for name in only or () if name not in GALLERY]
        if wrong:
            raise ValueError(f"there is no figure {wrong[0]!r}; there are {', '.join(GALLERY)}")
        subjects = [
            open_subject(place, data_dir=data_dir, dataset=dataset, device=device)
            for place in places
        ]
        effort = Effort(samples=samples, attacked=min(200, samples), speed=speed)
        index = report(
            subjects,
            out,
            command=_command(places, only or [], data_dir, dataset, samples, out),
            only=only or (),
            effort=effort,
            progress=lambda name: typer.echo(f"drawing {name}", err=True),
        )
    except (ValueError, OSError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    typer.echo(f"{index}")


def _command(
    places: list[str],
    only: list[str],
    data_dir: Path | None,
    dataset: str | None,
    samples: int,
    out: Path,
) -> str:
    """The command that repeats this."""
    words = ["torchcaps", "figures", *places]
    for name in only:
        words += ["--only", name]
    if dataset:
        words += ["--dataset", dataset]
    if data_dir:
        words += ["--data-dir", str(data_dir)]
    return shlex.join([*words, "--samples", str(samples), "--out", str(out)])
