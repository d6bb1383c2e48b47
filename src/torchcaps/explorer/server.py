"""The page's server on this machine: 127.0.0.1 only, the standard library's HTTP server.

Every answer of the interface is JSON. A tensor is ``{"shape": [...], "data": base64}`` of
little-endian float32. A refused request gets ``{"error": sentence}``.
"""

import base64
import json
import math
import sys
import traceback
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from socketserver import TCPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import torch
from torch import Tensor

from torchcaps.data.strokes.glyphs import GLYPHS
from torchcaps.errors import TorchcapsError
from torchcaps.explorer.explored import Explored
from torchcaps.explorer.gallery import Gallery

ADDRESS = "127.0.0.1"
MAX_BODY_BYTES = 4_000_000
MAX_DRAINED_BYTES = 16_000_000
"""Bytes of a refused body that are still read, so that the client can read the answer."""
BODY_TIMEOUT_S = 10
MAX_POSE = 1e4

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; "
    "style-src 'self' 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class RefusedError(TorchcapsError):
    """A request that is not answered, with its HTTP status."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Answer(NamedTuple):
    """The body of an answer and its type."""

    body: bytes
    kind: str = "application/json"


class Server(ThreadingHTTPServer):
    """The page and its interface on one port of this machine.

    Args:
        gallery: the networks.
        port: port number; 0 takes a free one.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, gallery: Gallery, port: int) -> None:
        self.gallery = gallery
        folder = files("torchcaps.explorer") / "page"
        self.page = {one.name: one.read_bytes() for one in folder.iterdir() if one.is_file()}
        super().__init__((ADDRESS, port), Handler)

    def server_bind(self) -> None:
        """Bind without looking up the name of the machine, which may take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = ADDRESS, int(self.server_address[1])

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{ADDRESS}:{self.server_port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay silent about clients that hang up."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """Answers one client: files of the page, and the interface under ``/api/``."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version = "torchcaps"
    sys_version = ""
    timeout = BODY_TIMEOUT_S
    error_content_type = "application/json"
    error_message_format = '{"error": "%(message)s"}'

    def do_GET(self) -> None:
        """Answer with a file of the page or a description."""
        self._reply(self._get)

    def do_POST(self) -> None:
        """Answer with what a network makes of an image or a pose."""
        self._reply(self._post)

    def log_message(self, *_: Any) -> None:
        """Log nothing: the terminal belongs to the user."""

    def _reply(self, answer: Callable[[], Answer]) -> None:
        """Send an answer, or the sentence of a refusal; a bug's trace stays in the terminal."""
        status = 200
        try:
            self._check_sender()
            result = answer()
        except TorchcapsError as error:
            status = error.status if isinstance(error, RefusedError) else 400
            result = Answer(json.dumps({"error": str(error)}).encode())
        except (ConnectionError, TimeoutError):
            self.close_connection = True
            return
        except Exception:
            traceback.print_exc()
            status = 500
            sentence = "the server failed: its terminal shows why; please report it"
            result = Answer(json.dumps({"error": sentence}).encode())
        if status != 200:
            self.close_connection = True
        self._send(status, result)

    def _send(self, status: int, answer: Answer) -> None:
        self.send_response(status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.body)))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(answer.body)

    def _check_sender(self) -> None:
        """Refuse requests that another site's page could have sent."""
        own = {f"{name}:{self.server.server_port}" for name in (ADDRESS, "localhost")}
        host, origin = self.headers.get("Host"), self.headers.get("Origin")
        if host not in own or (origin is not None and origin.removeprefix("http://") not in own):
            self._drain()
            raise RefusedError(
                403, f"this server answers its own page only: open {self.server.url}"
            )

    def _get(self) -> Answer:
        self._drain()
        address = urlsplit(self.path)
        if (name := address.path.removeprefix("/") or "index.html") in self.server.page:
            media = KINDS.get(f".{name.rpartition('.')[2]}", "application/octet-stream")
            return Answer(self.server.page[name], media)
        gallery = self.server.gallery
        query = {key: values[0] for key, values in parse_qs(address.query).items()}
        match address.path:
            case "/api/networks":
                digits = [{"digit": name, "strokes": strokes} for name, strokes in GLYPHS]
                content = {"first": gallery.first, "networks": gallery.entries(), "digits": digits}
                return _to_json(content)
            case "/api/describe":
                explored = gallery.open(query.get("network", ""))
                with gallery.lock:
                    return _to_json(explored.describe())
            case "/api/effects":
                explored = gallery.open(query.get("network", ""))
                kind = _class_number(_whole(query.get("class", "")), explored)
                with gallery.lock:
                    return _to_json(explored.effects(kind))
            case "/api/sample":
                number = _whole(query.get("number", ""))
                if number is None:
                    raise RefusedError(400, "number must be a whole number")
                return _to_json(gallery.sample(query.get("network", ""), number)._asdict())
        raise RefusedError(
            404, f"there is nothing at {address.path[:80]!r}: open {self.server.url}"
        )

    def _post(self) -> Answer:
        body = self._body()
        gallery = self.server.gallery
        explored = gallery.open(str(body.get("network", "")))
        match urlsplit(self.path).path:
            case "/api/look":
                pixels, off = _pixels(body, explored), _switched_off(body, explored)
                with gallery.lock:
                    return _to_json({k: _packed(v) for k, v in explored.look(pixels, off).items()})
            case "/api/draw":
                poses, kind = _poses(body), _class_number(body.get("class"), explored)
                with gallery.lock:
                    return _to_json(_packed(explored.draw(poses, kind)))
        raise RefusedError(404, "images go to /api/look and poses to /api/draw")

    def _length(self) -> int:
        text = self.headers.get("Content-Length")
        if text is None or self.headers.get("Transfer-Encoding") is not None:
            raise RefusedError(411, "say the length of the body with Content-Length")
        if not text.isascii() or not text.isdigit() or len(text) > 18:
            raise RefusedError(400, "Content-Length must be a whole number of bytes")
        return int(text)

    def _drain(self) -> None:
        """Read a body that is not wanted: a client may read no answer before it has sent all."""
        text = self.headers.get("Content-Length", "0")
        count = int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else 0
        count = min(count, MAX_DRAINED_BYTES)
        while count > 0 and (part := self.rfile.read(min(count, 1 << 16))):
            count -= len(part)

    def _body(self) -> dict[str, Any]:
        """Return the JSON object of a request."""
        length = self._length()
        if length > MAX_BODY_BYTES:
            self._drain()
            raise RefusedError(413, f"a body may have {MAX_BODY_BYTES:,} bytes, not {length:,}")
        content = self.rfile.read(length)
        if len(content) < length:
            raise RefusedError(400, f"the body ends after {len(content):,} of {length:,} bytes")
        if self.headers.get_content_type() != "application/json":
            raise RefusedError(415, "send JSON with Content-Type application/json")
        try:
            body = json.loads(content)
        except (ValueError, RecursionError):
            raise RefusedError(400, "the body is not JSON") from None
        if not isinstance(body, dict):
            raise RefusedError(400, "the body must be a JSON object")
        return body


