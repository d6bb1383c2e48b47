"""``torchcaps results`` and ``ship``: tables and weights of finished runs."""

import json
from pathlib import Path
from typing import Annotated

import typer

from torchcaps.cli.shared import DataDir, Device, Json, Markdown, Pattern
from torchcaps.errors import InputError, UsageError

SPEED = Path("results/speed.csv")
CAMPAIGN_GPU = "NVIDIA H200"
"""The GPU for which ``benchmarks/README.md`` estimates the campaign."""

Record = Annotated[Path, typer.Option("--results", help="The CSV of finished runs.")]
Write = Annotated[
    bool,
    typer.Option("--write", help="Write the tables and pictures of README.md and docs too."),
]


def results(
    pattern: Pattern = "*",
    record: Record = Path("results/accuracy.csv"),
    add: Annotated[
        list[Path] | None,
        typer.Option(help="Add a run folder, a recipe trained here, or a CSV first."),
    ] = None,
    write: Write = False,
    as_json: Json = False,
    as_markdown: Markdown = False,
    as_latex: Annotated[
        bool, typer.Option("--latex", help="Print a LaTeX table for the package booktabs.")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, for a spreadsheet.")] = False,
) -> None:
    """Print our results beside the papers' numbers: mean, standard deviation, number of runs.

    Runs with changed settings stand below their recipe, with what they changed.
    """
    from dataclasses import asdict

    from torchcaps.errors import select
    from torchcaps.results import FORMS, entries, merge, read_rows, text
    from torchcaps.train.evaluation.publish import finished_runs, record_run

    chosen = {"json": as_json, "markdown": as_markdown, "latex": as_latex, "csv": as_csv}
    forms = [name for name, asked in chosen.items() if asked]
    if len(forms) > 1:
        raise UsageError(f"results prints one form: choose --{forms[0]} or --{forms[1]}")
    for path in add or []:
        if path.suffix == ".csv":
            merge(record, path)
            continue
        for run in finished_runs(path):
            if not record_run(run, record):
                typer.echo(f"{run.path} scored no test images and has no row", err=True)
    rows = read_rows(record)
    if pattern != "*":
        matching = set(select(pattern, dict.fromkeys(row.recipe for row in rows)))
        rows = [row for row in rows if row.recipe in matching]
    if as_json:
        typer.echo(json.dumps([asdict(entry) for entry in entries(rows, every=True)], indent=2))
    else:
        typer.echo((FORMS[forms[0]] if forms else text)(rows))
    if write:
        _write_tables(record)


def ship(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Folders of finished runs or of their seeds, or recipes trained here."),
    ],
    store: Annotated[str, typer.Option(help="int8 or float16.")] = "int8",
    into: Annotated[Path | None, typer.Option(help="Folder of the files.")] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the file of a better run too.")
    ] = False,
    record: Record = Path("results/accuracy.csv"),
    write: Write = False,
    data_dir: DataDir = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Record finished runs, and write the best weights of each recipe to a small file."""
    from torchcaps.models.weights.packed import check_store
    from torchcaps.train.evaluation.publish import finished_runs, record_run, ship as ship_runs

    check_store(store)
    finished = [run for path in runs for run in finished_runs(path)]
    if into is not None and into.exists() and not into.is_dir():
        raise InputError(f"{into} is not a folder: choose another with --into")
    for run in finished:
        record_run(run, record)
    files = ship_runs(
        finished,
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
        typer.echo(json.dumps({str(path): facts for path, facts in files.items()}, indent=2))
        return
    for path, facts in files.items():
        if "stayed" in facts:
            typer.echo(f"{path} stays: {facts['stayed']}")
            continue
        typer.echo(
            f"{path}: {facts['test']:.2f} % of {facts['images']:,} images, seed {facts['seed']}, "
            f"{path.stat().st_size:,} bytes"
        )


def _write_tables(record: Path) -> None:
    from torchcaps.campaign import write_estimates
    from torchcaps.cli.listing import networks_table
    from torchcaps.figures.papers import DRAWINGS, write_pictures
    from torchcaps.models.weights.pretrained import facts
    from torchcaps.papers import PAPERS
    from torchcaps.results import (
        gather,
        read_rows,
        write_between,
        write_coverage,
        write_page,
        write_paper,
        write_readme,
        write_runs,
    )

    rows = read_rows(record)
    evidence = gather(record, SPEED)
    write_readme("README.md", rows)
    write_page("docs/results.md", rows, facts())
    write_coverage("docs/results.md", evidence)
    write_runs("docs/runs.md", rows)
    write_between("docs/networks.md", "networks", networks_table())
    for paper in PAPERS:
        write_paper(paper, f"docs/papers/{paper}.md", evidence)
    for paper in DRAWINGS:
        write_pictures(paper, f"docs/papers/{paper}.md", record)
    write_estimates("benchmarks/README.md", "benchmarks/campaign.txt", rows, CAMPAIGN_GPU)
