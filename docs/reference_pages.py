"""Write the generated pages of the reference: routings, recipes, data sets, commands, API.

The pages are Markdown files in a folder that Git ignores. ``conf.py`` writes them before a build.
"""

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import typer
from routing_pages import autodoc, one_line, routing_pages
from typer.core import TyperGroup, TyperOption

from torchcaps.cli import app
from torchcaps.data import SETS
from torchcaps.models.zoo import count_parameters
from torchcaps.papers import PAPERS
from torchcaps.recipes import RECIPES
from torchcaps.results.tables import markdown_table

API = {
    "Capsules, votes and outputs": ("torchcaps.capsules", "torchcaps.votes"),
    "Functions and losses": ("torchcaps.functional",),
    "Layers": ("torchcaps.layers",),
    "Networks": ("torchcaps.models",),
    "Loading and classifying": ("torchcaps.inference", "torchcaps.preprocessing"),
    "The routing contract": ("torchcaps.routing.base", "torchcaps.testing"),
    "Data": ("torchcaps.data",),
    "Recipes": ("torchcaps.recipes", "torchcaps.recipes.losses", "torchcaps.recipes.schedules"),
    "Training": ("torchcaps.train",),
    "Export": ("torchcaps.export",),
    "Analysis": ("torchcaps.analysis",),
    "Figures": ("torchcaps.figures",),
    "Results": ("torchcaps.results",),
    "Optimizers": ("torchcaps.optim",),
    "Errors": ("torchcaps.errors",),
}
"""Title of each page of the API, and the modules whose public names it describes."""


def write_reference(folder: Path) -> None:
    """Write every generated page into a folder, and remove pages of earlier builds."""
    pages = {
        **dict(routing_pages()),
        "recipes": recipes_page(),
        "data-sets": data_sets_page(),
        "commands": commands_page(),
        **dict(api_pages()),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.md"):
        if path.stem not in pages:
            path.unlink()
    for name, text in pages.items():
        path = folder / f"{name}.md"
        if not path.is_file() or path.read_text() != text:  # an unchanged page is not built again
            path.write_text(text)


def recipes_page() -> str:
    """Return a table of the recipes of each paper."""
    parts = [
        "# Recipes\n\nA recipe fixes everything about a training run but its seed. "
        "`torchcaps train NAME` runs it, and `--set key=value` changes a setting. "
        '"paper" is the accuracy in percent that the paper prints, at "where". The notes below '
        "each table say what the paper leaves open and how the recipe differs from it.\n"
    ]
    for key, paper in PAPERS.items():
        rows = [
            (
                f"`{name}`",
                recipe.dataset,
                f"{count_parameters(recipe.network):,}",
                "" if recipe.published.value is None else f"{recipe.published.value:.2f}",
                recipe.published.where,
                str(recipe.epochs),
            )
            for name, recipe in RECIPES.items()
            if name.startswith(f"{key}/")
        ]
        headings = ("recipe", "data set", "parameters", "paper", "where", "epochs")
        if rows:
            table = markdown_table(headings, rows)
            parts.append(f"## {paper.label}\n\n{table}\n\n{_recipe_notes(key)}\n")
    return "\n".join(parts)


def _recipe_notes(key: str) -> str:
    """Return the notes of a paper's recipes as a list, recipes with the same note together."""
    names_by_note: dict[str, list[str]] = {}
    for name, recipe in RECIPES.items():
        if name.startswith(f"{key}/") and recipe.notes:
            names_by_note.setdefault(recipe.notes, []).append(f"`{name.partition('/')[2]}`")
    return "\n".join(f"- {', '.join(names)}: {note}" for note, names in names_by_note.items())


def data_sets_page() -> str:
    """Return a table of the data sets that load by name."""
    rows = [
        (
            f"`{name}`",
            one.about,
            "x".join(map(str, one.shape)),
            str(len(one.classes)),
            ", ".join(f"{split} {count:,}" for split, count in one.counts.items()),
            one.source,
        )
        for name, one in SETS.items()
    ]
    headings = ("name", "contents", "shape", "classes", "images", "source")
    return (
        "# Data sets\n\n`torchcaps.data.load(NAME)` loads a set as uint8 tensors. Its files "
        "are in the folder `TORCHCAPS_DATA`, or in the cache folder if that is not set. Missing "
        "files are downloaded and checked by pinned hash. A folder of your own images loads as "
        "`load('./flowers')`.\n\n"
        f"{markdown_table(headings, rows)}\n\n"
        '`"train"` and `"test"` are the published splits. `"fit"` and `"validation"` divide '
        '`"train"` 90 to 10.\n'
    )


def commands_page() -> str:
    """Return the help of every command."""
    group = typer.main.get_command(app)
    parts = ["# Command line\n\n" + _command_text("torchcaps", group)]
    parts += [f"## {name}\n\n{_command_text(name, command)}" for name, command in _commands(group)]
    return "\n".join(parts)


def _commands(group: Any, above: str = "torchcaps") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        full = f"{above} {name}"
        yield full, command
        if isinstance(command, TyperGroup):
            yield from _commands(command, full)


def _command_text(name: str, command: Any) -> str:
    context = command.make_context(name, [], resilient_parsing=True)
    rows = [
        (_parameter_name(parameter), one_line(getattr(parameter, "help", "") or ""))
        for parameter in command.params
        if not getattr(parameter, "hidden", False)
    ]
    usage = f"{name} {' '.join(command.collect_usage_pieces(context))}"
    table = f"\n{markdown_table(('argument', 'meaning'), rows)}\n" if rows else ""
    return f"{one_line(command.help or '')}\n\n```text\n{usage}\n```\n{table}"


def _parameter_name(parameter: Any) -> str:
    if isinstance(parameter, TyperOption):
        return ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    return f"`{(parameter.name or '').upper()}`"


def api_pages() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each page of the API, and of their list."""
    names = []
    for title, modules in API.items():
        try:
            imported = [importlib.import_module(module) for module in modules]
        except ModuleNotFoundError as error:
            if error.name not in modules:
                raise
            continue
        name = f"api-{re.sub(r'[^a-z]+', '-', title.lower())}"
        names.append(name)
        yield name, f"# {title}\n\n" + "\n".join(_module_text(module) for module in imported)
    listed = "\n".join(names)
    yield "api", f"# API\n\n```{{toctree}}\n:maxdepth: 1\n\n{listed}\n```\n"


def _module_text(module: ModuleType) -> str:
    doc = inspect.getdoc(module) or ""
    names = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__.startswith(module.__name__)
    ]
    names.sort(key=lambda name: inspect.isabstract(getattr(module, name)))  # base classes last
    shown = f"`import {module.__name__}`\n\n{doc.partition(chr(10) * 2)[0]}\n\n"
    return shown + autodoc(module, names)
