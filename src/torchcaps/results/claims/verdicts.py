"""Verdicts on claims: which number has to be above which, and by how much."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from torchcaps.recipes import RECIPES
from torchcaps.results.speed import SpeedRow
from torchcaps.results.summary import Summary

Word = Literal["seen", "seen in part", "not seen", "not measured"]

TEST_IMAGES = 10_000
"""Test images of the data sets that are compared here."""

MIN_LEAD_ERRORS = 2.0
"""Standard errors by which one accuracy must exceed another to count as better."""

MAX_LAG_ERRORS = 1.0
"""Standard errors by which an accuracy may miss another and still count as equal."""


@dataclass(frozen=True)
class Verdict:
    """A verdict on a claim.

    Attributes:
        word: whether the claim is seen.
        evidence: the numbers, as Markdown.
        provisional: whether a number is of a shortened run or a superseded definition.
    """

    word: Word
    evidence: str
    provisional: bool = False

    @property
    def is_judged(self) -> bool:
        """Return whether measurements of full length decide."""
        return self.word != "not measured" and not self.provisional

    def __str__(self) -> str:
        return f"{self.word}, provisional" if self.provisional else self.word


@dataclass(frozen=True)
class Evidence:
    """What verdicts are based on.

    Attributes:
        results: the result of each recipe that has one.
        speeds: the rows of the benchmark, oldest first.
    """

    results: Mapping[str, Summary] = field(default_factory=dict)
    speeds: Sequence[SpeedRow] = ()


Judge = Callable[[Evidence], Verdict]


@dataclass(frozen=True)
class Claim:
    """A claim of a paper's abstract, and what judges it."""

    text: str
    judge: Judge


def fixed_verdict(word: Word, evidence: str) -> Judge:
    """Return a verdict that rests on another page or on a count of parameters."""
    return lambda _: Verdict(word, evidence)


def above(*pairs: tuple[str, str], also: str = "") -> Judge:
    """Judge whether the first recipe of each pair is better than the second."""
    return lambda evidence: _compare(evidence, pairs, MIN_LEAD_ERRORS, also)


def not_worse(*pairs: tuple[str, str], also: str = "") -> Judge:
    """Judge whether the first recipe of each pair is at least as good as the second."""
    return lambda evidence: _compare(evidence, pairs, -MAX_LAG_ERRORS, also)


def reached(*names: str, also: str = "") -> Judge:
    """Judge whether recipes reach the paper's number, within one standard error."""

    def judge(evidence: Evidence) -> Verdict:
        known = {name: evidence.results[name] for name in names if name in evidence.results}
        held, texts = [], []
        for name, summary in known.items():
            paper = RECIPES[name].published.value
            assert paper is not None
            held.append(summary.mean >= paper - MAX_LAG_ERRORS * standard_error(summary))
            texts.append(f"{_text(name, summary)}, paper {paper:.2f}")
        texts.append(_without("no run", [name for name in names if name not in known]))
        return _verdict(held, len(names), [*texts, also], list(known.values()))

    return judge


def faster(*pairs: tuple[str, str], mode: str = "inference", also: str = "") -> Judge:
    """Judge whether the first network of each pair takes less time than the second."""

    def judge(evidence: Evidence) -> Verdict:
        held: list[bool] = []
        texts: list[str] = []
        missing: list[str] = []
        for one, other in pairs:
            rows = _alike(evidence.speeds, one, other, mode)
            if rows is None:
                missing += [one, other]
                continue
            held.append(rows[0].images_per_s > rows[1].images_per_s)
            texts.append(
                f"{_short(one)} {rows[0].batch_ms:.3g} ms, {_short(other)} "
                f"{rows[1].batch_ms:.3g} ms a batch of {rows[0].batch} ({rows[0].gpu})"
            )
        texts.append(_without("not timed", missing))
        return _verdict(held, len(pairs), [*texts, also], [])

    return judge


def standard_error(summary: Summary) -> float:
    """Return the standard error of a mean test accuracy in percent: of images and of seeds."""
    share = summary.mean / 100
    of_images = 100 * math.sqrt(share * (1 - share) / TEST_IMAGES)
    of_seeds = 0.0 if summary.spread is None else summary.spread / math.sqrt(summary.n)
    return math.hypot(of_images, of_seeds)


def _compare(
    evidence: Evidence, pairs: Sequence[tuple[str, str]], least: float, also: str
) -> Verdict:
    """Judge differences that must exceed ``least`` standard errors."""
    held: list[bool] = []
    used: list[Summary] = []
    texts: list[str] = []
    missing: list[str] = []
    for one, other in pairs:
        left, right = evidence.results.get(one), evidence.results.get(other)
        if left is None or right is None:
            missing += [name for name in (one, other) if name not in evidence.results]
            continue
        error = math.hypot(standard_error(left), standard_error(right))
        held.append(left.mean - right.mean > least * error)
        used += [left, right]
        difference = f"{left.mean - right.mean:+.2f} ± {error:.2f}"
        texts.append(f"{_text(one, left)}, {_text(other, right)}: {difference}")
    texts.append(_without("no run", missing))
    return _verdict(held, len(pairs), [*texts, also], used)


def _verdict(
    held: Sequence[bool], n: int, texts: Sequence[str], used: Sequence[Summary]
) -> Verdict:
    """Return the verdict on ``n`` comparisons, of which those in ``held`` were made."""
    evidence = "; ".join(dict.fromkeys(text for text in texts if text))
    if not held:
        return Verdict("not measured", evidence)
    word: Word = "seen in part"
    if all(held) and len(held) == n:
        word = "seen"
    elif not any(held):
        word = "not seen"
    return Verdict(word, evidence, provisional=any(not one.is_whole for one in used))


def _alike(
    speeds: Sequence[SpeedRow], one: str, other: str, mode: str
) -> tuple[SpeedRow, SpeedRow] | None:
    """Return the latest rows of two networks that were measured in the same setting."""

    def setting(row: SpeedRow) -> tuple[object, ...]:
        return row.batch, row.dtype, row.gpu, row.implementation, row.shape, row.commit

    rows = [row for row in speeds if row.mode == mode]
    for row in reversed(rows):
        if row.case == one:
            for against in reversed(rows):
                if against.case == other and setting(against) == setting(row):
                    return row, against
    return None


def _short(name: str) -> str:
    """Return a recipe's name without its paper."""
    return name.partition("/")[2]


def _without(what: str, names: Sequence[str]) -> str:
    """Name each of these recipes once; an empty text for none."""
    return f"{what}: {', '.join(dict.fromkeys(map(_short, names)))}" if names else ""


def _text(name: str, summary: Summary) -> str:
    return f"{_short(name)} {summary.text()}"
