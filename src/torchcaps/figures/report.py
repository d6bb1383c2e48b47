"""A folder of pictures with a self-contained ``index.html``."""

import base64
import dataclasses
import html
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.errors import InputError
from torchcaps.figures.style import save
from torchcaps.storage import write_text

MAX_NUMBERS = 2000


@dataclass(frozen=True, eq=False)
class Picture:
    """One figure of a report.

    Attributes:
        name: name of its files; letters, digits and hyphens.
        group: heading of the page; pictures of one group stand side by side.
        title: title of the picture.
        caption: content of the picture and how to read it.
        figure: the drawing.
        data: its numbers, of any type that :func:`plain` takes.
        subjects: names of the networks that are drawn.
    """

    name: str
    group: str
    title: str
    caption: str
    figure: Figure
    data: object = field(default_factory=dict)
    subjects: tuple[str, ...] = ()


def plain(value: object) -> object:
    """Convert numbers for JSON: data classes and named tuples to objects, tensors to lists.

    A tensor of more than 2,000 numbers, such as an image, is replaced by its shape.
    """
    if isinstance(value, Tensor):
        if value.numel() > MAX_NUMBERS:
            return f"tensor {list(value.shape)}"
        return plain(value.detach().cpu().tolist())
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    fields = getattr(value, "_fields", None)
    if isinstance(value, tuple) and fields:
        return {name: plain(one) for name, one in zip(fields, value, strict=True)}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [plain(one) for one in value]
    return value if isinstance(value, str | int | bool) or value is None else str(value)


def write_report(
    pictures: Sequence[Picture],
    out: str | Path,
    *,
    title: str,
    command: str,
    table: Sequence[Mapping[str, str]] = (),
    left_out: Sequence[tuple[str, str]] = (),
) -> Path:
    """Write PNG, SVG and JSON of every picture, and the page.

    Args:
        pictures: pictures in the order of the page.
        out: the folder; created if missing.
        title: title of the page.
        command: command line to show on the page.
        table: one row for each network, all with the same columns.
        left_out: (figure, reason) of the figures that were not drawn.

    Returns:
        The path of ``index.html``, which embeds its images.
    """
    out = _folder(out)
    parts: list[str] = []
    groups = list(dict.fromkeys(picture.group for picture in pictures))
    for group in groups:
        shown = "\n".join(_figure(one, out) for one in pictures if one.group == group)
        parts.append(
            f'<section id="{_slug(group)}"><h2>{html.escape(group)}</h2>'
            f'<div class="side">{shown}</div></section>'
        )
    contents = " ".join(f'<a href="#{_slug(g)}">{html.escape(g)}</a>' for g in groups)
    page = PAGE.format(
        title=html.escape(title),
        command=html.escape(command),
        contents=contents,
        table=_table(table),
        body="\n".join(parts),
        left_out=_left_out(left_out),
    )
    index = out / "index.html"
    write_text(index, page)
    return index


def _folder(out: str | Path) -> Path:
    out = Path(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{out} cannot be written ({error.strerror}): choose another") from None
    return out


def write_picture(picture: Picture, out: str | Path) -> tuple[Path, Path, Path]:
    """Write PNG, SVG and JSON of a picture into a folder and return their paths."""
    out = _folder(out)
    png, svg = save(picture.figure, out / picture.name)
    data = out / f"{picture.name}.json"
    write_text(data, json.dumps(plain(picture.data), indent=1))
    return png, svg, data


def _figure(picture: Picture, out: Path) -> str:
    png, svg, data = write_picture(picture, out)
    numbers = plain(picture.data)
    encoded = base64.b64encode(png.read_bytes()).decode()
    width, height = (round(side * picture.figure.dpi) for side in picture.figure.get_size_inches())
    return (
        f'<figure id="{picture.name}"><h3>{html.escape(picture.title)}</h3>'
        f'<div class="wide"><img alt="{html.escape(picture.title)}" width="{width}" '
        f'height="{height}" {"class=row " * (width > 2 * height)}'
        f'src="data:image/png;base64,{encoded}"></div>'
        f"<figcaption>{_names(picture)}{html.escape(picture.caption)} "
        f'(<a href="{png.name}">PNG</a>, <a href="{svg.name}">SVG</a>, '
        f'<a href="{data.name}">data</a>)</figcaption>'
        f"<details><summary>numbers</summary><pre>{html.escape(_excerpt(numbers))}</pre></details>"
        "</figure>"
    )


def _names(picture: Picture) -> str:
    """Return the networks of a picture as the beginning of its caption."""
    names = html.escape(", ".join(picture.subjects))
    return f"<b>{names}</b>. " if names else ""


def _excerpt(numbers: object, *, limit: int = 20_000) -> str:
    text = json.dumps(numbers, indent=1)
    return text if len(text) <= limit else f"{text[:limit]}\n... the rest is in the data file"


def _table(rows: Sequence[Mapping[str, str]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{html.escape(key)}</th>" for key in rows[0])
    lines = (
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row.values()) + "</tr>"
        for row in rows
    )
    body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody>"
    return f'<div class="wide"><table>{body}</table></div>'


def _left_out(reasons: Sequence[tuple[str, str]]) -> str:
    if not reasons:
        return ""
    items = "".join(f"<li>{html.escape(a)}: {html.escape(why)}</li>" for a, why in reasons)
    return f'<section id="left-out"><h2>Not drawn</h2><ul>{items}</ul></section>'


def _slug(text: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in text.lower())


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; margin: 0 auto;
  max-width: 1500px; padding: 1.5rem; }}
h1 {{ font-size: 1.5rem; }} h2 {{ font-size: 1.2rem; border-bottom: 1px solid #ccc; }}
h3 {{ font-size: 1rem; margin: 0 0 .3rem; }}
nav a {{ margin-right: .8rem; }}
a {{ color: #0072b2; }}
code, pre {{ background: #f3f3f3; padding: .15rem .3rem; overflow: auto; }}
pre {{ max-height: 20rem; font-size: 12px; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; margin: 1rem 0; }}
th, td {{ border: 1px solid #ccc; padding: .25rem .6rem; text-align: left; }}
.side {{ display: flex; flex-wrap: wrap; gap: 1.5rem; align-items: flex-start; }}
figure {{ margin: 0; max-width: 100%; }}
figure img {{ max-width: 100%; height: auto; }}
@media (max-width: 700px) {{ figure img.row {{ max-width: none; width: 700px; }} }}
figcaption {{ max-width: 46rem; }}
</style></head><body>
<h1>{title}</h1>
<p>Made by <code>{command}</code></p>
<nav>{contents}</nav>
{table}
{body}
{left_out}
</body></html>
"""
