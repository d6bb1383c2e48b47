"""``torchcaps bench``: measure a plan, print it, and keep it if asked."""

import json
from pathlib import Path
from typing import Annotated

import typer

from torchcaps.cli.shared import Json, make_folder
from torchcaps.errors import UsageError

__all__ = ["bench"]


def bench(
    name: Annotated[str, typer.Argument(help="What to measure; default: what fits here.")] = "",
    as_json: Json = False,
    repeats: Annotated[int, typer.Option(min=1, help="Steps timed for each setting.")] = 10,
    keep: Annotated[Path | None, typer.Option(help="Append the rows to this CSV file.")] = None,
) -> None:
    """Speed and memory of routings and networks on this machine."""
    import torch

    from torchcaps.bench import append, measure, plan, rows_of, table
    from torchcaps.train.facts import revision

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    settings = plan(name or ("quick" if device.type == "cuda" else "small"))
    if keep is not None:
        make_folder(keep.parent, "--keep")
        append(keep, [])
    measured, rows = [], []
    for setting in settings:
        try:
            measured.append(measure(setting, device=device, repeats=repeats))
        except UsageError as error:
            typer.echo(str(error), err=True)
            continue
        rows = rows_of(measured, device=device, revision=revision())
        if keep is not None:
            append(keep, rows[-1:])
    if not rows:
        raise typer.Exit(1)
    typer.echo(json.dumps(rows, indent=2) if as_json else table(rows))
