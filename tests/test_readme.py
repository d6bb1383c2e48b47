"""The README's code runs and its tables are in step; test_demo checks the demo's numbers."""

import re
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from helpers.documents import run_examples
from helpers.prose import BUILT
from torchcaps.cli import app
from torchcaps.models.weights.pretrained import shipped
from torchcaps.recipes import RECIPES

README = Path(__file__).parents[1] / "README.md"


def test_the_examples_run_and_give_the_shapes_they_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = run_examples(README)
    assert names["net"].n_parameters == 1_828_817
    assert names["couplings"].shape == (2, 6, 3)
    torch.testing.assert_close(names["couplings"].sum(-1), torch.ones(2, 6))


def test_the_readme_fits_two_screens() -> None:
    assert len(README.read_text().splitlines()) <= 160


def test_the_line_of_speed_quotes_the_page_of_speeds() -> None:
    (line,) = re.findall(r"^\*\*Speed\.\*\*.*\n.*", README.read_text(), flags=re.MULTILINE)
    rows = (README.parent / "docs/speed.md").read_text().splitlines()
    images, share = re.findall(r"([\d,]+) images/s|(\d+ %)", line)
    assert any(f"| {images[0]} |" in row and f"| {share[1]} |" in row for row in rows)


def test_the_number_of_public_bugs_is_that_of_their_tests() -> None:
    names = re.findall(
        r"^def test_(.*)\(", (README.parent / "tests/routing/test_bugs.py").read_text(), re.M
    )
    bugs = {bug for name in names for bug in re.findall(r"\bb\d+|(?<=_)b\d+(?=_)", name)}
    assert f"with {len(bugs)} bugs found in public capsule code" in README.read_text()


def test_the_demo_table_names_every_routing() -> None:
    rows = re.findall(r"^\| ([\w-]+) \|.+\| [\d.]+ % \|$", README.read_text(), flags=re.MULTILINE)
    assert [f"demo/strokes-{name}" for name in rows] == [
        name
        for name, recipe in RECIPES.items()
        if name.startswith("demo/strokes") and not recipe.targets
    ]


def test_the_table_of_networks_is_the_one_the_command_prints() -> None:
    printed = CliRunner().invoke(app, ["list", "--networks", "--markdown"]).stdout
    text = (README.parent / "docs/networks.md").read_text()
    shown = re.search(r"<!-- networks -->\n(.*?)<!-- /networks -->", text, flags=re.DOTALL)
    assert shown is not None
    assert shown[1] == printed


def test_networks_that_documents_open_by_name_are_shipped() -> None:
    texts = [path.read_text() for path in (README, *README.parent.glob("docs/*.md"))]
    opened = re.findall(r"torchcaps (?:figures|evaluate) (\w+/[\w-]+)", "\n".join(texts))
    named = RECIPES.keys() & opened
    assert named
    assert named <= shipped().keys()


def test_documents_fit_their_width() -> None:
    root = README.parent
    pages = [*root.glob("*.md"), *(root / "docs").rglob("*.md"), *(root / "docs").rglob("*.py")]
    written = [page for page in pages if not BUILT & {*page.parts}]
    assert len(written) > 20
    wide = [
        f"{page.relative_to(root)}:{number}"
        for page in written
        if page.name != "RELIABILITY.md"  # a script writes it
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if len(line) > 130 and not line.lstrip().startswith("|")
    ]
    assert wide == []


def test_the_audit_lists_every_finding() -> None:
    counts = {"S": 10, "H": 6, "T": 10, "C": 5, "Z": 7, "Y": 6}
    expected = [f"{letter}{n}" for letter, count in counts.items() for n in range(1, count + 1)]
    text = (README.parent / "docs/papers/audit.md").read_text()
    assert re.findall(r"^\| ([SHTCZY]\d+) \|", text, re.MULTILINE) == expected
    for path in re.findall(r"`([\w/]+/test_\w+\.py)`", text):
        assert (README.parent / "tests" / path).is_file(), path
