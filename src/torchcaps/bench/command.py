"""``torchcaps bench``: measure a plan, print it, and keep it if asked."""

import json
from pathlib import Path
from typing import Annotated

import torch
import typer

from torchcaps.bench.measure import Measured, measure
from torchcaps.bench.plans import plan
from torchcaps.bench.rows import append, commit, rows_of, table

__all__ = ["bench_command"]


def bench_command(
    name: Annotated[str, typer.Argument(help="What to measure; default: what fits here.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
    repeats: Annotated[int, typer.Option(min=1, help="Steps timed for each setting.")] = 10,
    keep: Annotated[Path | None, typer.Option(help="Append the rows to this CSV file.")] = None,
) -> None:
    """Speed and memory of routings and networks on this machine."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        settings = plan(name or ("quick" if device.type == "cuda" else "small"))
    except ValueError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from error
    measured: list[Measured] = []
    for setting in settings:
        try:
            measured.append(measure(setting, device=device, repeats=repeats))
        except torch.cuda.OutOfMemoryError:
            typer.echo(f"{setting.case}, batch {setting.batch}: not enough memory", err=True)
    rows = rows_of(measured, device=device, revision=commit(Path.cwd()))
    if keep is not None:
        append(keep, rows)
    typer.echo(json.dumps(rows, indent=2) if as_json else table(rows))
