"""Downloads from a local server that behaves in every bad way."""

import errno
import io
import multiprocessing
import sys
import tarfile
from collections.abc import Iterator
from multiprocessing.pool import Pool
from pathlib import Path
from typing import IO, Any

import pytest

import helpers.data.files as files
from helpers.data.download_server import (
    CONTENT,
    fail_to_fetch,
    fetch_whole,
    get,
    leftovers,
    serving,
    wanted,
)
from torchcaps.data import DownloadError, transfer
from torchcaps.data.download import Download, fetch


@pytest.mark.parametrize(
    "kinds",
    [
        ("good",),
        ("missing", "good"),
        ("page", "good"),
        ("wrong", "good"),
        ("long", "good"),
        ("short", "good"),
        ("cut",),
        ("missing", "wrong", "page", "cut"),
        ("noresume",),
    ],
)
def test_a_file_arrives_whole_from_the_first_source_that_has_it(
    tmp_path: Path, kinds: tuple[str, ...]
) -> None:
    with serving() as server:
        get(wanted(server, *kinds), tmp_path)
    assert (tmp_path / "set" / "file.gz").read_bytes() == CONTENT
    assert leftovers(tmp_path) == ["file.gz"]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("missing", "answers 404"),
        ("page", "web page"),
        ("wrong", "another hash"),
        ("long", "more bytes"),
        ("short", "bytes"),
        ("stalled", "timed out"),
    ],
)
def test_a_broken_source_is_one_sentence_and_no_data_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, reason: str
) -> None:
    monkeypatch.setattr(transfer, "TIMEOUT_S", 0.3 if kind == "stalled" else 20.0)
    with serving() as server, pytest.raises(DownloadError, match=reason) as caught:
        get(wanted(server, kind), tmp_path)
    message = str(caught.value)
    assert "set/file.gz" in message
    assert str(tmp_path) in message
    assert f"{server.url}/{kind}/file.gz" in message
    assert "\n" not in message
    assert not (tmp_path / "set" / "file.gz").exists()
    begun = ["file.gz.part"] if kind == "short" else []
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == begun
    assert (tmp_path / "set").exists() == bool(begun)


def test_a_failed_download_removes_the_folders_it_made_and_no_others(tmp_path: Path) -> None:
    with serving() as server:
        for folder in (tmp_path / "there", tmp_path / "new" / "deep"):
            (tmp_path / "there").mkdir(exist_ok=True)
            with pytest.raises(DownloadError, match="answers 404"):
                get(wanted(server, "missing"), folder)
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]


def test_no_server_at_all_is_one_sentence(tmp_path: Path) -> None:
    with serving() as server:
        pass
    with pytest.raises(DownloadError, match="cannot be reached") as caught:
        get(wanted(server, "good", "good"), tmp_path)
    assert "\n" not in str(caught.value)


def test_a_partial_file_is_continued_where_it_ends(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "file.gz.part").write_bytes(CONTENT[:70_000])
    with serving() as server:
        get(wanted(server, "good"), tmp_path)
        assert server.requests == [("/good/file.gz", "bytes=70000-")]
    assert (tmp_path / "set" / "file.gz").read_bytes() == CONTENT


@pytest.mark.parametrize("partial", [b"x" * 70_000, b"x" * len(CONTENT), b"x" * 200_000])
def test_a_wrong_partial_file_is_thrown_away(tmp_path: Path, partial: bytes) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "file.gz.part").write_bytes(partial)
    with serving() as server:
        get(wanted(server, "good", "good"), tmp_path)
    assert (tmp_path / "set" / "file.gz").read_bytes() == CONTENT


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with multiprocessing.get_context("spawn").Pool(8) as processes:
        yield processes


def test_eight_processes_at_once_fetch_once(pool: Pool, tmp_path: Path) -> None:
    with serving() as server:
        work = [(wanted(server, "slow"), str(tmp_path))] * 8
        assert pool.starmap(fetch_whole, work, chunksize=1) == [True] * 8
        assert len(server.requests) == 1
    assert leftovers(tmp_path) == ["file.gz"]


def test_processes_that_fail_at_once_all_say_why(pool: Pool, tmp_path: Path) -> None:
    with serving() as server:
        for number in range(5):
            work = [(wanted(server, "missing"), str(tmp_path / str(number)))] * 8
            for message in pool.starmap(fail_to_fetch, work, chunksize=1):
                assert "answers 404" in message
    assert not [path for path in tmp_path.rglob("*") if path.is_file() or path.name == "set"]


