"""The explorer's local server: right answers, and a sentence for every wrong request."""

import base64
import errno
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest
import torch

from helpers.commands import invoke, one_sentence
from helpers.explorer import NETWORK, ask, running_server, send_raw
from torchcaps.data import load
from torchcaps.explorer.gallery import DIGITS
from torchcaps.explorer.server import MAX_BODY_BYTES, Server
from torchcaps.recipes import get
from torchcaps.train import TrainOptions, train

SIDE = 28


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as one:
        yield one


@pytest.fixture(scope="module")
def digit() -> list[int]:
    pixels: list[int] = load("strokes", "test").images[3].flatten().tolist()
    return pixels


def tensor(packed: dict[str, Any]) -> torch.Tensor:
    numbers = np.frombuffer(base64.b64decode(packed["data"]), dtype="<f4").copy()
    return torch.from_numpy(numbers).reshape(packed["shape"])


def test_scores_and_drawings_are_those_of_the_network(server: Server, digit: list[int]) -> None:
    network = server.gallery.open(NETWORK).network
    answer = ask(server, "api/look", {"network": NETWORK, "image": digit}).json
    image = torch.tensor(digit, dtype=torch.uint8).view(1, SIDE, SIDE)
    with torch.no_grad():
        output = network(network.preprocess(image))
    assert output.capsules is not None
    assert output.reconstruction is not None
    torch.testing.assert_close(tensor(answer["scores"]), output.scores[0])
    torch.testing.assert_close(tensor(answer["poses"]), output.capsules.poses[0])
    best = int(output.scores.argmax())
    body = {"network": NETWORK, "poses": tensor(answer["poses"]).tolist(), "class": best}
    drawn = tensor(ask(server, "api/draw", body).json)
    torch.testing.assert_close(drawn, output.reconstruction[0], atol=1e-5, rtol=1e-4)


def test_couplings_of_the_class_layer_sum_to_one(server: Server, digit: list[int]) -> None:
    described = ask(server, f"api/describe?network={NETWORK}").json
    (layer,) = described["layers"]
    answer = ask(server, "api/look", {"network": NETWORK, "image": digit}).json
    couplings = tensor(answer[f"{layer['name']}.couplings"])
    assert couplings.shape == (3, 1, described["n_children"], 10)
    torch.testing.assert_close(couplings.sum(dim=-1), torch.ones(3, 1, described["n_children"]))


def test_children_switched_off_give_nothing(server: Server, digit: list[int]) -> None:
    off = list(range(0, 64))
    body = {"network": NETWORK, "image": digit}
    before, after = (ask(server, "api/look", {**body, "off": some}).json for some in ([], off))
    assert tensor(before["classes.strength"])[0, :64].max() > 0
    assert tensor(after["classes.strength"])[0, :64].max() < 1e-6
    assert not torch.allclose(tensor(before["scores"]), tensor(after["scores"]), atol=1e-3)
    again = ask(server, "api/look", body).json
    assert again == before


def test_each_number_of_a_pose_is_named_by_its_effect(server: Server) -> None:
    words = ask(server, f"api/effects?network={NETWORK}&class=3").json
    assert len(words) == 16
    assert len(set(words)) > 4
    assert any("wider" in each or "narrower" in each for each in words)


def test_the_page_asks_no_other_host(server: Server) -> None:
    page = ask(server, "").text
    names = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert {"main.js", "style.css"} <= set(names)
    for name, content in server.page.items():
        assert ask(server, name).text == content.decode()
        outside = set(re.findall(r"https?://[\w./]+", content.decode()))
        assert outside <= {"http://www.w3.org/2000/svg"}, name


