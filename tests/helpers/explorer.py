"""The explorer's server in a thread of the tests, and raw requests to it."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from torchcaps.explorer.gallery import Gallery
from torchcaps.explorer.server import Server

__all__ = ["NETWORK", "Reply", "ask", "running_server", "send_raw"]

NETWORK = "demo/mnist-dynamic"


class Reply(NamedTuple):
    status: int
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@contextmanager
def running_server(name: str = NETWORK) -> Iterator[Server]:
    """Serve the explorer on a free port while the context lasts."""
    with Server(Gallery(name), 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def ask(server: Server, path: str, content: object = None, **headers: str) -> Reply:
    """Send a request and return status and body; `content` is sent as JSON."""
    body = None if content is None else json.dumps(content).encode()
    headers = {"Content-Type": "application/json", **headers}
    try:
        with urlopen(Request(server.url + path, body, headers), timeout=30) as response:
            return Reply(response.status, response.read().decode())
    except HTTPError as error:
        return Reply(error.code, error.read().decode())


def send_raw(server: Server, request: bytes) -> bytes:
    """Send bytes, end the sending, and return all that comes back; empty if cut off."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=30) as client:
        try:
            client.sendall(request)
            client.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        parts = []
        try:
            while part := client.recv(1 << 16):
                parts.append(part)
        except ConnectionError:
            pass
    return b"".join(parts)
