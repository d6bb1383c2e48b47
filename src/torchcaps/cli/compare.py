"""``torchcaps compare``: every head on one backbone, trained, measured and in one table."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchcaps.cli.campaign import (
    Devices,
    Minutes,
    Mps,
    Out,
    Parallel,
    PlanOnly,
    print_plan,
    shown,
)
from torchcaps.cli.shared import DataDir, Json

if TYPE_CHECKING:
    from torchcaps.campaign import Pace
    from torchcaps.results import ComparisonRow
    from torchcaps.study import Outcome


Routings = Annotated[
    list[str] | None,
    typer.Option(
        "--routing", metavar="FILE.py:NAME", help="A routing of your own enters too; repeatable."
    ),
]
Heads = Annotated[
    list[str] | None,
    typer.Option("--head", help="Only this head of the package; repeatable."),
]
Results = Annotated[
    Path | None,
    typer.Option("--results", help="CSV of the rows; default results/compare-STUDY.csv."),
]
Page = Annotated[Path | None, typer.Option(help="Write tables and heat map to this Markdown page.")]


def compare(
    study: Annotated[str, typer.Argument(help="quick, full or smoke.")] = "quick",
    routings: Routings = None,
    heads: Heads = None,
    minutes: Minutes = None,
    parallel: Parallel = 1,
    devices: Devices = None,
    mps: Mps = False,
    out: Out = Path("runs"),
    results: Results = None,
    page: Page = None,
    data_dir: DataDir = None,
    plan_only: PlanOnly = False,
    as_json: Json = False,
) -> None:
    """Compare routings and plain heads on equal terms; resume what is unfinished."""
    from torchcaps.campaign import Settings, mps_daemon
    from torchcaps.recipes.tools.loading import find_study
    from torchcaps.study import known_rows, plan_study, run_study, without_rows

    runs = plan_study(find_study(study), heads=heads or (), routings=routings or ())
    results = results or Path(f"results/compare-{study}.csv")
    record = out / "compare" / study / "accuracy.csv"
    settings = Settings(
        minutes=minutes,
        parallel=parallel,
        devices=tuple(devices or ()),
        runs=out,
        record=record,
        data_dir=data_dir,
    )
    pace = _pace(record)
    if plan_only:
        waiting = without_rows(runs, known_rows(results, runs))
        print_plan([run.entry for run in waiting], settings, pace, as_json)
        return
    say = _ignore if as_json else _say_measured
    with mps_daemon(wanted=mps) as environment, shown(pace, quiet=as_json) as show:
        settings = replace(settings, environment=environment)
        outcome = run_study(runs, settings, results, show=show, on_row=say)
    if page is not None and outcome.rows:
        _write_page(page, outcome.rows)
    _print_outcome(outcome, as_json)


def _pace(record: Path) -> "Pace":
    """Return the recorded times of the study's runs."""
    from torchcaps.campaign import Pace
    from torchcaps.results import read_rows

    return Pace(read_rows(record) if record.exists() else [])


def _ignore(row: Any) -> None:
    pass


def _say_measured(row: "ComparisonRow") -> None:
    typer.echo(f"{row.dataset}, {row.head}, seed {row.seed}: measured, test {row.test:.2f} %")


def _write_page(page: Path, rows: "list[ComparisonRow]") -> None:
    """Write the page, and the heat map beside it."""
    from torchcaps.figures import draw_comparison, save
    from torchcaps.results import write_comparison

    figure, _ = save(draw_comparison(rows), page.with_suffix(""))
    write_comparison(page, rows, figure.name)


def _print_outcome(outcome: "Outcome", as_json: bool) -> None:
    from torchcaps.results import comparison_text

    if as_json:
        typer.echo(json.dumps([row.to_dict() for row in outcome.rows], indent=2))
    else:
        typer.echo(comparison_text(outcome.rows))
        if outcome.missing:
            typer.echo(
                f"{len(outcome.missing)} runs are not complete yet; the same command goes on."
            )
    for worker in outcome.failed:
        typer.echo(f"{worker.entry.name} failed: {worker.problem} (see {worker.log})", err=True)
    for problem in outcome.problems:
        typer.echo(problem, err=True)
    if outcome.failed or outcome.problems:
        raise typer.Exit(1)
