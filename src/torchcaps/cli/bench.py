"""``torchcaps bench``: measure a plan, and print and record its rows."""

import json
from pathlib import Path
from typing import Annotated

import typer

from torchcaps.cli.shared import Json, make_folder
from torchcaps.errors import UsageError


def bench(
    name: Annotated[str, typer.Argument(help="The plan; default quick or small.")] = "",
    as_json: Json = False,
    repeats: Annotated[int, typer.Option(min=1, help="Timed steps of each setting.")] = 10,
    keep: Annotated[Path | None, typer.Option(help="Append the rows to this CSV file.")] = None,
) -> None:
    """Measure speed and memory of networks on this machine."""
    import torch

    from torchcaps.bench import measure, plan, rows_of
    from torchcaps.provenance import revision
    from torchcaps.results import append_speed, speed_table

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    settings = plan(name or ("quick" if device.type == "cuda" else "small"))
    if keep is not None:
        make_folder(keep.parent, "--keep")
        append_speed(keep, [])
    measured, rows = [], []
    for setting in settings:
        try:
            measured.append(measure(setting, device=device, repeats=repeats))
        except UsageError as error:
            typer.echo(str(error), err=True)
            continue
        rows = rows_of(measured, device=device, revision=revision())
        if keep is not None:
            append_speed(keep, rows[-1:])
    if not rows:
        raise typer.Exit(1)
    data = [row.to_dict() for row in rows]
    typer.echo(json.dumps(data, indent=2) if as_json else speed_table(rows))
