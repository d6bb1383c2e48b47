"""Every figure, for every family it applies to: labeled, of the promised size, not empty."""

import json
import math
import re
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from typer.testing import CliRunner

from helpers.networks.families import CAPSULES, DECODED, FAMILIES, ITERATED, subject
from helpers.repetitions import mark_slow_except
from helpers.runs.folders import SPEED, write_run
from torchcaps import analysis, figures
from torchcaps.analysis.walk import Walk
from torchcaps.cli import app
from torchcaps.figures.images import two_colors
from torchcaps.figures.report import plain
from torchcaps.figures.style import DPI
from torchcaps.results import read_speed
from torchcaps.train.outputs.folder import RunFolder

EFFORT = figures.Effort(samples=20, attacked=2, traced=2, pairs=1000, shown=3)
APPLIES = {
    "walk": CAPSULES,
    "reconstructions": DECODED,
    "perturbation": DECODED,
    "dimensions": DECODED,
    "true-pose": CAPSULES,
    "logits": ITERATED,
    "entropy": ITERATED,
    "use": CAPSULES,
    "routing-map": CAPSULES,
    "parse-tree": CAPSULES,
    "alignment": list(FAMILIES),
    "robustness": list(FAMILIES),
    "adversarial": list(FAMILIES),
}


def heights(axis: Axes) -> list[float]:
    """The first line of a plot."""
    return [float(value) for value in np.asarray(axis.lines[0].get_ydata())]


def check_labels(figure: Figure) -> None:
    """Every axis says what it shows."""
    assert figure.axes
    for axis in figure.axes:
        if axis.get_label() != "<colorbar>":
            assert axis.get_xlabel(), figure
        rows = [label.get_text() for label in axis.get_yticklabels()]
        assert axis.get_ylabel() or all(rows), figure


def check(figure: Figure, stem: Path) -> None:
    """The files have the promised size and something in them, and every axis has labels."""
    png, svg = figures.save(figure, stem)
    with Image.open(png) as image:
        assert image.size == tuple(round(side * DPI) for side in figure.get_size_inches())
        assert image.convert("RGB").getcolors(maxcolors=10) is None  # there are more
    assert svg.stat().st_size > 2000
    check_labels(figure)


@cache
def drawn_for(family: str) -> tuple[list[figures.Picture], list[tuple[str, str]]]:
    only = [name for name in figures.GALLERY if name in APPLIES]
    return figures.draw([subject(family)], only=only, effort=EFFORT)


DRAWN = [name for name in FAMILIES if name != "sequential"]


@pytest.mark.parametrize("family", DRAWN)
def test_every_figure_is_drawn_for_every_family_it_applies_to(family: str) -> None:
    pictures, left_out = drawn_for(family)
    drawn = {picture.name for picture in pictures}
    expected = {name for name, families in APPLIES.items() if family in families}
    assert drawn - {"cosines"} == expected
    assert {name for name, _ in left_out} == set(APPLIES) - expected
    assert all(why.startswith(f"{family}: ") for _, why in left_out)
    for picture in pictures:
        check_labels(picture.figure)
        assert len(picture.caption) > 40
        json.dumps(plain(picture.data))


@pytest.mark.parametrize("family", mark_slow_except(DRAWN, "dynamic"))
def test_every_figure_is_saved_at_the_promised_size(family: str, tmp_path: Path) -> None:
    for picture in drawn_for(family)[0]:
        check(picture.figure, tmp_path / picture.name)


@pytest.mark.parametrize("family", mark_slow_except(["dynamic", "pairwise"], "pairwise"))
def test_overlapping_digits_are_drawn_in_two_colors(family: str, tmp_path: Path) -> None:
    both = subject(family, pairs=True)
    names = ["segmentation", "parse-tree", "routing-map", "robustness", "reconstructions"]
    pictures, left_out = figures.draw([both], only=names, effort=EFFORT)
    assert [p.name for p in pictures] == ["segmentation", "routing-map", "parse-tree", "robustness"]
    assert left_out == [("reconstructions", f"{family}: its images show two objects each")]
    for picture in pictures:
        check(picture.figure, tmp_path / picture.name)
    tree = next(picture.data for picture in pictures if picture.name == "parse-tree")
    assert isinstance(tree, analysis.ParseTree)
    assert sum(node.parent == -1 for node in tree.nodes) == 2


