"""Draw the figures of a paper, and write them and their captions into its page."""

import json
import textwrap
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from io import BytesIO
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

from torchcaps.figures.papers.drawings import DRAWINGS
from torchcaps.figures.papers.panels import AXES, Drawing, DrawnPanel, Record
from torchcaps.figures.report import plain
from torchcaps.figures.style import DPI, TEXT, Line, blank, name_axes
from torchcaps.papers import PAPERS
from torchcaps.results import find_curve, read_rows, write_between
from torchcaps.storage import write_bytes

MARK = "figures"
FOLDER = "pictures"
NUMBERS = "Numbers"
"""Key of a PNG's text that holds the hash of the numbers drawn."""

WIDTH = 120
MAX_NAMES = 6
"""Most recipes that a caption names as not measured."""

UNWATCHED = "These runs did not watch their test accuracy: training accuracy is drawn."


def write_pictures(paper: str, page: str | Path, record: str | Path) -> bool:
    """Draw the figures of a paper beside its page; return whether page or pictures changed.

    Pictures go to the folder ``pictures`` beside the page. One whose numbers are those of the
    record is left alone. A figure without a recorded run gets a sentence instead of a picture.

    Args:
        paper: the paper's key.
        page: the page, with the marks ``figures``.
        record: the CSV of finished runs, with the folder ``curves`` beside it.
    """
    page = Path(page)
    recorded = Record(read_rows(record), partial(find_curve, record))
    parts, changed = [], False
    for drawing in DRAWINGS[paper]:
        panels = [panel for one in drawing.panels if (panel := recorded.panel(one)).lines]
        missing = sorted({name for one in drawing.panels for name in recorded.missing(one)})
        name = f"{paper}-{drawing.name.lower().replace(' ', '-').replace('.', '')}.png"
        parts.append(_caption(paper, drawing, panels, missing, name))
        if panels:
            changed |= _write_picture(page.parent / FOLDER / name, panels)
    return write_between(page, MARK, "\n\n".join(parts)) or changed


def _caption(
    paper: str, drawing: Drawing, panels: Sequence[DrawnPanel], missing: Sequence[str], name: str
) -> str:
    words = [f"**{drawing.name}.** {drawing.caption}"]
    if any(panel.y.startswith("training accuracy") for panel in panels):
        words.append(UNWATCHED)
    if len(missing) > MAX_NAMES:
        words.append(f"{len(missing)} of its rows are not measured yet, see the tables.")
    elif missing:
        names = ", ".join(recipe.partition("/")[2] for recipe in missing)
        words.append(f"Not measured yet: {names}.")
    if not panels:
        words.append("There is no picture yet.")
    text = textwrap.fill(" ".join(words), WIDTH, break_on_hyphens=False, break_long_words=False)
    if not panels:
        return text
    alt = f"{drawing.name} of {PAPERS[paper].label}, drawn from our runs"
    return f"{text}\n\n![{alt}]({FOLDER}/{name})"


def _write_picture(path: Path, panels: Sequence[DrawnPanel]) -> bool:
    numbers = sha256(json.dumps(plain(panels)).encode()).hexdigest()
    if path.is_file() and read_numbers(path) == numbers:
        return False
    data = BytesIO()
    metadata = {"Software": "torchcaps", NUMBERS: numbers}
    draw_panels(panels).savefig(data, format="png", dpi=DPI, metadata=metadata)
    path.parent.mkdir(exist_ok=True)
    write_bytes(path, data.getvalue())
    return True


def read_numbers(path: Path) -> str | None:
    """Return the hash of the numbers that a picture was drawn from."""
    with Image.open(path) as image:
        return image.info.get(NUMBERS)


def draw_panels(panels: Sequence[DrawnPanel]) -> Figure:
    """Draw the panels of a figure, two side by side."""
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = blank(4.8 * columns, 3.4 * rows, rows=rows, columns=columns)
    for axis in axes[len(panels) :]:
        axis.remove()
    for axis, panel in zip(axes, panels, strict=False):
        for number, line in enumerate(panel.lines):
            style = Line.number(number)
            for stroke in line.strokes:
                xs, ys = zip(*stroke, strict=True)
                axis.plot(
                    xs,
                    ys,
                    label=line.label if stroke is line.strokes[0] else None,
                    color=style.color,
                    linestyle=style.dash,
                    marker=style.marker if panel.x != "epoch" else "None",
                    markersize=5,
                    linewidth=max(1.0, 2.8 - 0.6 * number),  # equal lines stay visible
                )
        name_axes(axis, panel.x, panel.y, panel.title)
        axis.grid(alpha=0.3)
        axis.locator_params(axis="x", integer=True)
        if panel.y == AXES["loss"]:
            axis.set_yscale("log")
        axis.legend(fontsize=TEXT - 3, framealpha=0.8)
    return figure
