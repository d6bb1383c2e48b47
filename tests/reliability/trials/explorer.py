"""Requests that the explorer's server must refuse or survive, crowds of clients, and Ctrl-C."""

import contextlib
import io
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.request import urlopen

from helpers.explorer import NETWORK, ask, running_server, send_raw
from torchcaps.data import load
from torchcaps.explorer.server import MAX_BODY_BYTES, Server

CLIENTS = 50
CROWD_EVERY, CTRL_C_EVERY, CHECK_EVERY = 200, 2_000, 50
MAX_SECONDS = 20.0
"""Longest time until a single request is answered."""


def trials(first: int, count: int) -> Iterator[str]:
    """Requests of each kind in turn; some trials are 50 clients at once, or Ctrl-C."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), running_server() as server:
        expected = ask(server, "api/look", good_body()).text
        for number in range(first, first + count):
            try:
                attempt(server, number, expected)
                assert "Traceback" not in errors.getvalue(), errors.getvalue()[-300:]
                yield ""
            except (AssertionError, OSError) as error:
                yield f"request {number}: {error!r}"[:500]
                errors.truncate(0)


def attempt(server: Server, number: int, expected: str) -> None:
    rng = random.Random(f"request {number}")
    if number % CTRL_C_EVERY == CTRL_C_EVERY - 1:
        ctrl_c(rng)
    elif number % CROWD_EVERY == CROWD_EVERY - 1:
        crowd(server, expected)
    else:
        kind = KINDS[number % len(KINDS)]
        start = time.monotonic()
        kind(server, rng)
        seconds = time.monotonic() - start
        assert seconds < MAX_SECONDS, f"{kind.__name__} took {seconds:.0f} s"
    if number % CHECK_EVERY == CHECK_EVERY - 1:
        assert ask(server, "api/look", good_body()).text == expected, "another answer than before"


def good_body() -> dict[str, object]:
    return {"network": NETWORK, "image": DIGIT, "off": [1, 2]}


def request(
    server: Server,
    body: bytes,
    *,
    first_line: str = "POST /api/look HTTP/1.1",
    host: str = "",
    length: int | None = None,
    extra: str = "",
) -> bytes:
    """A whole request; `length` is what it says of its body."""
    lines = (
        first_line,
        f"Host: {host or f'127.0.0.1:{server.server_port}'}",
        "Content-Type: application/json",
        f"Content-Length: {len(body) if length is None else length}",
        "Connection: close",
    )
    return ("\r\n".join(lines) + f"\r\n{extra}\r\n").encode() + body


def refused(server: Server, sent: bytes, *statuses: int) -> None:
    """Assert that a request gets one of these statuses and one sentence."""
    answer = send_raw(server, sent)
    assert answer[9:12] in {str(status).encode() for status in statuses}, answer[:200]
    error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    assert "Traceback" not in error, error
    assert "\n" not in error, error


def fuzzed(server: Server, rng: random.Random) -> None:
    """A good request with a few bytes replaced, removed, repeated or cut off."""
    good = request(server, json.dumps(good_body()).encode())
    if rng.random() < 0.25:
        good = good.replace(b"POST /api/look", f"GET /api/describe?network={NETWORK}".encode())
    answer = send_raw(server, mutated(good, rng))
    assert b"Traceback" not in answer
    assert answer[9:12] != b"500", answer[:200]


def mutated(good: bytes, rng: random.Random) -> bytes:
    sent = bytearray(good)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        at = rng.randrange(len(sent))
        match rng.randrange(5):
            case 0:
                sent[at] = rng.randrange(256)
            case 1:
                del sent[at : at + rng.randrange(1, 40)]
            case 2:
                sent[at:at] = rng.randbytes(rng.randrange(1, 60))
            case 3:
                sent[at:at] = sent[at : at + 50] * rng.randrange(1, 20)
            case 4:
                del sent[at:]
        if not sent:
            return b"\0"
    return bytes(sent)


def wrong_body(server: Server, rng: random.Random) -> None:
    """A body of another kind, or with one wrong entry."""
    wrong = rng.choice(WRONG)
    if rng.random() < 0.3:
        body = json.dumps(wrong).encode() if not isinstance(wrong, dict) else b"{]"
        return refused(server, request(server, body), 400)
    if rng.random() < 0.5:
        content = {**good_body(), rng.choice(("network", "image")): wrong}
        return refused(server, request(server, json.dumps(content).encode()), 400)
    content = {"network": NETWORK, "poses": [[0.0] * 16] * 10, "class": 1}
    content[rng.choice(("network", "poses"))] = wrong
    line = "POST /api/draw HTTP/1.1"
    return refused(server, request(server, json.dumps(content).encode(), first_line=line), 400)


def oversized(server: Server, rng: random.Random) -> None:
    """A body beyond the limit, or one that is said to be."""
    if rng.random() < 0.5:
        length = rng.randrange(MAX_BODY_BYTES + 1, 10**17)
        return refused(server, request(server, b"{}", length=length), 413)
    body = b"0" * rng.randrange(MAX_BODY_BYTES + 1, 2 * MAX_BODY_BYTES)
    return refused(server, request(server, body), 413)


def cut_off(server: Server, rng: random.Random) -> None:
    """A body that ends before its end."""
    body = json.dumps(good_body()).encode()
    part = body[: rng.randrange(len(body))]
    refused(server, request(server, part, length=len(body)), 400)


def foreign(server: Server, rng: random.Random) -> None:
    """A request that another site's page sends, or that has no Host."""
    port = server.server_port
    hosts = ("evil.example", f"evil.example:{port}", f"127.0.0.1:{port}.evil.example", "127.0.0.1")
    body = json.dumps(good_body()).encode()
    line = rng.choice(("POST /api/look HTTP/1.1", "GET / HTTP/1.1", "GET /api/networks HTTP/1.1"))
    if rng.random() < 0.5:
        sent = request(server, body, first_line=line, host=rng.choice(hosts))
    else:
        origin = rng.choice(("http://evil.example", "https://127.0.0.1", "null", "file://"))
        sent = request(server, body, first_line=line, extra=f"Origin: {origin}\r\n")
    refused(server, sent, 403)