def test_a_folder_that_is_removed_while_it_is_made_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Path.mkdir
    raised: list[Path] = []

    def mkdir(self: Path, *arguments: Any, **options: Any) -> None:
        if not raised:
            raised.append(self)
            raise FileExistsError(17, "File exists")
        make(self, *arguments, **options)

    with serving() as server, monkeypatch.context() as patched:
        patched.setattr(Path, "mkdir", mkdir)
        fetch(wanted(server, "good"), tmp_path, needs="set/file.gz")
    assert raised
    assert leftovers(tmp_path) == ["file.gz"]


def archive_of(name: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        info = tarfile.TarInfo(name)
        info.size = 5
        archive.addfile(info, io.BytesIO(b"12345"))
    return files.gz(file.getvalue())


def test_archives_are_unpacked_and_removed(tmp_path: Path) -> None:
    packed = archive_of("inner/data")
    with serving(packed) as server:
        download = wanted(server, "good", content=packed, archive=True)
        fetch(download, tmp_path, needs="set/inner/data")
    assert (tmp_path / "set" / "inner" / "data").read_bytes() == b"12345"
    assert leftovers(tmp_path) == ["data"]


def test_an_archive_the_user_put_there_is_unpacked_offline_and_kept(tmp_path: Path) -> None:
    packed = archive_of("inner/data")
    with serving() as server:
        pass
    download = wanted(server, "good", content=packed, archive=True)
    with pytest.raises(FileNotFoundError, match="downloading is off"):
        fetch(download, tmp_path, needs="set/inner/data", offline=True)
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "file.gz").write_bytes(packed)
    fetch(download, tmp_path, needs="set/inner/data", offline=True)
    assert leftovers(tmp_path) == ["data", "file.gz"]


def test_an_archive_with_another_hash_is_not_unpacked(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "file.gz").write_bytes(archive_of("inner/data"))
    with serving() as server:
        download = wanted(server, "good", archive=True)
        with pytest.raises(ValueError, match="differs from the published"):
            fetch(download, tmp_path, needs="set/inner/data")
    assert leftovers(tmp_path) == ["file.gz"]


def test_an_archive_without_the_wanted_file_is_refused(tmp_path: Path) -> None:
    packed = archive_of("other")
    with serving(packed) as server:
        download = wanted(server, "good", content=packed, archive=True)
        with pytest.raises(DownloadError, match="does not hold it"):
            fetch(download, tmp_path, needs="set/inner/data")


def test_a_file_without_a_known_hash_is_never_fetched(tmp_path: Path) -> None:
    with serving() as server:
        download = Download("set/file.gz", (f"{server.url}/good/file.gz",), "", len(CONTENT))
        with pytest.raises(DownloadError, match="hash is not known"):
            get(download, tmp_path)
        assert server.requests == []


def test_a_full_disk_is_noticed_before_the_first_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 10})
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    with serving() as server:
        with pytest.raises(DownloadError, match=f"needs {len(CONTENT)} more bytes but 10 bytes"):
            get(wanted(server, "good"), tmp_path)
        assert server.requests == []


def test_a_disk_that_fills_up_is_named_with_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(io.BytesIO):
        def write(self, data: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    def open_full(path: Path, mode: str = "r", **options: Any) -> IO[Any]:
        return Full() if path.suffix == ".part" else original(path, mode, **options)

    original = Path.open
    monkeypatch.setattr(Path, "open", open_full)
    with serving() as server, pytest.raises(DownloadError, match="more bytes but") as caught:
        get(wanted(server, "good"), tmp_path)
    assert str(tmp_path / "set" / "file.gz") in str(caught.value)
    assert not (tmp_path / "set" / "file.gz").exists()


def test_a_folder_that_cannot_be_written_to_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "set").write_text("a file where the folder should be")
    with serving() as server:
        with pytest.raises(DownloadError, match="cannot be written to") as caught:
            get(wanted(server, "good"), tmp_path)
        assert server.requests == []
    assert "\n" not in str(caught.value)


def test_without_pooch_the_sentence_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    with serving() as server, pytest.raises(DownloadError, match="pooch is not installed"):
        get(wanted(server, "good"), tmp_path)
