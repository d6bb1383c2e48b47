"""Archives write inside their folder or not at all."""

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

import helpers.data.files as files
from torchcaps.data.archives import MAX_MEMBERS, extract
from torchcaps.data.readers.bytes import FileFormatError


def tar(*members: tuple[str, bytes] | tarfile.TarInfo) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
                continue
            info = tarfile.TarInfo(member[0])
            info.size = len(member[1])
            archive.addfile(info, io.BytesIO(member[1]))
    return files.gz(file.getvalue())


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def zipped(
    *members: tuple[str | zipfile.ZipInfo, bytes], method: int = zipfile.ZIP_DEFLATED
) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return file.getvalue()


def zip_link() -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("set/link")
    info.external_attr = 0o120777 << 16
    return info


def everything(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and path.name != "archive"
    }


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_members_are_written_and_nothing_else(tmp_path: Path, kind: str) -> None:
    members = (("set/one", b"1" * 3000), ("set/deep/two", b"2"))
    (tmp_path / "archive").write_bytes(tar(*members) if kind == "tar" else zipped(*members))
    written = extract(tmp_path / "archive", tmp_path / "into", limit=4000)
    assert everything(tmp_path / "into") == dict(members)
    assert sorted(written) == sorted(tmp_path / "into" / name for name, _ in members)


HOSTILE = {
    "parent": tar(("../escaped", b"x")),
    "deep parent": tar(("set/../../escaped", b"x")),
    "absolute": tar(("/escaped", b"x")),
    "symbolic link": tar(special("set", tarfile.SYMTYPE, "..")),
    "link then file": tar(special("set", tarfile.SYMTYPE, ".."), ("set/escaped", b"x")),
    "hard link": tar(("one", b"x"), special("set", tarfile.LNKTYPE, "one")),
    "device": tar(special("set", tarfile.CHRTYPE)),
    "fifo": tar(special("set", tarfile.FIFOTYPE)),
    "parent folder": tar(special("../set", tarfile.DIRTYPE)),
    "twice": tar(("set/one", b"x"), ("set/one", b"y")),
    "file as folder": tar(("set", b"x"), ("set/one", b"y")),
    "folder as file": tar(("set/one", b"y"), ("set", b"x")),
    "too large": tar(("set/one", bytes(1001))),
    "too large together": tar(*((f"set/{i}", bytes(400)) for i in range(3))),
    "flood": tar(("set/one", bytes(50_000_000))),
    "too many": tar(*((f"set/{i}", b"") for i in range(MAX_MEMBERS + 1))),
    "control characters": tar(("set/\x1b[2J", b"x")),
    "windows": tar(("..\\escaped", b"x")),
    "drive": tar(("C:escaped", b"x")),
    "empty": tar(),
    "truncated": tar(("set/one", b"x" * 900))[:-20],
    "not an archive": b"<html>no such file</html>",
    "nothing": b"",
    "zip parent": zipped(("../escaped", b"x")),
    "zip absolute": zipped(("/escaped", b"x")),
    "zip backslash": zipped(("..\\escaped", b"x")),
    "zip link": zipped((zip_link(), b"..")),
    "zip too large": zipped(("set/one", bytes(1001))),
    "zip flood": zipped(("set/one", bytes(50_000_000))),
    "zip lzma": zipped(("set/one", b"x"), method=zipfile.ZIP_LZMA),
    "zip bzip2": zipped(("set/one", b"x"), method=zipfile.ZIP_BZIP2),
    "zip truncated": zipped(("set/one", b"x" * 900))[:-30],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives_write_nothing(tmp_path: Path, name: str) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "archive").write_bytes(HOSTILE[name])
    with pytest.raises(FileFormatError) as caught:
        extract(inner / "archive", inner / "into", limit=1000)
    assert "\n" not in str(caught.value)
    assert everything(tmp_path) == {}
    assert not list((inner / "into").iterdir())


def test_files_that_are_there_survive_a_broken_archive(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "one").write_bytes(b"good")
    (tmp_path / "archive").write_bytes(tar(("set/one", b"bad" * 300))[:-20])
    with pytest.raises(FileFormatError):
        extract(tmp_path / "archive", tmp_path, limit=1000)
    assert (tmp_path / "set" / "one").read_bytes() == b"good"


def test_a_link_in_the_destination_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "into").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "into" / "set").symlink_to(tmp_path / "outside")
    (tmp_path / "archive").write_bytes(tar(("first", b"1"), ("set/deep/one", b"x")))
    with pytest.raises(FileExistsError, match="would lie outside") as caught:
        extract(tmp_path / "archive", tmp_path / "into", limit=1000)
    assert "\n" not in str(caught.value)
    assert everything(tmp_path) == {}


@pytest.mark.parametrize(
    ("there", "reason"), [("set/one/more", "is a folder"), ("set", "needs a folder where")]
)
def test_folders_and_files_that_are_there_are_not_exchanged(
    tmp_path: Path, there: str, reason: str
) -> None:
    (tmp_path / there).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / there).write_bytes(b"mine")
    (tmp_path / "archive").write_bytes(tar(("first", b"1"), ("set/one", b"x")))
    with pytest.raises(FileExistsError, match=reason) as caught:
        extract(tmp_path / "archive", tmp_path, limit=1000)
    assert "Errno" not in str(caught.value)
    assert everything(tmp_path) == {there: b"mine"}