def traversal(server: Server, rng: random.Random) -> None:
    """A path out of the page's folder."""
    up = rng.choice(("../", "..%2f", "%2e%2e/", "..\\", "....//", "./../", "%252e%252e/", "/"))
    target = rng.choice(("server.py", "etc/passwd", "saved/static.js", "main.js/../../server.py"))
    line = f"GET /{up * rng.randrange(1, 8)}{target} HTTP/1.1"
    refused(server, request(server, b"", first_line=line), 404)


def crowd(server: Server, expected: str) -> None:
    """Fifty clients at once; each gets the right answer."""

    def client(_: int) -> bool:
        return ask(server, "api/look", good_body()).text == expected

    with ThreadPoolExecutor(CLIENTS) as clients:
        right = sum(clients.map(client, range(CLIENTS)))
    assert right == CLIENTS, f"{right} of {CLIENTS} clients got the right answer"


def ctrl_c(rng: random.Random) -> None:
    """Ctrl-C ends the command within 5 s, also while a client holds a connection."""
    command = [sys.executable, "-m", "torchcaps", "explore", NETWORK, "--port", "0", "--no-browser"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert process.stdout is not None
        (url,) = re.findall(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
        held = urlopen(url, timeout=30) if rng.random() < 0.5 else contextlib.nullcontext()
        with held:
            start = time.monotonic()
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert time.monotonic() - start < 5, "it took longer than 5 s"
    code = process.returncode
    assert (code, errors) == (0, ""), f"exit code {code} after Ctrl-C: {errors[-300:]}"


DIGIT: list[int] = load("strokes", "test").images[3].flatten().tolist()
WRONG: tuple[object, ...] = (
    *(None, True, -1, 1e99, "x", "💊", [], {}, [[1]], [256] * 784, [0] * 783),
)
Kind = Callable[[Server, random.Random], None]
KINDS: tuple[Kind, ...] = (
    *(fuzzed, wrong_body, fuzzed, cut_off, fuzzed, foreign, fuzzed, traversal),
    *(fuzzed, oversized),
)
