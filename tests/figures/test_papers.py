"""The figures of the papers: drawn from the recorded runs, and in step with them."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from helpers.runs.rows import row
from torchcaps.figures.papers import DRAWINGS, Counts, Curves, write_pictures
from torchcaps.figures.papers.panels import Record
from torchcaps.figures.papers.write import draw_panels, read_numbers
from torchcaps.papers import PAPERS
from torchcaps.recipes import get
from torchcaps.results import (
    ACCURACY,
    AccuracyRow,
    CurvePoint,
    append_row,
    curve_path,
    find_curve,
    read_rows,
    write_curve,
)

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs/papers"
OURS, DYNAMIC = "zhao2020/cifar10-light", "zhao2020/cifar10-light-dynamic"


def add(record: Path, run: AccuracyRow, *, watched: bool) -> None:
    """Add a run whose training accuracy is 10, 20, ... and whose test accuracy is one less."""
    append_row(record, run)
    points = [
        CurvePoint(epoch=n, step=n, train=10.0 * n, test=10.0 * n - 1 if watched else None)
        for n in range(1, run.epochs + 1)
    ]
    write_curve(curve_path(record, run), points)


def open_record(record: Path) -> Record:
    return Record(read_rows(record), lambda run: find_curve(record, run))


@pytest.mark.parametrize("paper", DRAWINGS)
def test_captions_and_pictures_are_those_of_the_record(paper: str, tmp_path: Path) -> None:
    page = Path(shutil.copy(PAGES / f"{paper}.md", tmp_path))
    shutil.copytree(PAGES / "pictures", tmp_path / "pictures")
    assert not write_pictures(paper, page, ROOT / ACCURACY), "run torchcaps results --write"


def test_every_picture_is_on_a_page() -> None:
    shown = {
        name
        for paper in DRAWINGS
        for name in re.findall(r"\]\(pictures/([^)]+)\)", (PAGES / f"{paper}.md").read_text())
    }
    assert shown == {path.name for path in (PAGES / "pictures").iterdir()}
    assert len(shown) >= 4


def test_figures_show_recipes_of_their_paper() -> None:
    for paper, drawings in DRAWINGS.items():
        assert paper in PAPERS
        for panel in (panel for drawing in drawings for panel in drawing.panels):
            if isinstance(panel, Curves):
                names = [*panel.recipes.values()]
            else:
                names = [name for series in panel.recipes.values() for name in series.values()]
            assert {get(name).name.partition("/")[0] for name in names} == {paper}


@pytest.mark.parametrize("watched", [True, False])
def test_a_panel_draws_test_accuracy_where_all_runs_watched_it(
    watched: bool, tmp_path: Path
) -> None:
    record = tmp_path / "accuracy.csv"
    for seed in (0, 1):
        add(record, row(OURS, seed, epochs=4, recipe_epochs=4), watched=True)
    add(record, row(DYNAMIC, 0, epochs=3, recipe_epochs=4), watched=watched)
    panel = open_record(record).panel(Curves("CIFAR-10", {"ours": OURS, "dynamic": DYNAMIC}))
    assert panel.y == ("test" if watched else "training") + " accuracy (%)"
    (axis,) = draw_panels([panel]).axes
    labels = axis.get_legend_handles_labels()[1]
    assert labels == ["ours (n = 2)", "dynamic (n = 1, 3 of 4 epochs)"]
    expected = [10.0 * n - watched for n in range(1, 5)]
    assert [np.asarray(line.get_ydata()).tolist() for line in axis.lines] == [
        expected,
        expected,
        expected[:3],
    ]


def test_runs_of_other_lengths_share_no_line(tmp_path: Path) -> None:
    record = tmp_path / "accuracy.csv"
    name = "tsai2020/cifar10-simple-{}"
    for n in (1, 2):
        append_row(record, row(name.format(n), 0, 80.0 + n, epochs=30, recipe_epochs=350))
    append_row(record, row("tsai2020/cifar10-simple", 0, 87.0, epochs=350, recipe_epochs=350))
    old = {"definition": 1}
    append_row(record, row(name.format(3), 0, 70.0, epochs=350, recipe_epochs=350, changes=old))
    panel = Counts("all", {"ours": {n: name.format(n) for n in range(1, 5)}})
    recorded = open_record(record)
    lines = {line.label: line.strokes for line in recorded.panel(panel).lines}
    assert lines == {
        "ours (n = 1, 30 of 350 epochs)": (((1, 81), (2, 82)),),
        "ours (n = 1)": (((2, 87),),),  # the same network under its other name
        "ours (n = 1, superseded)": (((3, 70),),),
    }
    assert recorded.missing(panel) == [name.format(4)]


def test_a_new_run_changes_the_picture_and_the_caption(tmp_path: Path) -> None:
    record, page = tmp_path / "accuracy.csv", tmp_path / "zhao2020.md"
    page.write_text("<!-- figures -->\n<!-- /figures -->\n")
    append_row(record, row())
    assert write_pictures("zhao2020", page, record)
    assert page.read_text().count("There is no picture yet.") == 2
    picture = tmp_path / "pictures/zhao2020-figure-4.png"
    seen = []
    for seed in (0, 1):
        add(record, row(OURS, seed, epochs=4, recipe_epochs=4), watched=False)
        assert write_pictures("zhao2020", page, record)
        seen.append(read_numbers(picture))
        before = picture.stat().st_mtime_ns
        assert not write_pictures("zhao2020", page, record)
        assert picture.stat().st_mtime_ns == before
    assert None not in seen
    assert len(set(seen)) == 2
    text = " ".join(page.read_text().split())
    assert "](pictures/zhao2020-figure-4.png)" in text
    assert "Not measured yet: cifar10-light-dynamic, fashion-mnist-light," in text
