"""A local server that answers downloads in every bad way."""

import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from torchcaps.data import DownloadError
from torchcaps.data.download import Download, fetch

CONTENT = bytes(range(256)) * 400


@dataclass
class Server:
    url: str = ""
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    cut: int = 1


class BusyServer(ThreadingHTTPServer):
    """A server that many processes call at once; the usual queue of 5 turns some of them away."""

    request_queue_size = 128


@contextmanager
def serving(content: bytes = CONTENT) -> Iterator[Server]:
    server = Server()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            server.requests.append((self.path, wanted))
            kind = self.path.split("/")[1]
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
            if kind == "missing":
                self.send_error(404)
                return
            if kind == "page":
                self.answer(b"<html>" + content, 200, "text/html")
                return
            if kind == "wrong":
                self.answer(bytes(len(content)), 200)
                return
            if kind == "long":
                self.answer(content + b"more", 200)
                return
            if kind == "stalled":
                self.head(len(content), 200)
                self.wfile.write(content[:1000])
                self.wfile.flush()
                time.sleep(3)
                return
            if kind == "short":
                self.answer(content[: len(content) // 2], 200)
                return
            if kind == "slow":
                time.sleep(0.5)
            body = content if kind == "noresume" else content[start:]
            self.head(len(body), 206 if wanted and kind != "noresume" else 200)
            if kind == "cut" and server.cut:
                server.cut -= 1
                body = body[: len(body) // 2]
            self.wfile.write(body)

        def head(self, length: int, status: int, kind: str = "application/gzip") -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(length))
            self.end_headers()

        def answer(self, body: bytes, status: int, kind: str = "application/gzip") -> None:
            self.head(len(body), status, kind)
            self.wfile.write(body)

    http = BusyServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    server.url = f"http://127.0.0.1:{http.server_address[1]}"
    try:
        yield server
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


def wanted(
    server: Server, *kinds: str, content: bytes = CONTENT, archive: bool = False
) -> Download:
    return Download(
        "set/file.gz",
        tuple(f"{server.url}/{kind}/file.gz" for kind in kinds),
        f"sha256:{hashlib.sha256(content).hexdigest()}",
        len(content),
        max_unpacked_bytes=100 if archive else 0,
    )


def leftovers(folder: Path) -> list[str]:
    names = (path.name for path in folder.rglob("*") if path.is_file())
    return sorted(name for name in names if not name.endswith(".lock"))


def get(download: Download, folder: Path) -> None:
    fetch(download, folder, needs="set/file.gz")


def fetch_whole(download: Download, folder: str) -> bool:
    """Fetch in a process of its own, which must find this function by its module's name."""
    get(download, Path(folder))
    return (Path(folder) / "set" / "file.gz").read_bytes() == CONTENT


def fail_to_fetch(download: Download, folder: str) -> str:
    """Return the message of a fetch that must fail."""
    with pytest.raises(DownloadError) as caught:
        get(download, Path(folder))
    return str(caught.value)
