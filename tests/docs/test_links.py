"""The links of Markdown files lead somewhere when a code host shows the files as they are."""

import re
from collections.abc import Iterator
from pathlib import Path

from helpers.prose import ROOT, documents

LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def test_relative_links_and_anchors_resolve() -> None:
    pages = [path for path in documents() if path.suffix == ".md"]
    links = [(page, link) for page in pages for link in relative_links(page)]
    assert len(links) > 60
    broken = [(page.relative_to(ROOT), link) for page, link in links if not resolves(page, link)]
    assert broken == []


def test_a_missing_file_or_heading_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One `two`, three\n[a](#one-two-three) [b](#four) [c](no.md) `[d](e.md)`\n")
    assert [resolves(page, link) for link in relative_links(page)] == [True, False, False]


def relative_links(page: Path) -> Iterator[str]:
    """Yield the links and images of a page that lead to files or headings."""
    for link in LINK.findall(CODE.sub("", page.read_text())):
        if not re.match(r"[a-z]+:", link):
            yield link


def resolves(page: Path, link: str) -> bool:
    """Return whether a file exists and, for Markdown, has the heading of the link."""
    name, _, heading = link.partition("#")
    target = page.parent / name if name else page
    if heading and target.suffix == ".md":
        return target.is_file() and heading in headings(target)
    return target.exists()


def headings(page: Path) -> set[str]:
    """Return the anchors that a code host gives the headings of a page."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}
