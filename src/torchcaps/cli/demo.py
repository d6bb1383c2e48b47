"""``torchcaps demo``: train several routings on generated digits."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchcaps.cli.shared import Json, make_folder
from torchcaps.errors import UsageError

if TYPE_CHECKING:
    from torchcaps.results import AccuracyRow

DEFAULT = ("dynamic", "inverted-attention", "pairwise")

NEXT = """\
Next:
  torchcaps explore                          draw a digit, watch a network read it
  torchcaps demo all                         compare {} routings
  torchcaps figures sabour2017/mnist-modern  look inside a trained network
  torchcaps list                             list every published row\
"""


def demo(
    routings: Annotated[
        list[str] | None, typer.Argument(help="Routings to train; `all` for all of them.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Training steps of each network.")] = 300,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder of runs and figures.")] = Path("runs/demo"),
    figures: Annotated[bool, typer.Option(help="Draw figures at the end.")] = True,
    as_json: Json = False,
) -> None:
    """Train three routings on generated digits: no download, a minute or two."""
    from rich.console import Console

    chosen = _choose(routings or list(DEFAULT))
    make_folder(out, "--out")
    console = Console()
    if not as_json:
        console.print(
            f"Training {len(chosen)} small capsule networks on generated digits, {steps} steps "
            "each: half a minute per network or less, on two free cores.",
            soft_wrap=True,
            highlight=False,
        )
    rows = {name: _train(name, steps, seed, out / name, as_json) for name in chosen}
    if as_json:
        typer.echo(json.dumps({name: row.to_dict() for name, row in rows.items()}, indent=2))
        return
    _print_table(console, rows)
    if figures:
        _draw(console, rows, out)
    console.print(NEXT.format(len(_choose(["all"]))), soft_wrap=True, highlight=False)


def _choose(names: list[str]) -> list[str]:
    """Return the routings that are named, or all of them."""
    from torchcaps.recipes import RECIPES

    demos = [name for name, one in RECIPES.items() if not one.targets]
    known = [name.partition("strokes-")[2] for name in demos if name.startswith("demo/strokes-")]
    for name in names:
        if name not in (*known, "all"):
            raise UsageError(f"there is no routing {name!r}: take {', '.join(known)} or all")
    return known if "all" in names else names


def _train(routing: str, steps: int, seed: int, folder: Path, quiet: bool) -> "AccuracyRow":
    """Train one routing, or resume its run; return its row."""
    from torchcaps.recipes import get
    from torchcaps.train import TrainOptions, train
    from torchcaps.train.outputs.folder import is_unfinished
    from torchcaps.train.outputs.report import reporter_for

    recipe = get(f"demo/strokes-{routing}")
    recipe = recipe.override(limit=steps * recipe.batch_size)
    options = TrainOptions(
        seed=seed,
        out=folder,
        resume=None if is_unfinished(folder, recipe, seed) else False,
        reporter=reporter_for(sys.stdout, quiet=quiet, title=f"{routing:20}"),
        tensorboard=False,
    )
    return train(recipe, options)


def _print_table(console: Any, rows: "dict[str, AccuracyRow]") -> None:
    """Print accuracy, parameters and time of each routing."""
    from rich.table import Table

    table = Table(title="Digits drawn from strokes: 10,000 test images")
    table.add_column("routing")
    for heading in ("accuracy", "parameters", "seconds"):
        table.add_column(heading, justify="right")
    for routing, row in rows.items():
        table.add_row(routing, f"{row.test:.1f} %", f"{row.parameters:,}", f"{row.seconds:.1f}")
    console.print(table)


def _draw(console: Any, rows: "dict[str, AccuracyRow]", out: Path) -> None:
    """Draw the report of the demo and print its path."""
    from torchcaps.figures import demo_report
    from torchcaps.models import load

    with console.status("drawing figures") as status:
        index = demo_report(
            {name: load(out / name / "weights.safetensors") for name in rows},
            out / "figures",
            command=f"torchcaps demo --out {out}",
            results=rows,
            progress=lambda name: status.update(f"drawing {name}"),
        )
    console.print(f"Figures: {index}", soft_wrap=True)