def test_the_two_colors_add_up() -> None:
    pair = torch.zeros(1, 2, 1, 1, 3)
    pair[0, 0, ..., 0], pair[0, 1, ..., 1], pair[0, :, ..., 2] = 1, 1, 1
    orange, blue, both = two_colors(pair)[0, :, 0].T
    torch.testing.assert_close(both, (orange + blue).clamp(max=1))
    assert float(orange[0]) > float(orange[2])
    assert float(blue[2]) > float(blue[0])


def test_several_runs_share_one_plot(tmp_path: Path) -> None:
    runs = [subject("dynamic"), subject("plain")]
    pictures, _ = figures.draw(runs, only=["equivariance", "entropy", "robustness"], effort=EFFORT)
    assert [picture.name for picture in pictures] == ["entropy-0", "equivariance", "robustness"]
    scores, curves = pictures[1].data, pictures[2].data
    assert isinstance(scores, dict)
    assert list(scores) == ["dynamic", "plain", "pixels"]
    assert isinstance(curves, dict)
    labels = pictures[2].figure.axes[0].get_legend_handles_labels()[1]
    assert labels == ["dynamic", "plain"]
    for picture in pictures:
        check(picture.figure, tmp_path / picture.name)


def test_training_curves_of_several_runs_are_one_plot(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / f"seed{n}", epochs=4) for n in (0, 1)]
    figure = figures.draw_training([analysis.training_curve(folder) for folder in folders])
    check(figure, tmp_path / "training")
    assert [axis.get_ylabel() for axis in figure.axes] == ["training loss", "training accuracy (%)"]
    assert len(figure.axes[0].lines) == 2
    assert heights(figure.axes[0]) == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4])


def test_routing_of_a_run_is_drawn_by_epoch(tmp_path: Path) -> None:
    points = RunFolder(write_run(tmp_path / "run", epochs=4)).routing_curve()
    figure = figures.draw_routing_by_epoch(points)
    check(figure, tmp_path / "routing")
    assert heights(figure.axes[0]) == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4])
    assert heights(figure.axes[1]) == pytest.approx([0.5] * 4)
    dead, saturated = (np.asarray(line.get_ydata()) for line in figure.axes[2].lines)
    assert dead == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert saturated == pytest.approx([0.2, 0.1, 0.2 / 3, 0.05])
    assert heights(figure.axes[3]) == pytest.approx([10, 20, 30, 40])


def test_costs_are_drawn_from_the_benchmarks_rows(tmp_path: Path) -> None:
    (tmp_path / "speed.csv").write_text(SPEED)
    figure = figures.draw_cost(read_speed(tmp_path / "speed.csv"))
    check(figure, tmp_path / "cost")
    assert heights(figure.axes[1]) == [100, 120, 140]
    rows = read_speed(tmp_path / "speed.csv")
    few = [row for row in rows if row.case.startswith("z")]
    check(figures.draw_cost(few), tmp_path / "few")
    trained = [replace(row, mode="train") for row in rows if row.mode == "inference"]
    figure = figures.draw_cost(trained)
    assert figure.axes[1].get_ylabel() == "train, peak memory (MiB)"
    assert heights(figure.axes[1]) == [100, 120, 140]


def test_the_palette_is_told_apart_without_red_and_green() -> None:
    assert len(set(figures.PALETTE)) == len(figures.PALETTE)
    for blind in (DEUTERANOPE, PROTANOPE):
        seen = [lab(simulated(color, blind)) for color in figures.PALETTE]
        for first, second in combinations(seen, 2):
            # 2.3 is just noticeable
            assert math.dist(first, second) > 10


