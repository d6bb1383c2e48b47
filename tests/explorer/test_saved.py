"""The explorer as files: its graphs answer as PyTorch does, and the page works from disk."""

import functools
import http.server
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch

import torchcaps as tc
from helpers.commands import invoke, refused
from torchcaps.errors import MissingFileError, TorchcapsError
from torchcaps.explorer.explored import Explored
from torchcaps.explorer.gallery import DIGITS, Gallery
from torchcaps.explorer.saved.graphs import draw_graph, look_graph
from torchcaps.explorer.saved.runtime import NAMES, find_runtime
from torchcaps.explorer.saved.write import save_page
from torchcaps.export.parity import find_images
from torchcaps.recipes import get

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
READY = "html[data-state=ready]"
LOOK = """async ([name, images, off]) => {
  const backend = await torchcapsBackend;
  const answers = [];
  for (const pixels of images) answers.push(await backend.look(name, pixels, off));
  const shown = (look) => ["scores", "poses", "drawing"].filter((key) => look[key]);
  const numbers = (look) => shown(look).map((key) => [key, Array.from(look[key].data)]);
  return answers.map((look) => Object.fromEntries(numbers(look)));
}"""


def test_the_graph_of_a_look_answers_as_the_server_does() -> None:
    explored = Explored(tc.build("demo/mnist-dynamic", pretrained=True))
    images, _ = find_images(None, explored.input_shape, 2)
    pixels = (images * 255).round()
    session = onnxruntime.InferenceSession(look_graph(explored))
    names = [output.name for output in session.get_outputs()]
    for off in ((), (0, 5, 100)):
        keep = torch.ones(2, explored.n_children)
        keep[:, list(off)] = 0
        inputs = {"images": (pixels / 255).numpy(), "keep": keep.numpy()}
        answers = dict(zip(names, session.run(None, inputs), strict=True))
        for number, image in enumerate(pixels):
            expected = explored.look([int(value) for value in image.flatten()], off)
            assert set(answers) == set(expected) - {"drawing"}
            for name, values in answers.items():
                actual = torch.from_numpy(values[number])
                torch.testing.assert_close(actual, expected[name], rtol=1e-3, atol=1e-4)


def test_the_graph_of_the_decoder_draws_as_the_server_does() -> None:
    explored = Explored(tc.build("demo/mnist-dynamic", pretrained=True))
    session = onnxruntime.InferenceSession(draw_graph(explored))
    poses = torch.randn(10, 16)
    inputs = {"poses": poses[None].numpy(), "classes": torch.tensor([7]).numpy()}
    (drawn,) = session.run(None, inputs)
    torch.testing.assert_close(torch.from_numpy(drawn[0]), explored.draw(poses, 7))


def test_a_page_that_cannot_be_saved_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, empty = "demo/mnist-dynamic", tmp_path / "empty"
    empty.mkdir()
    for arguments, sentence in (
        (("--save", tmp_path / "page.htm"), "must end in .html, or be a folder"),
        (("--save", tmp_path / "no" / "page.html"), "is no folder"),
        (("--save", tmp_path / "page.html", "--runtime", empty), "lacks ort.wasm.min.mjs, "),
    ):
        assert sentence in refused("explore", name, *arguments)
    with pytest.raises(MissingFileError, match="name the folder dist of onnxruntime-web"):
        find_runtime(tmp_path)
    monkeypatch.setenv("PATH", str(empty))
    with pytest.raises(TorchcapsError, match=r"install Node\.js, or name a folder"):
        find_runtime()
    assert [file.name for file in tmp_path.iterdir()] == ["empty"]


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        content = find_runtime()
    except TorchcapsError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("runtime")
    for name in NAMES:
        (folder / name).write_bytes(content[name])
    return folder