def test_a_test_image_comes_with_its_label(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    recipe = get("demo/strokes-dynamic").override(limit=32, test_limit=20, batch_size=16, epochs=1)
    row = train(recipe, TrainOptions(out=folder, tensorboard=False))
    name = str(folder)
    with running_server(name) as own:
        (entry,) = (one for one in ask(own, "api/networks").json["networks"] if one["name"] == name)
        assert (entry["recipe"], entry["test"]) == ("demo/strokes-dynamic", row.test)
        first, second = (
            ask(own, f"api/sample?network={name}&number={number}").json for number in (0, 1)
        )
    assert len(first["pixels"]) == SIDE * SIDE
    assert max(first["pixels"]) > 200
    assert first["labels"][0] in [str(digit) for digit in range(10)]
    assert first != second
    answer = ask(server, f"api/sample?network={NETWORK}&number=-1")
    assert (answer.status, answer.json) == (400, {"error": "number must be a whole number"})


def test_test_images_that_are_not_here_get_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path))
    name = "zhao2020/fashion-mnist-modern"
    with running_server(name) as server:
        reply = ask(server, f"api/sample?network={name}&number=0")
    assert reply.status == 400
    assert "the test images of fashion_mnist are not on this machine" in reply.json["error"]


WRONG = [
    ("api/look", {}, 400, "no network ''"),
    ("api/look", {"network": "runs/other"}, 400, "no network 'runs/other'"),
    ("api/look", {"network": NETWORK}, 400, "image must be 784 whole numbers from 0 to 255"),
    ("api/look", {"network": NETWORK, "image": [0] * 783}, 400, "image must be 784"),
    ("api/look", {"network": NETWORK, "image": [256] * 784}, 400, "image must be 784"),
    ("api/look", {"network": NETWORK, "image": [True] * 784}, 400, "image must be 784"),
    ("api/look", {"network": NETWORK, "image": [0] * 784, "off": [128]}, 400, "below 128"),
    ("api/look", {"network": NETWORK, "image": [0] * 784, "off": "all"}, 400, "below 128"),
    ("api/look", [1], 400, "must be a JSON object"),
    ("api/draw", {"network": NETWORK, "poses": 3, "class": 1}, 400, "poses must be a list"),
    ("api/draw", {"network": NETWORK, "poses": [[1], [1, 2]], "class": 1}, 400, "as many numbers"),
    ("api/draw", {"network": NETWORK, "poses": [[1e99]], "class": 1}, 400, "as many numbers"),
    ("api/draw", {"network": NETWORK, "poses": [], "class": 1}, 400, "as many numbers"),
    ("api/draw", {"network": NETWORK, "poses": [[0.0]], "class": 1}, 400, "[10, 16]"),
    ("api/draw", {"network": NETWORK, "poses": [[0] * 16] * 10, "class": 10}, 400, "0 to 9"),
    ("api/run", {"network": NETWORK}, 404, "/api/look"),
    ("api/describe?network=x", None, 400, "no network 'x'"),
    (f"api/effects?network={NETWORK}&class=x", None, 400, "0 to 9"),
    ("../server.py", None, 404, "there is nothing at"),
    ("%2e%2e/server.py", None, 404, "there is nothing at"),
    ("/etc/passwd", None, 404, "there is nothing at"),
]


@pytest.mark.parametrize(("path", "content", "status", "words"), WRONG)
def test_a_wrong_request_gets_a_sentence(
    server: Server, path: str, content: object, status: int, words: str
) -> None:
    reply = ask(server, path, content)
    assert (reply.status, words in reply.json["error"]) == (status, True), reply.json


def raw(server: Server, *, host: str = "", extra: str = "", body: bytes = b"{}") -> bytes:
    head = f"POST /api/look HTTP/1.1\r\nHost: {host or f'127.0.0.1:{server.server_port}'}\r\n"
    return (head + extra + "\r\n").encode() + body


JSON_TYPE = "Content-Type: application/json\r\n"


