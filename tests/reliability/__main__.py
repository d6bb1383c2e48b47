"""Run rows of the scorecard, keep what was seen, and write the page."""

import argparse
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")

import torch

from reliability import __doc__ as about, record
from reliability.rows import ROWS
from torchcaps.storage import write_text

EVERY = 20.0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=list(ROWS), help="a row; repeatable")
    parser.add_argument("--count", type=int, help="trials of each row, from the first; no record")
    parser.add_argument("--pr", action="store_true", help="as often as `make test`; no record")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after these")
    parser.add_argument("--list", action="store_true", help="list the rows and stop")
    parser.add_argument("--record", type=Path, default=record.RECORD, help="the CSV")
    parser.add_argument("--page", type=Path, default=record.PAGE, help="the table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.list:
        for name, row in ROWS.items():
            say(f"{name:16}{row.pr:>9,}{row.release:>11,}  {row.claim}")
        return 0
    names = options.only or list(ROWS)
    if options.pr or options.count is not None:
        counts = [ROWS[name].pr if options.pr else options.count for name in names]
        return int(sum(map(tried, names, counts)) > 0)
    deadline = time.monotonic() + 60 * options.minutes
    entries = record.read(options.record)
    for number, name in enumerate(names):
        left = deadline - time.monotonic()
        share = time.monotonic() + left / (len(names) - number)
        go_on(name, entries, share, options.record)
        write_text(options.page, record.page(entries))
    return int(any(entries[name].failures for name in names if name in entries))


def tried(name: str, count: int) -> int:
    """Try a row from its first trial and print what was seen; the number of failures."""
    seen = list(ROWS[name].trials()(0, count))
    failures = [failure for failure in seen if failure]
    for failure in failures[:5]:
        say(f"{name}: {failure}")
    say(f"{name}: {len(seen)} seen, {len(failures)} failures")
    return len(failures)


def go_on(name: str, entries: dict[str, record.Entry], deadline: float, path: Path) -> None:
    """Try a row from where it stopped, until all was seen or time is up."""
    row, now, here = ROWS[name], record.commit(), record.machine()
    entry = entries.get(name)
    if entry is None or entry.commit != now or entry.machine != here or entry.commit[-1] == "+":
        entry = record.Entry(name, row.release, 0, 0, 0.0, now, record.today(), here)
    if entry.seen >= row.release or time.monotonic() >= deadline:
        return
    entries[name] = entry
    started = written = time.monotonic()
    before = entry.seconds
    for failure in row.trials()(entry.seen, row.release - entry.seen):
        entry.seen += 1
        if failure:
            say(f"{name}: {failure}")
            entry.note = entry.note or failure[:300]
            entry.failures += 1
        now_ = time.monotonic()
        entry.seconds, entry.date = round(before + now_ - started, 1), record.today()
        if now_ - written > EVERY:
            record.write(entries, path)
            written = now_
        if now_ >= deadline:
            break
    record.write(entries, path)
    say(f"{name}: {entry.seen:,} of {row.release:,} seen, {entry.failures} failures")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
