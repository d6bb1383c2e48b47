"""Verdicts on the papers' claims follow from rows, and the counts of what is measured too."""

from dataclasses import replace
from pathlib import Path

import pytest

from helpers.runs.rows import row
from torchcaps.papers import PAPERS
from torchcaps.recipes import RECIPES
from torchcaps.results import (
    AccuracyRow,
    CurvePoint,
    SpeedRow,
    append_row,
    curve_path,
    gather,
    judge,
    write_coverage,
    write_curve,
    write_paper,
)
from torchcaps.results.claims import CLAIMS, Evidence
from torchcaps.results.claims.verdicts import above, faster, not_worse, reached
from torchcaps.results.coverage import Coverage, cover, is_allowed, published_rows
from torchcaps.results.summary import results_by_recipe

ONE, OTHER, THIRD = "tsai2020/cifar10-simple", "tsai2020/cifar10-baseline", "choi2019/mnist"
PAGE = "<!-- claims -->\n<!-- /claims -->\n<!-- results -->\n<!-- /results -->\n"


def evidence(**tests: float) -> Evidence:
    """Return whole runs with these test accuracies."""
    names = {"one": ONE, "other": OTHER, "third": THIRD}
    return Evidence(results_by_recipe([row(names[key], 0, test) for key, test in tests.items()]))


@pytest.mark.parametrize(
    ("tests", "word"),
    [
        ({"one": 90.0, "other": 88.0}, "seen"),
        ({"one": 90.0, "other": 89.8}, "not seen"),  # within two standard errors
        ({"one": 88.0, "other": 90.0}, "not seen"),
        ({"one": 90.0}, "not measured"),
    ],
)
def test_better_is_more_than_two_standard_errors(tests: dict[str, float], word: str) -> None:
    assert above((ONE, OTHER))(evidence(**tests)).word == word


def test_as_good_allows_one_standard_error() -> None:
    judged = not_worse((ONE, OTHER))
    assert judged(evidence(one=89.8, other=90.0)).word == "seen"
    assert judged(evidence(one=89.0, other=90.0)).word == "not seen"


def test_of_several_comparisons_some_may_hold() -> None:
    verdict = above((ONE, OTHER), (ONE, THIRD))(evidence(one=90.0, other=80.0, third=99.0))
    assert verdict.word == "seen in part"
    assert (
        "cifar10-simple 90.00 (n = 1), cifar10-baseline 80.00 (n = 1): +10.00" in verdict.evidence
    )
    verdict = above((ONE, OTHER), (ONE, THIRD))(evidence(one=90.0, other=80.0))
    assert verdict.word == "seen in part"
    assert verdict.evidence.endswith("no run: mnist")


def test_short_and_superseded_runs_give_provisional_verdicts() -> None:
    whole = above((ONE, OTHER))(evidence(one=90.0, other=80.0))
    assert whole.is_judged
    for change in ({"epochs": 30}, {"changes": {"definition": 1}}):
        rows = [row(ONE, 0, 90.0, **change), row(OTHER, 0, 80.0)]
        verdict = above((ONE, OTHER))(Evidence(results_by_recipe(rows)))
        assert str(verdict) == "seen, provisional"
        assert not verdict.is_judged


def test_a_paper_is_reached_within_a_standard_error() -> None:
    assert RECIPES[ONE].published.value == 85.17
    assert reached(ONE)(evidence(one=84.9)).word == "seen"
    assert reached(ONE)(evidence(one=84.0)).word == "not seen"
    assert reached(ONE)(evidence()).word == "not measured"


def speed(case: str, images_per_s: float, **more: object) -> SpeedRow:
    values = {"case": case, "mode": "inference", "implementation": "torch", "batch": 128}
    values |= {"dtype": "float32", "gpu": "H200", "images_per_s": images_per_s}
    values |= {"torch": "", "commit": "", "date": ""}
    return SpeedRow.from_dict({**values, **more})


def test_times_are_compared_within_one_setting_only() -> None:
    judged = faster(("a/x", "a/y"))
    rows = [speed("a/x", 200.0), speed("a/y", 100.0)]
    verdict = judged(Evidence(speeds=rows))
    assert verdict.word == "seen"
    assert "x 640 ms, y 1.28e+03 ms a batch of 128 (H200)" in verdict.evidence
    assert judged(Evidence(speeds=rows[::-1])).word == "seen"
    rows[1] = speed("a/y", 100.0, batch=64)
    assert judged(Evidence(speeds=rows)).evidence == "not timed: x, y"


