"""The demo's page in a browser: every image loads, nothing is fetched, no error on the console."""

import os
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from torchcaps.cli import app

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: apt install chromium")
def test_all_images_load_without_a_console_error(tmp_path: Path) -> None:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    command = ["demo", "dynamic", "--steps", "1", "--out", str(tmp_path / "demo")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    index = tmp_path / "demo" / "figures" / "index.html"
    assert f"Figures: {index}" in result.output.replace("\n", "")
    moved = tmp_path / "alone" / "index.html"
    moved.parent.mkdir()
    index.rename(moved)
    problems: list[str] = []
    requests: list[str] = []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"], env={**os.environ, "DISPLAY": ""}
        )
        page = browser.new_page()
        page.on("console", lambda m: problems.append(m.text) if m.type != "log" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("requestfailed", lambda request: problems.append(request.url[:80]))
        page.on("request", lambda request: requests.append(request.url[:20]))
        page.goto(moved.as_uri())
        page.wait_for_load_state("networkidle")
        sizes = page.eval_on_selector_all(
            "img", "all => all.map(i => [i.complete, i.naturalWidth, i.naturalHeight, i.width])"
        )
        headings = page.locator("h2").all_inner_texts()
        page.locator("details").first.click()
        numbers = page.locator("details pre").first.inner_text()
        browser.close()
    assert not problems
    assert all(url.startswith(("data:", "file:")) for url in requests)
    assert len(sizes) > 10
    for complete, width, height, shown in sizes:
        assert complete
        assert width > 300
        assert height > 200
        assert 0 < shown <= width
    assert {"Reconstructions", "Parse tree", "Equivariance", "Robustness"} <= set(headings)
    assert '"prediction"' in numbers
