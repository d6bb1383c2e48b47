"""What was seen of each row, as a CSV that is whole at every moment, and its table."""

import csv
import datetime
import io
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch

from reliability.rows import ROWS
from torchcaps.provenance import revision
from torchcaps.storage import write_text

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "results" / "reliability.csv"
PAGE = ROOT / "RELIABILITY.md"


@dataclass
class Entry:
    """What was seen of one row at one commit on one machine."""

    row: str
    asked: int
    seen: int
    failures: int
    seconds: float
    commit: str
    date: str
    machine: str
    note: str = ""


def read(path: Path = RECORD) -> dict[str, Entry]:
    if not path.is_file():
        return {}
    with path.open(newline="") as file:
        return {
            line["row"]: Entry(
                line["row"],
                int(line["asked"]),
                int(line["seen"]),
                int(line["failures"]),
                float(line["seconds"]),
                line["commit"],
                line["date"],
                line["machine"],
                line["note"],
            )
            for line in csv.DictReader(file)
        }


def write(entries: dict[str, Entry], path: Path = RECORD) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(Entry)], lineterminator="\n")
    writer.writeheader()
    for name in ROWS:
        if name in entries:
            writer.writerow(asdict(entries[name]))
    write_text(path, text.getvalue())


def commit() -> str:
    """The last commit that changed what is tested; a plus where there is more than that.

    A copy without its history says what its file ``COMMIT`` does.
    """
    told = _git("log", "-1", "--format=%h", "--", "src")
    return (told or revision()) + ("+" if _git("status", "--porcelain", "--", "src") else "")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip()


def machine() -> str:
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    # asked of another process: this one is forked, which a GPU in use does not survive
    asking = [sys.executable, "-c", "import torch; print(torch.cuda.get_device_name())"]
    gpu = ""
    if torch.cuda.is_available():
        gpu = ", " + subprocess.run(asking, capture_output=True, text=True).stdout.strip()
    python = ".".join(map(str, sys.version_info[:3]))
    plain = torch.__version__.partition("+")[0]
    return f"{cores} CPU cores{gpu}, torch {plain}, Python {python}"


def today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def page(entries: dict[str, Entry]) -> str:
    """The scorecard in Markdown: every row, also those of which nothing was seen."""
    lines = [
        "# Reliability: what is promised and what was seen",
        "",
        "Written by `make reliability`: every number was counted by a script in",
        '`tests/reliability`. "PR" is how often each `make test` tries a claim, "asked" what a',
        'release asks for, "seen" how much of that was tried at the commit named.',
        "",
        "| row | claim | PR | asked | seen | failures | seconds | commit | date | machine |",
        "|---|---|---:|---:|---:|---:|---:|---|---|---|",
    ]
    for name, row in ROWS.items():
        entry = entries.get(name)
        if entry is None:
            seen = f"{row.release:,} | 0 | - | - | - | - | not run"
        else:
            seen = (
                f"{entry.asked:,} | {entry.seen:,} | {entry.failures:,} | {entry.seconds:,.0f} | "
                f"{entry.commit} | {entry.date} | {entry.machine}"
            )
        lines.append(f"| `{name}` | {row.claim} | {row.pr:,} | {seen} |")
    notes = [f"- `{name}`: {entry.note}" for name, entry in entries.items() if entry.note]
    if notes:
        lines += ["", "First failures and remarks:", "", *notes]
    return "\n".join([*lines, ""])
