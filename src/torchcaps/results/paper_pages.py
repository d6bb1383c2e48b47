"""The pages of papers: their tables beside our numbers, verdicts, and what is measured of each."""

import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from torchcaps.papers import PAPERS
from torchcaps.recipes import RECIPES, Recipe
from torchcaps.results.accuracy import read_rows
from torchcaps.results.claims import CLAIMS, Evidence, Verdict
from torchcaps.results.coverage import MODERN, Coverage, cover
from torchcaps.results.curves import find_curve
from torchcaps.results.pages import MARK, percent, section
from torchcaps.results.speed import read_speed
from torchcaps.results.summary import Summary, paper_of, results_by_recipe
from torchcaps.results.tables import markdown_table, write_between

WIDTH = 120
CLAIM_HEADINGS = ("claim", "verdict", "evidence")
HEADINGS = ("recipe", "paper", "ours, as published", "ours, modern training")
BEST_HEADINGS = (
    *("recipe", "paper, best epoch", "ours, last epoch", "ours, best epoch"),
    "ours, modern training",
)
COVERAGE_HEADINGS = (
    *("paper", "rows", "possible here", "measured", "whole", "three seeds"),
    *("claims", "judged", "seen"),
)


def gather(record: str | Path, speed: str | Path) -> Evidence:
    """Read what tables and verdicts are made of.

    Args:
        record: the CSV of finished runs, with the folder ``curves`` beside it.
        speed: the CSV of the benchmark; it may be missing.
    """
    results = results_by_recipe(read_rows(record), partial(find_curve, record))
    return Evidence(results, read_speed(speed) if Path(speed).is_file() else ())


def write_paper(paper: str, page: str | Path, evidence: Evidence) -> bool:
    """Write the verdicts and a table for each table and figure of a paper into its page.

    Args:
        paper: the paper's key, such as ``"sabour2017"``.
        page: the file, with the marks ``claims`` and ``results``.
        evidence: see :func:`gather`.
    """
    verdicts = judge(evidence)[paper]
    rows = [
        (claim.text, str(verdict), verdict.evidence)
        for claim, verdict in zip(CLAIMS[paper], verdicts, strict=True)
    ]
    changed = write_between(page, "claims", markdown_table(CLAIM_HEADINGS, rows))
    tables: dict[str, list[Recipe]] = {}
    for name, recipe in RECIPES.items():
        if paper_of(name) == paper and not name.endswith(MODERN):
            tables.setdefault(recipe.published.where, []).append(recipe)
    # what a paper prints comes before our controls
    order = sorted(tables, key=lambda where: not any(one.published.is_row for one in tables[where]))
    sections = [_table(where, tables[where], evidence.results) for where in order]
    return write_between(page, MARK, "\n".join(sections).removesuffix("\n")) or changed


def write_coverage(page: str | Path, evidence: Evidence) -> bool:
    """Write what is measured of each paper between the marks ``coverage`` of a page."""
    counts = cover(evidence.results, judge(evidence))
    total = sum(counts, Coverage(""))
    rows = [(PAPERS[one.paper].label, *map(str, one.counts())) for one in counts]
    table = markdown_table(COVERAGE_HEADINGS, [*rows, ("all", *map(str, total.counts()))])
    return write_between(page, "coverage", f"{_sentences(total)}\n\n{table}")


def judge(evidence: Evidence) -> dict[str, list[Verdict]]:
    """Return the verdicts on the claims of each paper."""
    return {paper: [claim.judge(evidence) for claim in claims] for paper, claims in CLAIMS.items()}


def _sentences(total: Coverage) -> str:
    short = total.measured - total.whole
    text = (
        f"The papers print or draw {total.rows} rows. MNIST, Fashion-MNIST, CIFAR-10 and CIFAR-100 "
        f"suffice for {total.allowed}. {total.whole} of these are measured at full length and "
        f"with the present definition, {total.seeds} of them with three seeds or more. {short} "
        f"more have shorter or superseded runs. The abstracts make {total.claims} claims: "
        f"{total.judged} are judged, and {total.seen} of those are seen."
    )
    return textwrap.fill(text, WIDTH)


def _table(where: str, recipes: Sequence[Recipe], results: Mapping[str, Summary]) -> str:
    """Return the table of the rows that a paper has in one place, or of controls."""
    if where.startswith("finding"):
        controls = [_row(recipe, results, best=False) for recipe in recipes]
        return section(f"Controls: {where}", ("recipe", "ours"), [(c[0], c[2]) for c in controls])
    best = any(recipe.published.is_best_epoch for recipe in recipes)
    rows = [_row(recipe, results, best=best) for recipe in recipes]
    return section(where, BEST_HEADINGS if best else HEADINGS, rows)


def _row(recipe: Recipe, results: Mapping[str, Summary], *, best: bool) -> list[str]:
    name, published = recipe.name, recipe.published
    spread = "" if published.spread is None else f" ± {published.spread:g}"
    ours, modern = results.get(name), results.get(name + MODERN)
    cells = [
        name.partition("/")[2],
        percent(published.value) + spread,
        "not measured" if ours is None else _text(name, ours),
        "" if modern is None else modern.text(),
    ]
    if best:
        watched = None if ours is None else ours.best_epoch
        cells.insert(3, "" if watched is None else f"{watched:.2f}")
    return cells


def _text(name: str, summary: Summary) -> str:
    """Return a result, and the recipe that it was recorded for if it is a twin."""
    if summary.recipe == name:
        return summary.text()
    return f"{summary.text()}, as {summary.recipe.partition('/')[2]}"
