"""``torchcaps bench``: measure a plan, and print and record its rows."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from torchcaps.cli.shared import Json, make_folder
from torchcaps.errors import UsageError


def bench(
    name: Annotated[
        str, typer.Argument(help="The plan, default quick or small; or `compare`.")
    ] = "",
    mine: Annotated[
        str,
        typer.Argument(help="With compare: your network, FILE.py:FUNCTION.", show_default=False),
    ] = "",
    ours: Annotated[
        str, typer.Argument(help="With compare: a name that `torchcaps list` shows.")
    ] = "sabour2017/mnist",
    as_json: Json = False,
    repeats: Annotated[int, typer.Option(min=1, help="Timed steps of each setting.")] = 10,
    keep: Annotated[Path | None, typer.Option(help="Append the rows to this CSV file.")] = None,
    batch: Annotated[int, typer.Option(min=1, help="With compare: batch size.")] = 128,
    mode: Annotated[Literal["train", "inference"], typer.Option(help="With compare.")] = "train",
    dtype: Annotated[
        Literal["float32", "bfloat16"], typer.Option(help="With compare: precision.")
    ] = "float32",
    compiles: Annotated[
        bool, typer.Option("--compile", help="With compare: compile both networks.")
    ] = False,
) -> None:
    """Measure speed and memory of networks on this machine.

    `torchcaps bench compare ./mine.py:make_net sabour2017/mnist` measures your network and ours in
    turns: same images, batch size, precision, loss and loop.
    """
    if name == "compare":
        _compare(mine, ours, as_json, repeats, batch, mode, dtype, compiles)
    elif mine:
        raise UsageError(f"only compare takes a second network, not the plan {name!r}")
    else:
        _measure(name, as_json, repeats, keep)


def _measure(name: str, as_json: bool, repeats: int, keep: Path | None) -> None:
    """Print the rows of a plan, and append them to a file."""
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


def _compare(
    mine: str,
    ours: str,
    as_json: bool,
    repeats: int,
    batch: int,
    mode: str,
    dtype: str,
    compiles: bool,
) -> None:
    """Print the speeds of the user's network and ours, and their ratio."""
    import torch

    from torchcaps.bench import compare
    from torchcaps.models import build
    from torchcaps.recipes.tools.loading import load_network

    if not mine:
        raise UsageError("compare needs your network: torchcaps bench compare ./mine.py:make_net")
    network = build(ours)
    compared = compare(
        {mine: load_network(mine), ours: network},
        image_shape=network.image_shape,
        batch=batch,
        mode=mode,
        dtype=dtype,
        compiles=compiles,
        device=torch.device("cuda" if torch.cuda.is_available() else "cpu"),
        repeats=repeats,
    )
    rows = [
        {
            "network": one.name,
            "images_per_s": one.images_per_s,
            "slow_images_per_s": one.spread[0],
            "fast_images_per_s": one.spread[1],
            "ratio": one.images_per_s / compared[0].images_per_s,
            "peak_mib": one.peak_mib,
        }
        for one in compared
    ]
    typer.echo(json.dumps(rows, indent=2) if as_json else _table(rows))


def _table(rows: list[dict[str, Any]]) -> str:
    from torchcaps.results.tables import markdown_table

    headings = ("network", "images/s", "slowest and fastest tenth", "ratio", "MiB")
    cells = [
        (
            row["network"],
            f"{row['images_per_s']:,.4g}",
            f"{row['slow_images_per_s']:,.4g} to {row['fast_images_per_s']:,.4g}",
            f"{row['ratio']:.2f}",
            "" if row["peak_mib"] is None else f"{row['peak_mib']:.0f}",
        )
        for row in rows
    ]
    return markdown_table(headings, cells)
