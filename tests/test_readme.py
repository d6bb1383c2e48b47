"""The README's code runs and its tables are in step; test_demo checks the demo's numbers."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from torchcaps.cli import app
from torchcaps.models import ZOO
from torchcaps.models.weights.pretrained import shipped
from torchcaps.recipes import RECIPES

README = Path(__file__).parents[1] / "README.md"


def test_the_examples_run_and_give_the_shapes_they_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert len(blocks) == 7
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
        for line in block.splitlines():
            claim = re.match(r"((?:routed|out|batch)\.[\w.]+) *# (\[[\d, ]+\])", line)
            if claim:
                shape = list(eval(claim[1], names).shape)
                assert str(shape) == claim[2]
    torch.testing.assert_close(names["routed"].couplings.sum(-1), torch.ones(2, 1152))
    assert names["net"].n_parameters == 1_828_817
    assert names["out"].poses.shape == (2, 10, 16)
    assert names["couplings"].shape == (2, 6, 3)


def test_the_first_screen_says_what_is_there_and_no_more() -> None:
    readme = README.read_text()
    first = readme.partition("```")[0]
    speed = readme.partition("<!-- speed -->")[2].partition("<!-- /speed -->")[0]
    cells = {cell.strip() for cell in speed.replace(",", "").split("|")}
    claimed = re.findall(r"(\b\d+ %|\b\d{3,}\b)(?! networks| recipes)", first.replace(",", ""))
    assert len(claimed) == 6
    assert set(claimed) <= cells
    for kind, known in (("networks", ZOO), ("recipes", RECIPES)):
        published = [name for name in known if not name.startswith("demo/")]
        assert f"{len(published)} {kind}" in first


def test_the_demo_table_names_every_routing() -> None:
    rows = re.findall(r"^\| ([\w-]+) \|.+\| [\d.]+ % \|$", README.read_text(), flags=re.MULTILINE)
    assert [f"demo/strokes-{name}" for name in rows] == [
        n for n in RECIPES if n.startswith("demo/strokes")
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


@pytest.mark.parametrize(
    "document",
    [
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "docs/networks.md",
        "docs/looking-inside.md",
        "docs/results.md",
    ],
)
def test_documents_fit_their_width(document: str) -> None:
    lines = (README.parent / document).read_text().splitlines()
    assert all(len(line) <= 130 for line in lines if not line.startswith("|"))


def test_the_audit_lists_every_finding() -> None:
    counts = {"S": 10, "H": 6, "T": 10, "C": 5, "Z": 7, "Y": 6}
    expected = [f"{letter}{n}" for letter, count in counts.items() for n in range(1, count + 1)]
    text = (README.parent / "docs/papers/audit.md").read_text()
    assert re.findall(r"^\| ([SHTCZY]\d+) \|", text, re.MULTILINE) == expected
    for path in re.findall(r"`(\w+/test_\w+\.py)`", text):
        assert (README.parent / "tests" / path).is_file(), path
