"""The command line: strings become objects here, and errors become one sentence."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

app = typer.Typer(
    help="Capsule networks: build, train, measure and look into them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        from torchcaps import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Capsule networks: build, train, measure and look into them."""


@app.command(name="list")
def list_networks(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print a Markdown table.")
    ] = False,
) -> None:
    """Every published network: images, classes, parameters, and what its paper says."""
    from rich.console import Console
    from rich.table import Table

    from torchcaps.models.zoo import ZOO, count_parameters

    rows = [
        {
            "network": name,
            "images": "x".join(str(n) for n in entry.image_shape),
            "classes": entry.n_classes,
            "parameters": count_parameters(name),
            "paper": entry.paper,
        }
        for name, entry in ZOO.items()
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    headings = ("network", "images", "classes", "parameters", "paper")
    lines = [
        [f"{row[h]:,}" if h == "parameters" else str(row[h]) for h in headings] for row in rows
    ]
    if as_markdown:
        typer.echo(f"| {' | '.join(headings)} |\n|---|---|---|---|---|")
        for line in lines:
            typer.echo(f"| {' | '.join(line)} |")
        return
    table = Table(*headings)
    for line in lines:
        table.add_row(*line)
    Console().print(table)


@app.command()
def demo(
    steps: Annotated[int, typer.Option(min=1, help="Training steps of each network.")] = 300,
    seed: Annotated[int, typer.Option(help="One number that fixes everything drawn.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
) -> None:
    """Train six routings on pictures of parts, whose arrangement alone tells them apart."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
    from rich.table import Table

    from torchcaps.demo import CONTENDERS, Result, train

    results: dict[str, Result] = {}
    console = Console(stderr=as_json)
    columns = (
        TextColumn("{task.description:32}"),
        BarColumn(),
        TextColumn("loss {task.fields[loss]:.3f}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bars:
        for name, contender in CONTENDERS.items():
            task = bars.add_task(name, total=steps, loss=float("nan"))

            def show(step: int, loss: float, task: TaskID = task) -> None:
                bars.update(task, completed=step, loss=loss)

            results[name] = train(contender, steps=steps, seed=seed, progress=show)
    if as_json:
        typer.echo(json.dumps({name: asdict(result) for name, result in results.items()}, indent=2))
        return
    table = Table(title="Six arrangements of the same four parts, 2,000 unseen pictures")
    table.add_column("routing")
    for heading in ("accuracy", "parameters", "seconds"):
        table.add_column(heading, justify="right")
    for name, result in results.items():
        table.add_row(
            name, f"{result.accuracy:.1%}", f"{result.parameters:,}", f"{result.seconds:.1f}"
        )
    console.print(table)
    console.print("Guessing is right once in six. Next: the examples in README.md.")