# Vienot, Brettel and Mollon 1999: linear red, green and blue as people without the middle or the
# long cones see them
DEUTERANOPE = ((0.29275, 0.70725, 0.0), (0.29275, 0.70725, 0.0), (-0.02234, 0.02234, 1.0))
PROTANOPE = ((0.11238, 0.88762, 0.0), (0.11238, 0.88762, 0.0), (0.00401, -0.00401, 1.0))
Matrix = tuple[tuple[float, float, float], ...]


def simulated(color: str, blind: Matrix) -> list[float]:
    """Linear light that is left of a color."""
    values = [int(color[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    light = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values]
    return [sum(w * v for w, v in zip(row, light, strict=True)) for row in blind]


def lab(light: list[float]) -> tuple[float, float, float]:
    """CIE L*a*b* under D65, where distances are as people see them."""
    rows = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    xyz = [sum(w * v for w, v in zip(row, light, strict=True)) for row in rows]
    white = (0.9505, 1.0, 1.089)
    ratios = [v / w for v, w in zip(xyz, white, strict=True)]
    x, y, z = (r ** (1 / 3) if r > 0.008856 else 7.787 * r + 16 / 116 for r in ratios)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def test_numbers_are_written_as_json_has_them() -> None:
    value = {
        "a": torch.tensor([1.0, math.nan]),
        "b": analysis.LayerEntropy("x", "parents", (0.123456789,), 2.0),
        "c": torch.zeros(3000),
        "d": analysis.ParseTree((), ("top",)),
    }
    assert plain(value) == {
        "a": [1.0, None],
        "b": {"layer": "x", "competes_over": "parents", "entropies": [0.123457], "limit": 2.0},
        "c": "tensor [3000]",
        "d": {"nodes": [], "layers": ["top"]},
    }


def test_the_demo_report_draws_one_network_and_compares_all(tmp_path: Path) -> None:
    networks = {name: subject(name).network for name in ("dynamic", "plain")}
    seen: list[str] = []
    index = figures.demo_report(networks, tmp_path, effort=EFFORT, progress=seen.append)
    names = {path.stem for path in index.parent.glob("*.png")}
    assert {"parse-tree", "routing-map", "true-pose", "equivariance", "adversarial"} <= names
    assert "equivariance" in seen
    with pytest.raises(ValueError, match="at least one network"):
        figures.demo_report({}, tmp_path)


def test_the_command_compares_runs(tmp_path: Path) -> None:
    runs = [str(write_run(tmp_path / name)) for name in ("a", "b")]
    out = tmp_path / "figures"
    options = ["--only", "training", "--only", "reconstructions", "--only", "cost"]
    options += ["--only", "routing-by-epoch"]
    options += ["--out", str(out), "--samples", "20", "--speed", str(tmp_path / "speed.csv")]
    (tmp_path / "speed.csv").write_text(SPEED)
    result = CliRunner().invoke(app, ["figures", *runs, *options])
    assert result.exit_code == 0, result.output
    out /= "demo-strokes-dynamic-a-and-demo-strokes-dynamic-b"
    assert result.stdout.strip() == str(out / "index.html")
    assert "drawing up to 4 figures: about " in result.stderr
    assert {path.stem for path in out.glob("*.png")} == {
        "training",
        "cost",
        "reconstructions-0",
        "reconstructions-1",
        "routing-by-epoch-0",
        "routing-by-epoch-1",
    }
    text = (out / "index.html").read_text()
    assert f"torchcaps figures {runs[0]} {runs[1]} --only training" in text
    assert "97.25 %" in text
    assert "demo/strokes-dynamic a" in text


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["nowhere"], 1, "no run folder or weight file"),
        (["x", "--only", "reconstruction"], 2, "did you mean 'reconstructions'?"),
        (["x", "--device", "tpu"], 2, "there is no device"),
        (["x", "--samples", "3"], 2, "20"),
        ([], 2, "RUN_OR_WEIGHTS"),
    ],
)
def test_wrong_use_is_one_sentence(arguments: list[str], code: int, reason: str) -> None:
    result = CliRunner().invoke(app, ["figures", *arguments])
    assert result.exit_code == code
    assert reason in result.output
    assert "Traceback" not in result.output