def _to_json(content: Any) -> Answer:
    return Answer(json.dumps(content).encode())


def _packed(tensor: Tensor) -> dict[str, Any]:
    content = tensor.detach().to("cpu", torch.float32).contiguous().numpy().astype("<f4").tobytes()
    return {"shape": list(tensor.shape), "data": base64.b64encode(content).decode()}


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else None


def _class_number(kind: object, explored: Explored) -> int:
    n = explored.network.n_classes
    if type(kind) is not int or not 0 <= kind < n:
        raise RefusedError(400, f"class must be a whole number from 0 to {n - 1}")
    return kind


def _pixels(body: dict[str, Any], explored: Explored) -> list[int]:
    pixels = body.get("image")
    count = explored.n_pixels
    if type(pixels) is not list or len(pixels) != count or not _are_below(pixels, 256):
        raise RefusedError(400, f"image must be {count} whole numbers from 0 to 255")
    return pixels


def _switched_off(body: dict[str, Any], explored: Explored) -> list[int]:
    off = body.get("off", [])
    if type(off) is not list or not _are_below(off, explored.n_children):
        raise RefusedError(400, f"off must be numbers of children below {explored.n_children}")
    return sorted(set(off))


def _are_below(numbers: list[Any], limit: int) -> bool:
    return all(type(number) is int and 0 <= number < limit for number in numbers)


def _poses(body: dict[str, Any]) -> Tensor:
    rows = body.get("poses")
    if type(rows) is not list or not all(type(row) is list for row in rows):
        raise RefusedError(400, "poses must be a list of numbers for each class")
    numbers = [number for row in rows for number in row]
    if len({len(row) for row in rows}) != 1 or not all(map(_is_pose_number, numbers)):
        raise RefusedError(400, f"poses must be as many numbers up to {MAX_POSE:g} for each class")
    return torch.tensor(rows, dtype=torch.float32)


def _is_pose_number(number: Any) -> bool:
    return type(number) in (int, float) and math.isfinite(number) and abs(number) <= MAX_POSE
