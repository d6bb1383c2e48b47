"""Write the pages of the routings: equations beside code, cost, and advice."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType

import torchcaps
from torchcaps import routing
from torchcaps.results.tables import markdown_table

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "torchcaps"
GUIDE = ROOT / "docs" / "understand" / "which-routing.md"


def routing_pages() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of one page per routing, and of their overview."""
    advice = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", GUIDE.read_text(), re.MULTILINE))
    facts = []
    for cls in routing_classes():
        path = Path(inspect.getfile(cls)).relative_to(PACKAGE)
        name = f"routing-{path.stem.replace('_', '-')}"
        yield name, _routing_page(cls, path, advice.get(cls.__name__, ""))
        facts.append((f"[`{cls.__name__}`]({name}.md)", *_routing_facts(cls).values()))
    headings = ("routing", *_routing_facts(routing_classes()[0]))
    listed = "\n".join(row[0].partition("(")[2][:-4] for row in facts)
    yield (
        "routings",
        "# Routings\n\nEach page shows the equations of the paper beside the function that "
        "implements them, its cost, and when to use it.\n\n"
        f"{markdown_table(headings, facts)}\n\n"
        "r is the number of iterations, and votes are `[b i j e]`: batch, child, parent, pose. "
        "[Which routing](../../understand/which-routing.md) gives advice, and "
        "[the tutorial](../../learn/your-own-routing.py) shows how to write one.\n\n"
        f"```{{toctree}}\n:hidden:\n\n{listed}\n```\n",
    )


def _routing_facts(cls: type[routing.Routing]) -> dict[str, str]:
    """Return what the table of routings says about one."""
    costs = [
        re.search(r"Cost: (.*?)\.(?:\n|$)", inspect.getdoc(function) or "", re.DOTALL)
        for function in _functions(inspect.getmodule(cls))
    ]
    return {
        "couplings compete over": cls.competes_over.replace("none", "nothing"),
        "a head scores by": cls.scores_by,
        "fused kernel": "no" if cls.kernel is None else "yes",
        "cost": next(one_line(cost[1]) for cost in costs if cost).replace("``", "`"),
    }


def _routing_page(cls: type[routing.Routing], path: Path, advice: str) -> str:
    module = inspect.getmodule(cls)
    assert module is not None
    assert module.__doc__ is not None
    title, _, notes = module.__doc__.partition("\n\n")
    equations, deviations = re.split(r"^Deviations:\s*", notes, maxsplit=1, flags=re.MULTILINE)
    functions = _functions(module)
    use = f"**Use it** {advice}.\n\n".replace(" | ", ".\n\n**Choose another** ", 1)
    facts = [(key, text) for key, text in _routing_facts(cls).items()]
    return (
        f"---\nhide-toc: true\n---\n\n# {cls.__name__}\n\n{title}\n\n"
        + (use if advice else "")
        + f"{markdown_table(('', ''), facts)}\n\n"
        + "## Equations beside code\n\n"
        + "::::::{grid} 1 1 2 2\n:class-container: beside\n\n"
        + f":::::{{grid-item}}\n:columns: 12 12 5 5\n\n{_as_markdown(equations)}\n:::::\n\n"
        + f":::::{{grid-item}}\n:columns: 12 12 7 7\n\nFrom `src/torchcaps/{path}`:\n\n"
        + "".join(f"```python\n{_without_docstring(one)}\n```\n\n" for one in _shown(module))
        + ":::::\n::::::\n\n"
        + f"## Deviations\n\n{_as_markdown(deviations[:1].upper() + deviations[1:])}\n\n"
        + "## API\n\n"
        + autodoc(module, [*(one.__name__ for one in functions), cls.__name__])
    )


def _functions(module: ModuleType | None) -> list[FunctionType]:
    """Return the public functions that a routing's module defines and the package exports."""
    return [
        value
        for name, value in vars(module).items()
        if inspect.isfunction(value)
        and value.__module__ == getattr(module, "__name__", None)
        and hasattr(torchcaps, name)
    ]


def _shown(module: ModuleType) -> list[FunctionType]:
    """Return the public functions of a module and those they call, except checks of arguments."""
    shown = _functions(module)
    for caller in shown:
        for one in inspect.getclosurevars(caller).globals.values():
            own = inspect.isfunction(one) and one.__module__ == module.__name__
            if own and one not in shown and "raise " not in inspect.getsource(one):
                shown.append(one)
    return shown


def _without_docstring(function: FunctionType) -> str:
    """Return the source of a function without its docstring."""
    source = inspect.getsource(function)
    first = ast.parse(source).body[0]
    assert isinstance(first, ast.FunctionDef)
    start, end = first.body[0].lineno - 1, first.body[0].end_lineno
    lines = source.splitlines()
    return "\n".join(lines[:start] + lines[end:] if ast.get_docstring(first) else lines).rstrip()


def _as_markdown(notes: str) -> str:
    """Return notes with their indented blocks as text blocks, and their paragraphs as prose."""
    parts = []
    for part in notes.strip("\n").split("\n\n"):
        if part.startswith("    "):
            parts.append(f"```text\n{_without_wide_gaps(inspect.cleandoc(part))}\n```")
        else:
            prose = re.sub(r":\w+:`(\w+)`", r"`\1`", part.replace("``", "`"))
            parts.append(re.sub(r"(?<=\s)(https?://\S+?)(?=[,.;)]?\s)", r"<\1>", f"{prose}\n"))
    return "\n\n".join(parts)


def routing_classes() -> list[type[routing.Routing]]:
    """Return the routing classes of the package, in the order in which it exports them."""
    return [
        value
        for value in vars(routing).values()
        if inspect.isclass(value)
        and issubclass(value, routing.Routing)
        and not inspect.isabstract(value)
    ]


def _without_wide_gaps(equations: str) -> str:
    """Narrow the gaps between columns of equations to three spaces."""
    lines = equations.splitlines()
    width = max(map(len, lines))
    blank = "".join(
        " " if all(line[column : column + 1] in ("", " ") for line in lines) else "x"
        for column in range(width)
    )
    dropped = {c for gap in re.finditer(" {4,}", blank) for c in range(gap.start() + 3, gap.end())}
    return "\n".join(
        "".join(character for column, character in enumerate(line) if column not in dropped)
        for line in lines
    )


def autodoc(module: ModuleType, names: list[str]) -> str:
    """Return directives that document names of a module, under the module that defines them."""
    lines = []
    for name in names:
        value = getattr(module, name)
        kind = "autofunction" if inspect.isfunction(value) else "autoclass"
        options = [] if kind == "autofunction" else ["   :members:"]
        lines += [f".. {kind}:: {value.__module__}.{name}", *options, ""]
    return "```{eval-rst}\n" + "\n".join(lines) + "```\n"


def one_line(text: str) -> str:
    """Return a text without line breaks."""
    return " ".join(text.split())
