"""Fetching what is missing: pinned hashes, several mirrors, resumed and atomic.

A file is received under its name with ``.part`` appended and takes its name only when its hash is
the pinned one, so a broken download never looks like a data set. What a lost connection leaves is
continued next time; nothing else stays of a failure. One process fetches; others wait for it and
use its file.
"""

import http.client
import shutil
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from torchcaps.data.archives import extract
from torchcaps.data.readers.bytes import check_file_hash, naming
from torchcaps.data.sets.canonical import Download
from torchcaps.errors import MissingFileError, TorchcapsError
from torchcaps.storage import FULL

if TYPE_CHECKING:
    from filelock import FileLock

TIMEOUT = 30.0
_CHUNK = 1 << 18
_TRIES = 100


class DownloadError(TorchcapsError, OSError):
    """A file could not be fetched from any of its sources."""


def fetch(
    download: Download, folder: Path, *, needs: str, limit: int, offline: bool = False
) -> None:
    """Fetch a file, and unpack it if it is an archive, so that ``folder / needs`` exists.

    An archive that lies in its place already is checked, unpacked and kept.

    Args:
        download: what to fetch, with its hash.
        folder: the data folder.
        needs: the file wanted, relative to it.
        limit: the most bytes an archive may unpack to.
        offline: use what is there and fetch nothing.
    """
    if not download.hash:
        raise DownloadError(_sentence(download, folder, needs, "its hash is not known"))
    target = folder / download.path
    if offline and not target.is_file():
        raise MissingFileError(_sentence(download, folder, needs, "downloading is off"))
    from filelock import FileLock

    lock = FileLock(target.with_name(f".{target.name}.lock"))
    places = (target.parent, *target.parent.parents)
    own = [place for place in places if folder in place.parents or not place.exists()]
    try:
        _acquire(lock, target.parent)
    except OSError as error:
        _remove_empty(own)
        cause = f"{target.parent} cannot be written to, {error.strerror}"
        raise DownloadError(_sentence(download, folder, needs, cause)) from None
    try:
        if not (folder / needs).is_file():
            _fetch_locked(download, folder, needs, limit)
    except BaseException:
        # Windows keeps a file that is open
        with suppress(OSError):
            Path(lock.lock_file).unlink()
        raise
    finally:
        lock.release()
        _remove_empty(own)


def _acquire(lock: "FileLock", folder: Path) -> None:
    """Wait for the lock; another process that fails may remove the folder meanwhile."""
    for _ in range(_TRIES):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock.acquire()
            return
        except FileNotFoundError:
            time.sleep(0.01)
    lock.acquire()