def test_bodies_that_are_wrong_as_such_are_refused(server: Server) -> None:
    cases = [
        (raw(server, extra=JSON_TYPE), b"411", b"Content-Length"),
        (raw(server, extra=f"{JSON_TYPE}Content-Length: -1\r\n"), b"400", b"whole number"),
        (raw(server, extra=f"{JSON_TYPE}Content-Length: 1e3\r\n"), b"400", b"whole number"),
        (raw(server, extra=f"{JSON_TYPE}Content-Length: 50\r\n"), b"400", b"ends after 2 of 50"),
        (raw(server, extra="Content-Length: 2\r\n"), b"415", b"application/json"),
        (raw(server, extra=f"{JSON_TYPE}Content-Length: 2\r\n", body=b"{]"), b"400", b"not JSON"),
        (raw(server, extra=f"{JSON_TYPE}Content-Length: 9\r\n", body=b"\xff" * 9), b"400", b"JSON"),
        (raw(server, extra=f"{JSON_TYPE}Content-Length: {10**17}\r\n"), b"413", b"4,000,000"),
    ]
    for request, status, words in cases:
        answer = send_raw(server, request)
        assert answer.startswith(b"HTTP/1.1 " + status), (request, answer)
        assert words in answer
    deep = b"[" * 100_000
    answer = send_raw(
        server, raw(server, extra=f"{JSON_TYPE}Content-Length: 100000\r\n", body=deep)
    )
    assert b"not JSON" in answer


def test_a_body_that_is_too_large_is_read_and_refused(server: Server) -> None:
    reply = ask(server, "api/look", {"image": "0" * MAX_BODY_BYTES})
    assert reply.status == 413
    assert "4,000,000 bytes" in reply.json["error"]


def test_requests_for_another_host_are_refused(server: Server) -> None:
    for host in ("evil.example", "evil.example:80", f"127.0.0.1:{server.server_port}.evil.example"):
        assert send_raw(server, raw(server, host=host)).startswith(b"HTTP/1.1 403"), host
    assert send_raw(server, b"GET / HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 403")
    assert ask(server, "api/networks", Origin="http://evil.example").status == 403
    local = f"http://localhost:{server.server_port}"
    assert ask(server, "api/networks", Origin=local).status == 200


def test_the_server_listens_on_this_machine_only(server: Server) -> None:
    assert server.socket.getsockname()[0] == "127.0.0.1"
    with socket.socket() as other:
        other.settimeout(5)
        assert other.connect_ex(("127.0.0.2", server.server_port)) == errno.ECONNREFUSED


def test_fifty_clients_at_once_get_the_same_answer(server: Server, digit: list[int]) -> None:
    barrier = threading.Barrier(50)

    def client(_: int) -> str:
        barrier.wait()
        reply = ask(server, "api/look", {"network": NETWORK, "image": digit})
        assert reply.status == 200
        return reply.text

    with ThreadPoolExecutor(50) as clients:
        answers = set(clients.map(client, range(50)))
    assert len(answers) == 1


def test_a_drawing_is_answered_within_150_ms_of_computing(digit: list[int]) -> None:
    with running_server(DIGITS) as server:
        times = []
        for _ in range(15):
            start = time.process_time()
            assert ask(server, "api/look", {"network": DIGITS, "image": digit}).status == 200
            times.append(time.process_time() - start)
        assert statistics.median(times) < 0.15, times


def test_the_command_serves_until_ctrl_c() -> None:
    command = [sys.executable, "-m", "torchcaps", "explore", NETWORK, "--port", "0", "--no-browser"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        (url,) = re.findall(r"http://127\.0\.0\.1:\d+/", line)
        with urlopen(url, timeout=30) as response:
            assert b"See a capsule think" in response.read()
        start = time.perf_counter()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert time.perf_counter() - start < 5
    assert (process.returncode, err) == (0, "")
    assert "has ended" in out


def test_ctrl_c_before_the_first_request_ends_well(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(url: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("webbrowser.open", interrupt)
    result = invoke("explore", NETWORK, "--port", "0")
    assert result.exit_code == 0
    assert result.stdout.endswith("The explorer has ended.\n")


def test_a_port_in_use_and_an_unknown_network_get_a_sentence(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        result = invoke("explore", NETWORK, "--port", port, "--no-browser")
    assert "--port 0" in one_sentence(result, 2)
    result = invoke("explore", str(tmp_path / "none"), "--no-browser")
    assert "there is no run folder or weight file" in one_sentence(result, 1)
