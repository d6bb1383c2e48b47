"""``torchcaps demo``: a few routings learn to read digits that are drawn for it."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from torchcaps.cli.shared import Json
from torchcaps.errors import UsageError

__all__ = ["demo"]

USUAL = ("dynamic", "inverted-attention", "pairwise")


def demo(
    routings: Annotated[
        list[str] | None, typer.Argument(help="Which routings; `all` for all six.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Training steps of each network.")] = 300,
    seed: Annotated[int, typer.Option(min=0, help="One number that fixes everything drawn.")] = 0,
    out: Annotated[Path, typer.Option(help="Where runs and figures go.")] = Path("runs/demo"),
    figures: Annotated[bool, typer.Option(help="Draw figures at the end.")] = True,
    as_json: Json = False,
) -> None:
    """Train three routings on digits that are drawn for it: no download, a few minutes."""
    from rich.console import Console
    from rich.table import Table

    from torchcaps.recipes import RECIPES, get
    from torchcaps.train import train
    from torchcaps.train.outputs.folder import unfinished
    from torchcaps.train.outputs.report import reporter_for

    every = [name.partition("strokes-")[2] for name in RECIPES if name.startswith("demo/strokes-")]
    asked = routings or list(USUAL)
    chosen = every if "all" in asked else asked
    for routing in asked:
        if routing not in (*every, "all"):
            raise UsageError(f"there is no routing {routing!r}: take {', '.join(every)} or all")
    console = Console()
    if not as_json:
        console.print(
            f"Training {len(chosen)} small capsule networks on digits drawn for it, {steps} steps "
            "each: half a minute a network or less, on two free cores.",
            soft_wrap=True,
            highlight=False,
        )
    rows = {}
    for routing in chosen:
        recipe = get(f"demo/strokes-{routing}")
        recipe = recipe.override(limit=steps * recipe.batch_size)
        rows[routing] = train(
            recipe,
            seed=seed,
            out=out / routing,
            resume=None if unfinished(out / routing, recipe, seed) else False,
            reporter=reporter_for(sys.stdout, quiet=as_json, title=f"{routing:20}"),
            tensorboard=False,
        )
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table(title="Digits drawn from strokes: 10,000 unseen ones")
    table.add_column("routing")
    for heading in ("accuracy", "parameters", "seconds"):
        table.add_column(heading, justify="right")
    for routing, row in rows.items():
        table.add_row(
            routing, f"{row['test']:.1f} %", f"{row['parameters']:,}", f"{row['seconds']:.1f}"
        )
    console.print(table)
    if figures:
        from torchcaps.figures import demo_report
        from torchcaps.models import load

        with console.status("looking inside") as status:
            networks = {name: load(out / name / "weights.safetensors") for name in rows}
            index = demo_report(
                networks,
                out / "figures",
                command=f"torchcaps demo --out {out}",
                results=rows,
                progress=lambda name: status.update(f"looking inside: {name}"),
            )
        console.print(f"A look inside: {index}", soft_wrap=True)
    console.print(
        "Next: torchcaps demo all compares six routings; torchcaps figures sabour2017/mnist-modern "
        "looks into a network that came trained; torchcaps list shows every published row, and "
        "torchcaps train NAME trains it (on a GPU, or with --set limit=6400 to see it go).",
        soft_wrap=True,
    )