def _remove_empty(folders: list[Path]) -> None:
    """Remove those of the folders, innermost first, in which nothing was left."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _fetch_locked(download: Download, folder: Path, needs: str, limit: int) -> None:
    target = folder / download.path
    was_there = target.is_file()
    if was_there:
        with naming(target):
            check_file_hash(target, download.hash)
    else:
        _retrieve(download, folder, needs)
    if download.archive:
        try:
            extract(target, target.parent, limit=limit)
        except OSError as error:
            if error.errno in FULL:
                raise _no_space(target.parent, f"unpacking {target.name} needs more") from None
            raise
        if not was_there:
            target.unlink()
    if not (folder / needs).is_file():
        cause = f"{download.path} does not hold it"
        raise DownloadError(_sentence(download, folder, needs, cause))


def _no_space(folder: Path, what: str) -> DownloadError:
    free = shutil.disk_usage(folder).free
    return DownloadError(
        f"{what} but {free} bytes are free in {folder}; make room or set TORCHCAPS_DATA to "
        "another folder"
    )


def _retrieve(download: Download, folder: Path, needs: str) -> None:
    """Try one mirror after another until a file has the pinned hash."""
    try:
        import pooch
    except ImportError:
        raise DownloadError(
            _sentence(download, folder, needs, "pooch is not installed to fetch it")
        ) from None
    pooch.get_logger().setLevel("WARNING")
    target = folder / download.path
    causes = []
    for url in download.urls:
        try:
            pooch.retrieve(
                url,
                known_hash=download.hash,
                fname=target.name,
                path=target.parent,
                downloader=_Resuming(target, download.size),
            )
            return
        except _SourceError as error:
            causes.append(f"{_host(url)}: {error}")
        except ValueError:
            causes.append(f"{_host(url)}: the file it sent has another hash")
    raise DownloadError(_sentence(download, folder, needs, "; ".join(causes)))


def _sentence(download: Download, folder: Path, needs: str, cause: str) -> str:
    return (
        f"{needs} is not in {folder} and could not be fetched ({cause}); download "
        f"{download.urls[0]} elsewhere and put it into {(folder / download.path).parent}"
    )


def _host(url: str) -> str:
    return url.split("/")[2]


class _SourceError(Exception):
    """One source did not deliver."""


class _Resuming:
    """A downloader for pooch that continues a partial file and checks what it is sent."""

    def __init__(self, target: Path, size: int) -> None:
        self.target = target
        self.part = target.with_name(target.name + ".part")
        self.size = size

    def __call__(self, url: str, output_file: str, pooch: object) -> None:
        if shutil.disk_usage(self.part.parent).free < self.size - self._have():
            raise self._no_space()
        try:
            self._receive(url)
        except OSError as error:
            if error.errno in FULL:
                raise self._no_space() from None
            raise
        finally:
            if self.part.is_file() and not self._have():
                self.part.unlink()
        self.part.replace(output_file)

    def _have(self) -> int:
        size = self.part.stat().st_size if self.part.is_file() else 0
        return size if size <= self.size else 0

    def _no_space(self) -> DownloadError:
        return _no_space(
            self.part.parent, f"{self.target} needs {self.size - self._have()} more bytes"
        )

    def _receive(self, url: str) -> None:
        """Ask again, from where the file ends, as long as each answer brings something."""
        while (have := self._have()) < self.size:
            try:
                self._receive_once(url, have)
            except _SourceError:
                if self._have() <= have:
                    raise

    def _receive_once(self, url: str, have: int) -> None:
        request = urllib.request.Request(url, headers={"User-Agent": "torchcaps"})
        if have:
            request.add_header("Range", f"bytes={have}-")
        with _answer(request) as answer:
            if answer.headers.get_content_type() == "text/html":
                raise _SourceError("it sends a web page in place of the file")
            if answer.status != http.HTTPStatus.PARTIAL_CONTENT:
                have = 0
            with (
                self.part.open("ab" if have else "wb") as file,
                _progress(self.target.name, self.size) as advance,
            ):
                advance(have)
                have += self._copy(answer, file, self.size - have, advance)
        if have < self.size:
            raise _SourceError(f"it sends {have} of {self.size} bytes")

    def _copy(
        self,
        answer: http.client.HTTPResponse,
        file: IO[bytes],
        left: int,
        advance: Callable[[int], None],
    ) -> int:
        received = 0
        while True:
            with _network():
                chunk = answer.read(min(_CHUNK, left + 1 - received))
            if not chunk:
                return received
            received += len(chunk)
            if received > left:
                file.truncate(0)
                raise _SourceError("it sends more bytes than the file has")
            file.write(chunk)
            advance(len(chunk))


@contextmanager
def _answer(request: urllib.request.Request) -> Iterator[http.client.HTTPResponse]:
    with _network():
        answer = urllib.request.urlopen(request, timeout=TIMEOUT)
    with answer:
        yield answer


@contextmanager
def _network() -> Iterator[None]:
    """Turn what a connection can raise into a reason."""
    try:
        yield
    except urllib.error.HTTPError as error:
        error.close()
        raise _SourceError(f"it answers {error.code}") from None
    except urllib.error.URLError as error:
        raise _SourceError(f"it cannot be reached, {_reason(error.reason)}") from None
    except (http.client.HTTPException, OSError) as error:
        raise _SourceError(f"the connection broke, {_reason(error)}") from None


def _reason(error: object) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


@contextmanager
def _progress(name: str, size: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, silence elsewhere."""
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
