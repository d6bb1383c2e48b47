"""The documentation: its examples run, the site builds, and browsers open every page in peace."""

import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import torchcaps as tc
from helpers.documents import run_examples
from helpers.repetitions import mark_slow_except

DOCS = Path(__file__).parents[2] / "docs"
TUTORIALS = sorted(path.stem for path in (DOCS / "learn").glob("*.py"))
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FEW = ("index", "start/quickstart", "papers/sabour2017", "learn/what-is-a-capsule")
WIDTHS = (400, 1440)
PYTHON = re.compile(r"^```python\n", re.MULTILINE)
WITH_EXAMPLES = [
    path.relative_to(DOCS).as_posix()
    for folder in ("start", "understand")
    for path in sorted((DOCS / folder).glob("*.md"))
    if PYTHON.search(path.read_text())
]


@pytest.mark.parametrize("page", WITH_EXAMPLES)
def test_the_examples_of_a_page_run(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_examples(DOCS / page)


@pytest.mark.parametrize("tutorial", mark_slow_except(TUTORIALS, "routing-in-five-cells"))
def test_a_tutorial_runs(
    tutorial: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    runpy.run_path(str(DOCS / "learn" / f"{tutorial}.py"))
    assert capsys.readouterr().out.strip()


def test_the_guide_says_of_every_routing_when_to_use_it() -> None:
    guide = (DOCS / "understand" / "which-routing.md").read_text()
    rows = set(re.findall(r"^\| `(\w+)` \|", guide, re.MULTILINE))
    assert {routing.__name__ for routing in tc.ROUTINGS.values()} <= rows


def test_a_few_pages_open_at_two_widths(tmp_path: Path) -> None:
    patterns = ",".join(f"{page}.*" for page in FEW)
    options = ["-D", f"include_patterns={patterns}", "-D", "nb_execution_mode=off"]
    site = build(tmp_path, *options)
    assert find_problems(site, [site / f"{page}.html" for page in FEW]) == []


@pytest.mark.slow
def test_the_whole_site_builds_without_warnings_and_every_page_opens(tmp_path: Path) -> None:
    if not (DOCS / "_vendor" / "mathjax").is_dir():
        pytest.skip("MathJax is not in docs/_vendor: make docs fetches it")
    site = build(tmp_path, "-W", "--keep-going")
    pages = [path for path in site.rglob("*.html") if "_static" not in path.parts]
    assert len(pages) > 50
    assert broken_links(pages) == []
    assert find_problems(site, pages) == []


def build(folder: Path, *options: str) -> Path:
    """Build the site in a folder, with these options of Sphinx."""
    site = folder / "html"
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", "-d", str(folder / "doctrees")]
    done = subprocess.run(
        [*command, *options, str(DOCS), str(site)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(DOCS.parent / "src")},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return site


def find_problems(site: Path, pages: Iterable[Path]) -> list[str]:
    """Open pages at two widths; return errors, requests to other hosts, and pages too wide."""
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine: apt install chromium")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    problems: list[str] = []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for width in WIDTHS:
            page = browser.new_page(viewport={"width": width, "height": 900})
            page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.on("requestfailed", lambda request: problems.append(f"failed: {request.url}"))
            page.on(
                "request",
                lambda r: problems.append(r.url) if urlsplit(r.url).scheme[:4] == "http" else None,
            )
            for path in pages:
                page.goto(path.as_uri())
                page.wait_for_load_state("load")
                page.wait_for_timeout(50)
                overflow = page.evaluate(
                    "document.documentElement.scrollWidth - document.documentElement.clientWidth"
                )
                if overflow > 0:
                    problems.append(f"{path.relative_to(site)} is {overflow} wider than {width}")
        browser.close()
    return problems


class Links(HTMLParser):
    """The addresses of links and images, and the names that links can end at."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.names: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for key, value in attrs:
            if value and (tag, key) in (("a", "href"), ("img", "src")):
                self.targets.append(value)
            elif value and key == "id":
                self.names.add(value)


def broken_links(pages: list[Path]) -> list[str]:
    """Return the internal links and images of pages that lead nowhere."""
    parsed = {page: Links(page) for page in pages}
    return [
        f"{page.name}: {target}"
        for page, links in parsed.items()
        for target in links.targets
        if not _resolves(page, target, parsed)
    ]


def _resolves(page: Path, target: str, parsed: dict[Path, Links]) -> bool:
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        return True
    path = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if not path.is_file():
        return False
    return not parts.fragment or path not in parsed or unquote(parts.fragment) in parsed[path].names


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text('<p id="here"><a href="#here"></a><a href="#there"></a><img src="no.png"></p>')
    assert broken_links([page]) == ["page.html: #there", "page.html: no.png"]
