"""The prose: sentences are short, in documents and docstrings, and every column is explained."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.prose import (
    Sentence,
    docstring_paragraphs,
    docstring_sentences,
    document_sentences,
    markdown_paragraphs,
    sentences_of,
)

RESULTS = Path(__file__).parents[2] / "results"
MOST_WORDS = 40
MOST_WORDS_ON_AVERAGE = 18


@pytest.mark.parametrize("sentences", [document_sentences, docstring_sentences])
def test_sentences_are_short(sentences: Callable[[], Iterator[Sentence]]) -> None:
    found = list(sentences())
    assert len(found) > 500
    assert sum(one.words for one in found) / len(found) < MOST_WORDS_ON_AVERAGE
    assert [one for one in found if one.words > MOST_WORDS] == []


def test_tables_code_and_headings_are_no_sentences() -> None:
    text = (
        "# A heading\n\nOne two. Three `four five`,\nsix.\n\n| a | b |\n|---|---|\n\n"
        "```\ncode code code\n```\n- An item\n  of two lines\n- another\n"
    )
    paragraphs = list(markdown_paragraphs(text))
    assert [" ".join(one.split()) for one in paragraphs] == [
        "One two. Three `four five`, six.",
        "An item of two lines",
        "another",
    ]
    assert [one.words for one in sentences_of(paragraphs[0], "")] == [2, 3]


def test_arguments_are_counted_without_their_names() -> None:
    doc = "Do it.\n\n    x = code of many words\n\nArgs:\n    name: the first\n        thing.\n"
    words = [s.words for part in docstring_paragraphs(doc) for s in sentences_of(part, "")]
    assert words == [2, 3]


def test_every_column_of_the_record_is_explained() -> None:
    text = (RESULTS / "README.md").read_text()
    sections = {
        name: section
        for names, section in re.findall(r"^## (.+)\n((?s:.*?))(?=^## |\Z)", text, re.M)
        for name in names.split(" and ")
    }
    tables = {path.name: path for path in RESULTS.glob("*.csv")}
    headers = {name: path.read_text().partition("\n")[0] for name, path in tables.items()}
    curves = {path.read_text().partition("\n")[0] for path in (RESULTS / "curves").iterdir()}
    headers["curves/"] = ",".join(curves)
    assert set(sections) == set(headers)
    for name, header in headers.items():
        explained = re.findall(r"^\| `(\w+)` \|", sections[name], re.M)
        assert set(explained) == set(header.split(",")), name