@pytest.fixture(scope="module")
def saved(runtime: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "page.html"
    result = invoke("explore", "--save", path, "--runtime", runtime)
    assert result.exit_code == 0, result.output
    assert [file.name for file in path.parent.iterdir()] == ["page.html"]
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine: apt install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        one = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield one
        one.close()


class Watched:
    """A page whose complaints and requests are kept."""

    def __init__(self, browser: Any, url: str) -> None:
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.page = browser.new_page(viewport={"width": 1440, "height": 900})
        self.page.set_default_timeout(120_000)
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(url)
        self.page.wait_for_selector(READY)

    def _note(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(message.text)


@pytest.mark.slow
def test_a_saved_page_opens_from_disk_and_asks_nobody(saved: Path, browser: Any) -> None:
    watched = Watched(browser, saved.as_uri())
    page = watched.page
    for digit in range(10):
        page.click(f".digits button:text-is('{digit}')")
        page.wait_for_function(
            f"document.querySelector('#reading').textContent.includes('reads {digit} (')"
        )
    for view in ("routing", "sliders", "pairs", "compare", "whatif"):
        page.click(f"#tab-{view}")
        page.wait_for_selector(READY)
        assert page.is_visible(f"#view-{view}")
    page.click("#tab-pairs")
    page.wait_for_selector("#pair:text-is('It sees 3 and 8.')")
    assert watched.problems == []
    assert {url.partition(":")[0] for url in watched.requests} <= {"file", "blob", "data"}
    assert [url for url in watched.requests if url.startswith("file")] == [saved.as_uri()]
    page.close()


@pytest.mark.slow
def test_both_backends_give_the_same_answers(saved: Path, browser: Any) -> None:
    watched = Watched(browser, saved.as_uri())
    gallery = Gallery()
    for entry in gallery.entries():
        explored = gallery.open(entry["name"])
        images, _ = find_images(get(str(entry["recipe"])), explored.input_shape, 5)
        pixels = (images * 255).round().int().flatten(1).tolist()
        for off in ([], [3, 40]):
            answers = watched.page.evaluate(LOOK, [entry["name"], pixels, off])
            for image, answer in zip(pixels, answers, strict=True):
                expected = explored.look(image, off)
                for name, values in answer.items():
                    actual = torch.tensor(values).view_as(expected[name])
                    torch.testing.assert_close(actual, expected[name], rtol=1e-3, atol=1e-4)
                assert ("drawing" in answer) == ("drawing" in expected)
    assert watched.problems == []
    watched.page.close()


@pytest.mark.slow
def test_predictions_in_the_browser_are_pytorchs_on_1000_images(saved: Path, browser: Any) -> None:
    watched = Watched(browser, saved.as_uri())
    network = tc.build(DIGITS, pretrained=True).eval()
    images, _ = find_images(get(DIGITS), (1, 28, 28), 1000)
    pixels = (images * 255).round()
    answers = [
        answer
        for part in pixels.int().flatten(1).split(100)
        for answer in watched.page.evaluate(LOOK, [DIGITS, part.tolist(), []])
    ]
    scores = torch.tensor([answer["scores"] for answer in answers])
    with torch.no_grad():
        parts = (network.preprocess(part.byte()) for part in pixels.split(100))
        expected = torch.cat([network(part).scores for part in parts])
    torch.testing.assert_close(scores, expected, rtol=0, atol=1e-4)
    assert len(scores) == 1000
    assert torch.equal(scores.argmax(1), expected.argmax(1))
    watched.page.close()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.mark.slow
def test_a_saved_folder_can_be_hosted(runtime: Path, browser: Any, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    save_page(Gallery("demo/mnist-dynamic"), folder, runtime=runtime)
    handler = functools.partial(Quiet, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        watched = Watched(browser, url)
        watched.page.click(".digits button:text-is('4')")
        watched.page.wait_for_selector("#reading:text('The network reads 4 (')")
        server.shutdown()
    assert watched.problems == []
    assert [u for u in watched.requests if not u.startswith((url, f"blob:{url}"))] == []
    watched.page.close()
