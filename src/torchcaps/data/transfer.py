"""Transfer of one file from one mirror over HTTP, resumed where a partial file ends."""

import http.client
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from torchcaps.errors import TorchcapsError
from torchcaps.storage import FULL

TIMEOUT_S = 30.0
_CHUNK_BYTES = 1 << 18


class DownloadError(TorchcapsError, OSError):
    """A file that none of its mirrors delivered."""


class MirrorError(Exception):
    """A mirror that did not deliver the file."""


def no_space(folder: Path, need: str) -> DownloadError:
    """Return the error for a disk that is full."""
    free = shutil.disk_usage(folder).free
    return DownloadError(
        f"{need} but {free} bytes are free in {folder}; make room or set TORCHCAPS_DATA to "
        "another folder"
    )


class ResumingDownloader:
    """A downloader for pooch that continues a partial file and checks each response."""

    def __init__(self, target: Path, size: int) -> None:
        self.target = target
        self.part = target.with_name(target.name + ".part")
        self.size = size

    def __call__(self, url: str, output_file: str, pooch: object) -> None:
        """Download ``url`` to ``output_file``."""
        if shutil.disk_usage(self.part.parent).free < self.size - self._received():
            raise self._no_space()
        try:
            self._receive(url)
        except OSError as error:
            if error.errno in FULL:
                raise self._no_space() from None
            raise
        finally:
            if self.part.is_file() and not self._received():
                self.part.unlink()
        self.part.replace(output_file)

    def _received(self) -> int:
        size = self.part.stat().st_size if self.part.is_file() else 0
        return size if size <= self.size else 0

    def _no_space(self) -> DownloadError:
        return no_space(
            self.part.parent, f"{self.target} needs {self.size - self._received()} more bytes"
        )

    def _receive(self, url: str) -> None:
        """Request the rest of the file as long as each response delivers some of it."""
        while (received := self._received()) < self.size:
            try:
                self._receive_once(url, received)
            except MirrorError:
                if self._received() <= received:
                    raise

    def _receive_once(self, url: str, received: int) -> None:
        request = urllib.request.Request(url, headers={"User-Agent": "torchcaps"})
        if received:
            request.add_header("Range", f"bytes={received}-")
        with _response(request) as response:
            if response.headers.get_content_type() == "text/html":
                raise MirrorError("it sends a web page in place of the file")
            if response.status != http.HTTPStatus.PARTIAL_CONTENT:
                received = 0
            with (
                self.part.open("ab" if received else "wb") as file,
                _progress(self.target.name, self.size) as advance,
            ):
                advance(received)
                received += self._copy(response, file, self.size - received, advance)
        if received < self.size:
            raise MirrorError(f"it sends {received} of {self.size} bytes")

    def _copy(
        self,
        response: http.client.HTTPResponse,
        file: IO[bytes],
        missing: int,
        advance: Callable[[int], None],
    ) -> int:
        """Append the response to the file and return its number of bytes."""
        count = 0
        while True:
            with _network_errors():
                chunk = response.read(min(_CHUNK_BYTES, missing + 1 - count))
            if not chunk:
                return count
            count += len(chunk)
            if count > missing:
                file.truncate(0)
                raise MirrorError("it sends more bytes than the file has")
            file.write(chunk)
            advance(len(chunk))


@contextmanager
def _response(request: urllib.request.Request) -> Iterator[http.client.HTTPResponse]:
    with _network_errors():
        response = urllib.request.urlopen(request, timeout=TIMEOUT_S)
    with response:
        yield response


@contextmanager
def _network_errors() -> Iterator[None]:
    """Turn every error of a connection into a `MirrorError` with a reason."""
    try:
        yield
    except urllib.error.HTTPError as error:
        error.close()
        raise MirrorError(f"it answers {error.code}") from None
    except urllib.error.URLError as error:
        raise MirrorError(f"it cannot be reached, {_reason(error.reason)}") from None
    except (http.client.HTTPException, OSError) as error:
        raise MirrorError(f"the connection broke, {_reason(error)}") from None


def _reason(error: object) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


@contextmanager
def _progress(name: str, size: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal; yield the function that advances it."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(name, total=size)
        yield lambda count: progress.advance(task, count)
