"""The papers: each is cited under one key, title and address."""

import re
from pathlib import Path

import pytest

from torchcaps.models import ZOO
from torchcaps.papers import PAPERS, Paper
from torchcaps.recipes import RECIPES

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("paper", PAPERS.values(), ids=list(PAPERS))
def test_a_key_is_the_first_author_and_the_year(paper: Paper) -> None:
    assert paper.key == paper.label.replace(" ", "").lower()
    assert paper.label in (ROOT / "README.md").read_text()


def test_every_network_and_recipe_names_a_paper_or_the_demo() -> None:
    first = {name.partition("/")[0] for name in (*ZOO, *RECIPES)}
    assert first == {*PAPERS, "demo"}


def test_the_readme_links_every_paper_to_its_address() -> None:
    links = re.findall(r"\[(\w+ \d{4})\]\(([^)]+)\)", (ROOT / "README.md").read_text())
    assert dict(links) == {paper.label: paper.url for paper in PAPERS.values()}
