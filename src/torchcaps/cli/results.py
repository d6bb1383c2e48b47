"""``torchcaps results`` and ``ship``: from finished runs to tables and weights."""

import json
from pathlib import Path
from typing import Annotated

import typer

from torchcaps.cli.shared import DataDir, Device, Json
from torchcaps.errors import InputError

__all__ = ["results", "ship"]

Record = Annotated[Path, typer.Option("--results", help="The CSV of finished runs.")]
Write = Annotated[
    bool, typer.Option("--write", help="Write the tables into README.md and docs/results.md too.")
]


def results(
    record: Record = Path("results/accuracy.csv"),
    add: Annotated[
        list[Path] | None,
        typer.Option(help="A run folder, a recipe trained here, or a CSV: what to add first."),
    ] = None,
    write: Write = False,
    as_json: Json = False,
) -> None:
    """Print what was reached beside the papers' numbers: mean, spread and number of runs."""
    from dataclasses import asdict

    from torchcaps.results import merge, read_rows, summarize, text
    from torchcaps.train.evaluation.publish import finished_runs, keep

    for path in add or []:
        if path.suffix == ".csv":
            merge(record, path)
            continue
        for run in finished_runs(path):
            if not keep(run, record):
                typer.echo(f"{run.path} scored no test images and has no row", err=True)
    rows = read_rows(record)
    if as_json:
        typer.echo(json.dumps([asdict(entry) for entry in summarize(rows)], indent=2))
    else:
        typer.echo(text(rows))
    if write:
        _write_tables(record)


def ship(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Folders of finished runs or of their seeds, or recipes trained here."),
    ],
    store: Annotated[str, typer.Option(help="int8 or float16.")] = "int8",
    into: Annotated[
        Path | None, typer.Option(help="Where the files go; default the package's own folder.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the file of a better run too.")
    ] = False,
    record: Record = Path("results/accuracy.csv"),
    write: Write = False,
    data_dir: DataDir = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Keep finished runs: rows, curves, and the best weights of each recipe in a small file."""
    from torchcaps.models.weights.packed import check_store
    from torchcaps.train.evaluation.publish import finished_runs, keep, ship as ship_runs

    check_store(store)
    found = [run for path in runs for run in finished_runs(path)]
    if into is not None and into.exists() and not into.is_dir():
        raise InputError(f"{into} is not a folder: choose another with --into")
    for run in found:
        keep(run, record)
    written = ship_runs(
        found,
        store=store,
        into=into,
        record=record,
        replace=replace,
        data_dir=data_dir,
        device=device,
    )
    if write:
        _write_tables(record)
    if as_json:
        typer.echo(json.dumps({str(path): facts for path, facts in written.items()}, indent=2))
        return
    for path, facts in written.items():
        if "stayed" in facts:
            typer.echo(f"{path} stays: {facts['stayed']}")
            continue
        typer.echo(
            f"{path}: {facts['test']:.2f} % of {facts['images']:,} images, seed {facts['seed']}, "
            f"{path.stat().st_size:,} bytes"
        )


def _write_tables(record: Path) -> None:
    from torchcaps.models.weights.pretrained import facts
    from torchcaps.results import read_rows, write_page, write_readme

    rows = read_rows(record)
    write_readme("README.md", rows)
    write_page("docs/results.md", rows, facts())
