"""The command line: strings become objects here, and errors become one sentence."""

from typing import Annotated

import typer

from torchcaps.cli.bench import bench
from torchcaps.cli.campaign import campaign
from torchcaps.cli.compare import compare
from torchcaps.cli.data import data_app
from torchcaps.cli.demo import demo
from torchcaps.cli.explore import explore
from torchcaps.cli.export import export
from torchcaps.cli.figures import figures
from torchcaps.cli.listing import list_recipes
from torchcaps.cli.predict import predict
from torchcaps.cli.results import results, ship
from torchcaps.cli.runs import environment, evaluate, train
from torchcaps.cli.shared import Commands

app = typer.Typer(
    cls=Commands,
    help="Capsule networks: build, train, measure and look into them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(demo)
app.command("list")(list_recipes)
app.command()(train)
app.command()(campaign)
app.command()(compare)
app.command()(evaluate)
app.command()(predict)
app.command()(explore)
app.command()(figures)
app.command()(export)
app.command()(results)
app.command()(ship)
app.command()(bench)
app.command("env")(environment)
app.add_typer(data_app, name="data", no_args_is_help=True)


def _print_version(value: bool) -> None:
    if value:
        from torchcaps import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of every error.")
    ] = False,
) -> None:
    """Capsule networks: build, train, measure and look into them."""