def test_every_claim_names_recipes_that_exist_and_can_be_judged() -> None:
    assert set(CLAIMS) == set(PAPERS)
    rows = [row(name, 0, 50.0) for name in RECIPES]
    cases = [speed(name, 100.0, mode=mode) for name in RECIPES for mode in ("inference", "train")]
    for verdicts in judge(Evidence(results_by_recipe(rows), cases)).values():
        for verdict in verdicts:
            assert "no run:" not in verdict.evidence
            assert "not timed:" not in verdict.evidence


def test_rows_are_counted_by_what_the_data_allows() -> None:
    assert is_allowed(RECIPES["sabour2017/multimnist"])
    assert is_allowed(RECIPES["choi2019/affnist-style"])
    for name in ("sabour2017/affnist", "zhao2020/svhn", "zhao2020/smallnorb", "choi2019/affnist"):
        assert not is_allowed(RECIPES[name]), name
    names = {recipe.name for recipe in published_rows("sabour2017")}
    assert "sabour2017/multimnist-1" in names
    assert not [name for name in names if "control" in name or "modern" in name or "style" in name]


def test_coverage_counts_whole_runs_and_seeds() -> None:
    name = "sabour2017/multimnist"
    runs = [row(name, seed, 94.0) for seed in range(3)]
    short = [row("sabour2017/mnist", 0, 99.0, epochs=3)]
    old = [row("sabour2017/mnist-1", 0, 99.0, changes={"definition": 1})]

    def counted(*groups: list[AccuracyRow]) -> Coverage:
        results = results_by_recipe([one for group in groups for one in group])
        (found,) = (one for one in cover(results, {}) if one.paper == "sabour2017")
        return found

    nothing = counted([])
    assert nothing == replace(counted(), measured=0, whole=0, seeds=0)
    assert nothing.allowed < nothing.rows
    assert counted(runs[:2]) == replace(nothing, measured=1, whole=1)
    assert counted(runs, short, old) == replace(nothing, measured=3, whole=1, seeds=1)


def test_a_page_shows_last_and_best_epoch_of_the_same_runs(tmp_path: Path) -> None:
    record = tmp_path / "accuracy.csv"
    for seed, last, best in ((0, 94.0, 94.5), (1, 95.0, 95.1)):
        run = row("tsai2020/cifar10-resnet", seed, last, epochs=2, recipe_epochs=2)
        append_row(record, run)
        tests = (best, last)
        points = [CurvePoint(epoch=n, step=n, test=t) for n, t in enumerate(tests, start=1)]
        write_curve(curve_path(record, run), points)
    append_row(record, row("tsai2020/cifar10-simple-2", 0, 85.0))
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert write_paper("tsai2020", page, gather(record, tmp_path / "speed.csv"))
    text = page.read_text()
    assert "| cifar10-resnet | 95.14 | 94.50 ± 0.71 (n = 2) | 94.80 |  |" in text
    # a run without watched test accuracy has no best epoch, and Table 1 prints what Figure 4 has
    assert "| cifar10-simple | 85.17 | 85.00 (n = 1), as cifar10-simple-2 |  |  |" in text
    assert "| cifar100-resnet | 78.02 | not measured |  |  |" in text


def test_the_summary_counts_the_rows_of_the_record(tmp_path: Path) -> None:
    record, page = tmp_path / "accuracy.csv", tmp_path / "results.md"
    page.write_text("<!-- coverage -->\n<!-- /coverage -->\n")
    append_row(record, row("sabour2017/multimnist", 0, 94.0))
    assert write_coverage(page, gather(record, tmp_path / "speed.csv"))
    text = " ".join(page.read_text().split())
    assert " 1 of these are measured at full length" in text
    assert "0 more have shorter or superseded runs" in text
    for seed in (1, 2):
        append_row(record, row("sabour2017/multimnist", seed, 94.0))
    append_row(record, row("sabour2017/multimnist-baseline", 0, 91.0))
    assert write_coverage(page, gather(record, tmp_path / "speed.csv"))
    assert " 2 of these are measured at full length" in " ".join(page.read_text().split())
    before = int(text.partition(" are judged")[0].rpartition(" ")[2])
    text = " ".join(page.read_text().split())
    assert int(text.partition(" are judged")[0].rpartition(" ")[2]) == before + 1