def test_only_figures_import_matplotlib() -> None:
    source = Path(figures.__file__).parents[1]
    users = {
        path.relative_to(source).parts[0]
        for path in source.rglob("*.py")
        if "import matplotlib" in path.read_text() or "from matplotlib" in path.read_text()
    }
    assert users == {"figures"}
    assert "pyplot" not in "".join(path.read_text() for path in source.rglob("*.py"))


def test_the_walk_through_quotes_pictures_and_numbers_that_are_there() -> None:
    docs = Path(__file__).parents[2] / "docs"
    text = (docs / "looking-inside.md").read_text()
    shown = re.findall(r"!\[[^]]+\]\(([^)]+)\)", text)
    there = {f"looking-inside/{path.name}" for path in (docs / "looking-inside").glob("*.png")}
    assert set(shown) == there
    assert len(shown) == len(there) > 10
    assert all((docs / name).stat().st_size < 300_000 for name in shown)
    numbers = json.loads((docs / "looking-inside" / "numbers.json").read_text())
    names = [name for name, value in numbers.items() if isinstance(value, float)]
    assert len(names) == 5
    for name in names:
        assert re.search(rf"^\| {name} \|.*\| {numbers[name]} %", text, re.MULTILINE), name
    small, pixels = (numbers["equivariance"][name]["r2"] for name in ("small CapsNet", "pixels"))
    full = numbers["equivariance-full"]["sabour2017-mnist-modern"]["r2"]
    quoted = [
        f"true digits is {numbers['segmentation']['labels']['iou']:.3f}",
        f"with {numbers['segmentation']['absent']['ink'][1]:.2f} times the ink",
        f"agreement: {numbers['logits'][0]['changes'][0]:.4f} on average in the first",
        f"and {numbers['logits'][0]['changes'][-1]:.4f} in the fifth",
        f"changes by {numbers['logits'][0]['poses'][0]:.4f} in the first",
        f"by {numbers['logits'][0]['poses'][-1]:.4f} in the fifth",
        f"{numbers['entropy'][0]['entropies'][-1]:.4f} in three iterations",
        f"{full[0]:.2f} and {full[1]:.2f} for position, {full[6]:.2f} for thickness",
        f"{full[2]:.2f} for rotation, {full[3]:.2f} and {full[4]:.2f} for scale",
        f"and {full[5]:.2f} for shear",
        f"({pixels[6]:.2f} against {small[6]:.2f}; 2,000 pairs)",
    ]
    for low, high, name in spans(numbers):
        quoted.append(f"{name} {low:.2f} to {high:.2f}")
    words = " ".join(text.split())
    assert not [one for one in quoted if one not in words]


def spans(numbers: dict[str, Any]) -> list[tuple[float, float, str]]:
    """Smallest and largest alignment ratio of the networks the text names."""
    found = {
        "CapsNet reaches": numbers["alignment"]["small CapsNet"]["mean"],
        "the plain CNN": numbers["alignment"]["plain CNN"]["mean"],
        "*same CapsNet before training*": numbers["untrained CapsNet"],
    }
    return [(min(values), max(values), name) for name, values in found.items()]


def test_positions_of_a_small_grid_are_whole_numbers() -> None:
    couplings, scores = torch.rand(3, 10), torch.rand(10)
    walk = Walk(torch.rand(1, 28, 28), torch.rand(3, 3), (0, 1, 2), couplings, scores, 4)
    grid = figures.draw_walk(walk).axes[1]
    ticks = [*grid.get_xticks(), *grid.get_yticks()]
    assert ticks == [round(tick) for tick in ticks]
