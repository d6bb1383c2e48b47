"""The examples of docs/export.md: each runs as printed and reads the digit as PyTorch does."""

import functools
import http.server
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from PIL import Image

import torchcaps as tc
from torchcaps.data import Batches, load

DOCUMENT = Path(__file__).parents[2] / "docs/export.md"
CHROMIUM = shutil.which("chromium")
RUNTIME = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", DOCUMENT.read_text(), flags=re.DOTALL)
    return str(found)


def prepare(folder: Path) -> tuple[str, float]:
    """Write the network and a digit; return the class and score that PyTorch gives."""
    name = "sabour2017/mnist-modern"
    tc.export(name, folder / "net.onnx")
    digit = Batches(load("strokes", "test"), 1, seed=0).batch(torch.zeros(1).long()).images[0, 0]
    Image.fromarray((digit * 255).round().byte().numpy()).save(folder / "digit.png")
    (prediction,) = tc.classify(tc.build(name, pretrained=True), folder / "digit.png")
    return str(prediction.classes[0]), prediction.scores[0]


def test_the_python_example_reads_the_digit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    expected, score = prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    code = block("python")
    assert "torch" not in re.findall(r"import (\w+)", code)
    exec(compile(code, str(DOCUMENT), "exec"), {})
    name, printed = capsys.readouterr().out.split()
    assert name == expected
    assert float(printed) == pytest.approx(score, abs=1e-5)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    handler = functools.partial(Quiet, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@pytest.mark.slow
def test_the_page_of_the_example_reads_the_digit(tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    if CHROMIUM is None:
        pytest.skip("there is no chromium on this machine")
    install = ["npm", "install", "--ignore-scripts", "--no-audit", "onnxruntime-web@1.30.0"]
    if shutil.which("npm") is None or subprocess.run(install, cwd=tmp_path, check=False).returncode:
        pytest.skip("npm cannot install onnxruntime-web")
    for name in RUNTIME:
        shutil.copy(tmp_path / "node_modules/onnxruntime-web/dist" / name, tmp_path)
    expected, _ = prepare(tmp_path)
    (tmp_path / "index.html").write_text(block("html"))
    complaints: list[str] = []
    with served(tmp_path) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(address)
        page.wait_for_function("document.querySelector('p').textContent", timeout=60_000)
        answer = page.text_content("p")
        browser.close()
    assert complaints == []
    assert answer == expected
