"""The report: a folder per network, captions, an estimate of the time, and a whole page."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from helpers.networks.families import subject
from torchcaps import figures

EFFORT = figures.Effort(samples=20, attacked=2, traced=2, pairs=1000, shown=3)


@cache
def small_report(folder: Path) -> Path:
    return figures.report(
        [subject("dynamic"), subject("plain")],
        folder,
        command="torchcaps figures <a> & b",
        only=["reconstructions", "entropy", "robustness", "training"],
        effort=EFFORT,
    )


def test_each_network_has_a_folder_of_its_own(tmp_path: Path) -> None:
    one, other = subject("dynamic"), replace(subject("plain"), name="dynamic")
    folder = figures.subject_folder(tmp_path, [one])
    assert folder == tmp_path / "dynamic"
    assert figures.subject_folder(tmp_path, [one]) == folder
    assert figures.subject_folder(tmp_path, [other]) == tmp_path / "dynamic-2"
    assert figures.subject_folder(tmp_path, [other]) == tmp_path / "dynamic-2"
    (tmp_path / "a-b").mkdir()
    assert figures.subject_folder(tmp_path, [replace(one, name="../a b")]) == tmp_path / "a-b-2"
    both = figures.subject_folder(tmp_path, [one, other])
    assert both == tmp_path / "dynamic-1-and-dynamic-2"
    many = figures.subject_folder(tmp_path, [replace(one, name="x" * 90), other])
    assert len(many.name) < 140


def test_captions_name_the_networks_that_are_drawn(tmp_path: Path) -> None:
    runs = [subject("dynamic"), subject("plain")]
    pictures, _ = figures.draw(runs, only=["walk", "robustness"], effort=EFFORT)
    assert [picture.subjects for picture in pictures] == [("dynamic",), ("dynamic", "plain")]
    text = figures.write_report(pictures, tmp_path, title="t", command="c").read_text()
    assert "<figcaption><b>dynamic, plain</b>. Accuracy on" in text


def test_the_time_is_estimated_from_the_work_of_each_figure() -> None:
    short = replace(EFFORT, samples=20)
    few = figures.estimate_seconds([subject("dynamic")], ["walk", "robustness"], short)
    much = figures.estimate_seconds(
        [subject("dynamic")], ["robustness"], replace(short, samples=2000)
    )
    assert 1 <= few["walk"] < few["robustness"] < much["robustness"]


def test_the_page_is_whole_in_itself(tmp_path: Path) -> None:
    index = small_report(tmp_path / "deep" / "out")
    text = index.read_text()
    assert text.count("<img ") == text.count("data:image/png;base64,") == 3
    assert "http" not in text
    assert "torchcaps figures &lt;a&gt; &amp; b" in text
    assert "plain: Classifier has no decoder" in text
    assert "it has no run folder" in text
    assert " of 20 test images" in text
    names = {path.name for path in index.parent.iterdir()}
    stems = {"reconstructions-0", "entropy-0", "robustness"}
    assert names == {f"{s}.{e}" for s in stems for e in ("png", "svg", "json")} | {"index.html"}
    data = json.loads((index.parent / "robustness.json").read_text())
    assert data["dynamic"][0]["what"] == "rotation"


def test_pictures_are_there_as_soon_as_they_are_drawn(tmp_path: Path) -> None:
    seen: dict[str, list[str]] = {}

    def progress(name: str) -> None:
        seen[name] = sorted(path.name for path in tmp_path.glob("*.png"))

    only = ["reconstructions", "true-pose", "dimensions"]
    figures.report(
        [subject("dynamic")], tmp_path, command="x", only=only, effort=EFFORT, progress=progress
    )
    assert seen == {
        "reconstructions": [],
        "dimensions": ["reconstructions.png"],
        "true-pose": ["dimensions.png", "reconstructions.png"],
    }


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ValueError, match="cannot be written"):
        small_report(tmp_path / "file" / "out")
