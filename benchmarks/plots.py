"""Draw results/speed.csv on logarithmic axes and write the tables of docs/speed.md.

PYTHONPATH=src python benchmarks/plots.py [FOLDER OF THE PLOTS]
"""

import argparse
import sys
from collections import defaultdict
from pathlib import Path

import matplotlib as mpl

from torchcaps.results import headline, read_speed, speed_table, write_between

mpl.use("Agg")
from matplotlib import pyplot as plt

ROOT = Path(__file__).parent.parent


def draw(axis: str, folder: Path) -> bool:
    """Write speed-AXIS.png and return True, if some line has at least three points."""
    lines: dict[str, dict[int, float]] = defaultdict(dict)
    for row in read_speed(ROOT / "results" / "speed.csv"):
        x = getattr(row, axis)
        if row.mode != "train" or not x or row.shape:
            continue
        fixed = f"batch {row.batch}" if axis == "iterations" else f"{row.iterations} it."
        name = f"{row.case}, {row.implementation}, {row.dtype}, {fixed}"
        lines[name][x] = row.images_per_s
    lines = {name: points for name, points in lines.items() if len(points) > 2}
    if not lines:
        return False
    figure, axes = plt.subplots(figsize=(8, 5))
    for name, points in sorted(lines.items()):
        xs = sorted(points)
        axes.loglog(xs, [points[x] for x in xs], marker="o", label=name)
    ticks = sorted({x for points in lines.values() for x in points})
    axes.set_xticks(ticks, [str(x) for x in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlabel(axis)
    axes.set_ylabel("images/s, training")
    axes.grid(which="both", alpha=0.3)
    axes.legend(fontsize=7)
    figure.savefig(folder / f"speed-{axis}.png", dpi=150, bbox_inches="tight")
    plt.close(figure)
    return True


def main() -> None:
    """Draw the plots, then write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "docs")
    folder: Path = parser.parse_args().folder
    if not folder.is_dir():
        parser.error(f"there is no folder {folder}")
    for kind in ("batch", "iterations"):
        done = draw(kind, folder)
        sys.stdout.write(f"{kind}: {'drawn' if done else 'not enough rows'}\n")
    rows = read_speed(ROOT / "results" / "speed.csv")
    page = ROOT / "docs" / "speed.md"
    write_between(page, "headline", speed_table(headline(rows)))
    write_between(page, "speed", speed_table(rows))


if __name__ == "__main__":
    main()
