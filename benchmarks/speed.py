"""Fill results/speed.csv with the settings of the plans named on the command line.

    PYTHONPATH=src python benchmarks/speed.py quick              # a GPU, nothing compiled: a minute
    PYTHONPATH=src python benchmarks/speed.py tsai sabour em     # compiled: a minute per setting
    PYTHONPATH=src python benchmarks/speed.py cpu --threads 2 --repeats 3

Every row is written as soon as it is measured. The README.md in this folder explains the numbers.
"""

import argparse
import sys
from pathlib import Path

import torch

from torchcaps.bench import PLANS, Measured, Setting, measure, plan, rows_of
from torchcaps.provenance import revision
from torchcaps.results import append_speed, speed_table

ROOT = Path(__file__).parent.parent


def try_measure(setting: Setting, device: torch.device, repeats: int) -> list[Measured]:
    """Return one measurement, or none after printing why."""
    try:
        return [measure(setting, device=device, repeats=repeats)]
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
    except RuntimeError as error:
        sys.stderr.write(f"{setting}: {str(error).splitlines()[0]}\n")
    return []


def main() -> None:
    """Measure the plans, and write and print their rows."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("plans", nargs="+", metavar="plan", help=", ".join(PLANS))
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "speed.csv")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--threads", type=int, default=None)
    options = parser.parse_args()
    try:
        plans = [plan(name) for name in options.plans]
        append_speed(options.out, [])
    except (OSError, ValueError) as error:
        parser.error(str(error))
    if options.repeats < 1:
        parser.error(f"--repeats must be at least 1, not {options.repeats}")
    if options.threads:
        torch.set_num_threads(options.threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for settings in plans:
        measured: list[Measured] = []
        for setting in settings:
            new = try_measure(setting, device, options.repeats)
            measured += new
            rows = rows_of(measured, device=device, revision=revision())[len(measured) - len(new) :]
            if not new:
                continue
            append_speed(options.out, rows)
            sys.stdout.write("\n".join(speed_table(rows).splitlines()[2:]) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
