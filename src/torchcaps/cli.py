"""The command line: strings become objects here, and errors become one sentence."""

import typer

app = typer.Typer(
    help="Capsule networks: build, train, measure and look into them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def main() -> None:
    """Capsule networks: build, train, measure and look into them."""
