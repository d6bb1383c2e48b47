"""The command ``torchcaps list``."""

import json
from typing import Annotated, Any

import typer

from torchcaps.cli.shared import Json


def list_recipes(
    as_json: Json = False,
    networks: Annotated[
        bool, typer.Option("--networks", help="List the networks instead, with their sizes.")
    ] = False,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print a Markdown table.")
    ] = False,
) -> None:
    """List every recipe: data set, parameters, the paper's number and ours."""
    rows = _networks() if networks else _recipes()
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    columns = (
        ("network", "images", "classes", "parameters", "paper")
        if networks
        else ("recipe", "dataset", "parameters", "paper", "ours", "epochs", "where")
    )
    table = [columns, *([_cell(column, row[column]) for column in columns] for row in rows)]
    if as_markdown:
        for number, line in enumerate(table):
            typer.echo(f"| {' | '.join(line)} |")
            if not number:
                typer.echo("|" + "---|" * len(columns))
        return
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    right = ("parameters", "classes", "paper", "ours", "epochs")
    for line in table:
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for cell, width, column in zip(line, widths, columns, strict=True)
        ]
        typer.echo("  ".join(cells).rstrip())
    if not networks and all(row["ours"] is None for row in rows):
        typer.echo("ours: no row in results/accuracy.csv of this folder", err=True)


def _networks() -> list[dict[str, Any]]:
    from torchcaps.models.zoo import ZOO, count_parameters

    return [
        {
            "network": name,
            "images": "x".join(str(n) for n in entry.image_shape),
            "classes": entry.n_classes,
            "parameters": count_parameters(name),
            "paper": entry.paper,
        }
        for name, entry in ZOO.items()
    ]


def _recipes() -> list[dict[str, Any]]:
    from functools import cache

    from torchcaps.models.zoo import count_parameters
    from torchcaps.recipes import RECIPES
    from torchcaps.results import ACCURACY, read_rows, summarize

    count = cache(count_parameters)
    recorded = summarize(read_rows(ACCURACY)) if ACCURACY.exists() else []
    ours = {one.recipe: one for one in reversed(recorded)}  # complete runs come first
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
            "measure": recipe.measure,
            "notes": recipe.notes,
            "settings": recipe.settings(),
        }
        for name, recipe in RECIPES.items()
    ]


def _cell(column: str, value: object) -> str:
    if value is None:
        return "-"
    if column == "parameters":
        return f"{value:,}"
    return f"{value:.2f}" if isinstance(value, float) else str(value)
