"""The command line: strings become objects here, and errors become one sentence."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Capsule networks: build, train, measure and look into them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(help="The data sets: list them, describe one, look at one.")
app.add_typer(data_app, name="data", no_args_is_help=True)


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
    for name, images, classes, parameters, paper in (headings, *lines):
        typer.echo(f"{name:44}{images:8}{classes:>7}{parameters:>12}  {paper}".rstrip())


@app.command()
def demo(
    steps: Annotated[int, typer.Option(min=1, help="Training steps of each network.")] = 300,
    seed: Annotated[int, typer.Option(help="One number that fixes everything drawn.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
) -> None:
    """Train six routings to read digits that are drawn for it: no download, about a minute."""
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
    table = Table(title="Digits drawn from strokes, 2,000 unseen ones")
    table.add_column("routing")
    for heading in ("accuracy", "parameters", "seconds"):
        table.add_column(heading, justify="right")
    for name, result in results.items():
        table.add_row(
            name, f"{result.accuracy:.1%}", f"{result.parameters:,}", f"{result.seconds:.1f}"
        )
    console.print(table)
    console.print(
        "Look at the digits: torchcaps data show strokes. Next: the examples in README.md."
    )


@contextmanager
def one_sentence() -> Iterator[None]:
    """Show an expected error as its message and leave with status 1."""
    try:
        yield
    except (ValueError, OSError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None


def _name_or_folder(name: str) -> str | Path:
    """A known name is that data set, even where a folder is called so; write ./NAME for that."""
    from torchcaps.data import find
    from torchcaps.data.load import is_path

    if is_path(name):
        return Path(name)
    try:
        return find(name).name
    except ValueError:
        return Path(name) if Path(name).is_dir() else name


@data_app.command("list")
def data_list(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List every data set that loads by name."""
    from torchcaps.data import CATALOGUE

    if as_json:
        typer.echo(json.dumps([vars(entry) for entry in CATALOGUE.values()], indent=2))
        return
    for entry in CATALOGUE.values():
        shape = "x".join(map(str, entry.shape))
        counts = f"{entry.counts['train']:,} + {entry.counts['test']:,}"
        typer.echo(f"{entry.name:20} {shape:8} {counts:20} {entry.about} ({entry.source})")


@data_app.command("info")
def data_info(
    name: Annotated[str, typer.Argument(help="A data set that `list` shows, or a folder.")],
    root: Annotated[Path | None, typer.Option(help="Data folder.")] = None,
) -> None:
    """Describe one data set and say whether its files are there."""
    from torchcaps.data import data_folder, find, load_folder, missing_files

    with one_sentence():
        if isinstance(_name_or_folder(name), Path):
            mine = load_folder(name)
            typer.echo(f"{name}: a folder of images, {len(mine.classes)} classes")
            typer.echo(f"image   {'x'.join(map(str, mine.images.shape[1:]))}")
            typer.echo(f"{'train':12}{len(mine):>10,}")
            typer.echo(f"classes {' '.join(mine.classes)}")
            return
        entry = find(name)
        lacking = missing_files(entry.name, root)
    typer.echo(f"{entry.name}: {entry.about} ({entry.source})")
    typer.echo(f"image   {'x'.join(map(str, entry.shape))}")
    for split, count in entry.counts.items():
        typer.echo(f"{split:12}{count:>10,}")
    if entry.mean:
        typer.echo(f"mean    {' '.join(f'{value:.4f}' for value in entry.mean)}")
        typer.echo(f"std     {' '.join(f'{value:.4f}' for value in entry.std)}")
    if entry.homepage:
        typer.echo(f"from    {entry.homepage}")
    if entry.source != "built in":
        state = f"{len(lacking)} files missing, first {lacking[0]}" if lacking else "complete"
        typer.echo(f"files   {state} in {data_folder(root)}")


@data_app.command("show")
def data_show(
    name: Annotated[str, typer.Argument(help="A data set that `list` shows, or a folder.")],
    split: Annotated[str, typer.Option(help="Which part of it.")] = "train",
    count: Annotated[int, typer.Option(min=1, max=10_000, help="How many images.")] = 200,
    out: Annotated[Path | None, typer.Option(help="The PNG; default NAME-SPLIT.png.")] = None,
    root: Annotated[Path | None, typer.Option(help="Data folder.")] = None,
) -> None:
    """Write a contact sheet, ordered by class, as a PNG."""
    from torchcaps.data import contact_sheet, first_samples, load, save_png

    with one_sentence():
        loaded = load(_name_or_folder(name), split, root=root)
        images = first_samples(loaded, count)
        out = out or Path(f"{Path(name).name}-{split}.png")
        save_png(contact_sheet(images), out, zoom=2)
    typer.echo(f"{out}: {len(images)} of {len(loaded)} images")
