"""Downloads from servers that misbehave, several at once, in random order."""

import random
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import helpers.data.download_server as downloads
from torchcaps.data import DownloadError, transfer
from torchcaps.data.download import Download

BAD = ("missing", "page", "wrong", "long", "short", "stalled")
GOOD = ("good", "cut", "noresume", "slow")
PARTIALS = (0, 0, 1, 70_000, len(downloads.CONTENT), len(downloads.CONTENT) + 5)


def trials(first: int, count: int) -> Iterator[str]:
    """One data file from one to four mirrors; every tenth trial has eight askers at once."""
    for number in range(first, first + count):
        rng = random.Random(f"download {number}")
        kinds = rng.choices(BAD, k=rng.randrange(3))
        works = rng.random() < 0.6
        if works:
            kinds.append(rng.choice(GOOD))
        elif not kinds:
            kinds.append(rng.choice(BAD))
        askers = 8 if number % 10 == 9 else 1
        try:
            fetch(kinds, works, rng, askers)
            yield ""
        except (AssertionError, OSError, ValueError) as error:
            yield f"download {number}, {kinds}: {error!r}"


def fetch(kinds: list[str], works: bool, rng: random.Random, askers: int) -> None:
    with tempfile.TemporaryDirectory(prefix="torchcaps-download-") as name:
        folder = Path(name)
        partial = rng.choice(PARTIALS)
        if partial:
            (folder / "set").mkdir()
            (folder / "set" / "file.gz.part").write_bytes(rng.randbytes(partial))
        with downloads.serving() as server, patch.object(transfer, "TIMEOUT_S", 1.5):
            # a file that was begun wrongly is thrown away by the first mirror that is asked
            mirrors = [*kinds, kinds[-1]] if partial else kinds
            wanted = downloads.wanted(server, *mirrors)
            with ThreadPoolExecutor(askers) as pool:
                answers = list(pool.map(lambda _: ask(wanted, folder), range(askers)))
        for answer in answers:
            if works:
                assert not answer, f"refused: {answer}"
            else:
                assert str(folder) in answer, f"the folder is not named: {answer!r}"
                assert "\n" not in answer, f"more than a sentence: {answer}"
        target = folder / "set" / "file.gz"
        assert target.is_file() == works, "a broken file got the name" if not works else "no file"
        if works:
            assert target.read_bytes() == downloads.CONTENT, "another file"
            assert downloads.leftovers(folder) == ["file.gz"], "something was left behind"


def ask(wanted: Download, folder: Path) -> str:
    try:
        downloads.get(wanted, folder)
    except DownloadError as error:
        return str(error)
    return ""
