"""The command ``torchcaps list``."""

import json
import shutil
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from torchcaps.cli.shared import Json, Markdown, Pattern

MIN_WIDTH = 80
LEFT = ("dataset", "images", "where")
NETWORKS = ("network", "images", "classes", "parameters", "paper")
NETWORKS_NARROW = ("network", "images", "classes", "parameters", "weights")
RECIPES_WIDE = (
    *("recipe", "dataset", "parameters", "paper", "ours", "weights", "epochs", "where"),
)
RECIPES_NARROW = ("recipe", "parameters", "paper", "ours", "weights")


def list_recipes(
    pattern: Pattern = "*",
    pretrained: Annotated[
        bool, typer.Option("--pretrained", help="Only those with weights in this package.")
    ] = False,
    as_json: Json = False,
    networks: Annotated[
        bool, typer.Option("--networks", help="List the networks instead, with their sizes.")
    ] = False,
    as_markdown: Markdown = False,
) -> None:
    """List every recipe: parameters, the paper's number, ours, and that of pretrained weights.

    A wide terminal shows the data set, the epochs and the place in the paper too.
    """
    rows = _networks(pattern, pretrained) if networks else _recipes(pattern, pretrained)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    if as_markdown:
        from torchcaps.results import markdown_table

        columns = NETWORKS if networks else RECIPES_WIDE
        typer.echo(markdown_table(columns, _cells(columns, rows)))
        return
    typer.echo(_table(rows, networks=networks))
    if not networks and all(row["ours"] is None for row in rows):
        typer.echo("ours: no row in results/accuracy.csv of this folder", err=True)


def _table(rows: list[dict[str, Any]], *, networks: bool) -> str:
    """Return a table that fits the terminal, with few columns in a narrow one."""
    from torchcaps.results import text_table

    narrow = NETWORKS_NARROW if networks else RECIPES_NARROW
    wide = (*NETWORKS, "weights") if networks else RECIPES_WIDE
    width = max(MIN_WIDTH, shutil.get_terminal_size().columns)
    full = text_table(wide, _cells(wide, rows), width=10 * width, left=LEFT)
    if max(map(len, full.splitlines())) <= width:
        return full
    return text_table(narrow, _cells(narrow, rows), width=width, left=LEFT)


def _networks(pattern: str, pretrained: bool) -> list[dict[str, Any]]:
    from torchcaps.errors import select
    from torchcaps.models.weights.pretrained import pretrained_names
    from torchcaps.models.zoo import ZOO, count_parameters

    available = pretrained_names()
    return [
        {
            "network": name,
            "images": "x".join(str(n) for n in ZOO[name].image_shape),
            "classes": ZOO[name].n_classes,
            "parameters": count_parameters(name),
            "paper": ZOO[name].paper,
            "weights": "yes" if name in available else None,
        }
        for name in select(pattern, ZOO)
        if not pretrained or name in available
    ]


def networks_table() -> str:
    """Return every network with its sizes, in Markdown."""
    from torchcaps.results import markdown_table

    return markdown_table(NETWORKS, _cells(NETWORKS, _networks("*", pretrained=False)))


def _recipes(pattern: str, pretrained: bool) -> list[dict[str, Any]]:
    from functools import cache

    from torchcaps.errors import select
    from torchcaps.models.weights.pretrained import facts
    from torchcaps.models.zoo import count_parameters
    from torchcaps.recipes import RECIPES
    from torchcaps.results import ACCURACY, read_rows, summarize

    count = cache(count_parameters)
    recorded = summarize(read_rows(ACCURACY)) if ACCURACY.exists() else []
    ours = {one.recipe: one for one in reversed(recorded)}  # complete runs come first
    weights = facts()
    return [
        {
            "recipe": name,
            "dataset": recipe.dataset,
            "network": recipe.network,
            "parameters": count(recipe.network),
            "paper": recipe.published.value,
            "spread": recipe.published.spread,
            "where": recipe.published.where,
            "what": recipe.published.what,
            "ours": ours[name].mean if name in ours else None,
            "epochs": ours[name].trained if name in ours else None,
            "weights": weights[name]["test"] if name in weights else None,
            "measure": recipe.measure,
            "notes": recipe.notes,
            "settings": recipe.settings(),
        }
        for name in select(pattern, RECIPES)
        if not pretrained or name in weights
        for recipe in [RECIPES[name]]
    ]


def _cells(columns: Sequence[str], rows: Iterable[dict[str, Any]]) -> list[list[str]]:
    return [[_cell(column, row[column]) for column in columns] for row in rows]


def _cell(column: str, value: object) -> str:
    if value is None:
        return "-"
    if column == "parameters":
        return f"{value:,}"
    return f"{value:.2f}" if isinstance(value, float) else str(value)
