"""Downloads of missing files: pinned hashes, several mirrors, resumable, atomic.

A file is received as ``NAME.part`` and renamed once its hash is the pinned one. A broken download
therefore never looks like a data set. The next attempt continues a partial file; a failure leaves
nothing else behind. One process downloads; others wait for it and use its file.
"""

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torchcaps.data.archives import extract
from torchcaps.data.readers.bytes import check_file_hash, naming
from torchcaps.data.transfer import DownloadError, MirrorError, ResumingDownloader, no_space
from torchcaps.errors import MissingFileError
from torchcaps.storage import FULL

if TYPE_CHECKING:
    from filelock import FileLock

_MAX_TRIES = 100


@dataclass(frozen=True)
class Download:
    """A file to download.

    Attributes:
        path: path under the data folder.
        urls: mirrors, in the order in which they are tried.
        hash: pinned hash, ``"sha256:..."``; without one nothing is downloaded.
        size: size in bytes.
        max_unpacked_bytes: the most bytes the archive may unpack to; 0 if it is no archive.
    """

    path: str
    urls: tuple[str, ...]
    hash: str
    size: int
    max_unpacked_bytes: int = 0


def fetch(download: Download, folder: Path, *, needs: str, offline: bool = False) -> None:
    """Download a file, and unpack it if it is an archive, so that ``folder / needs`` exists.

    An archive that is already in the folder is checked, unpacked and kept.

    Args:
        download: the file or archive.
        folder: the data folder.
        needs: the file that the caller wants, relative to the folder.
        offline: use only files that are already in the folder.
    """
    if not download.hash:
        raise _failure(download, folder, needs, "its hash is not known")
    target = folder / download.path
    if offline and not target.is_file():
        raise MissingFileError(_explain(download, folder, needs, "downloading is off"))
    from filelock import FileLock

    lock = FileLock(target.with_name(f".{target.name}.lock"))
    parents = (target.parent, *target.parent.parents)
    removable = [path for path in parents if folder in path.parents or not path.exists()]
    try:
        _acquire(lock, target.parent)
    except OSError as error:
        _remove_empty(removable)
        cause = f"{target.parent} cannot be written to, {error.strerror}"
        raise _failure(download, folder, needs, cause) from None
    try:
        if not (folder / needs).is_file():
            _fetch_locked(download, folder, needs)
    except BaseException:
        # Windows cannot remove an open file
        with suppress(OSError):
            Path(lock.lock_file).unlink()
        raise
    finally:
        lock.release()
        _remove_empty(removable)


def _acquire(lock: "FileLock", folder: Path) -> None:
    """Wait for the lock; make the folder again if another process that failed removed it."""
    for _ in range(_MAX_TRIES):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock.acquire()
            return
        except (FileNotFoundError, FileExistsError):
            # mkdir says that it exists if it is removed while mkdir looks
            time.sleep(0.01)
    lock.acquire()


def _remove_empty(folders: list[Path]) -> None:
    """Remove empty folders; the innermost comes first."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _fetch_locked(download: Download, folder: Path, needs: str) -> None:
    target = folder / download.path
    was_present = target.is_file()
    if was_present:
        with naming(target):
            check_file_hash(target, download.hash)
    else:
        _retrieve(download, folder, needs)
    if download.max_unpacked_bytes:
        try:
            extract(target, target.parent, limit=download.max_unpacked_bytes)
        except OSError as error:
            if error.errno in FULL:
                raise no_space(target.parent, f"unpacking {target.name} needs more") from None
            raise
        if not was_present:
            target.unlink()
    if not (folder / needs).is_file():
        raise _failure(download, folder, needs, f"{download.path} does not hold it")


def _retrieve(download: Download, folder: Path, needs: str) -> None:
    """Try one mirror after another until a file has the pinned hash."""
    try:
        import pooch
    except ImportError:
        raise _failure(download, folder, needs, "pooch is not installed to fetch it") from None
    pooch.get_logger().setLevel("WARNING")
    target = folder / download.path
    causes = []
    for url in download.urls:
        host = url.split("/")[2]
        try:
            pooch.retrieve(
                url,
                known_hash=download.hash,
                fname=target.name,
                path=target.parent,
                downloader=ResumingDownloader(target, download.size),
            )
            return
        except MirrorError as error:
            causes.append(f"{host}: {error}")
        except ValueError:
            causes.append(f"{host}: the file it sent has another hash")
    raise _failure(download, folder, needs, "; ".join(causes))


def _failure(download: Download, folder: Path, needs: str, cause: str) -> DownloadError:
    return DownloadError(_explain(download, folder, needs, cause))


def _explain(download: Download, folder: Path, needs: str, cause: str) -> str:
    return (
        f"{needs} is not in {folder} and could not be fetched ({cause}); download "
        f"{download.urls[0]} elsewhere and put it into {(folder / download.path).parent}"
    )
