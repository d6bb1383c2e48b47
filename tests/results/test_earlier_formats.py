"""Records and results that earlier versions wrote are read without loss."""

import csv
import json
from pathlib import Path

import pytest

from helpers.runs.rows import row
from torchcaps.results import ACCURACY, AccuracyRow, append_row, read_rows

ROOT = Path(__file__).parents[2]
EARLIER = Path(__file__).with_name("earlier_accuracy.csv")
"""One row of each text that named changes, as the record held it."""


def test_the_record_holds_what_its_earlier_form_said() -> None:
    record = {each.weights_sha256: each for each in read_rows(ROOT / ACCURACY)}
    rows = read_rows(EARLIER)
    assert len(rows) == 31
    for each in rows:
        now = record[each.weights_sha256].to_dict()
        # one setting has been renamed since
        changes = {"optimizer" if k == "optimiser" else k: v for k, v in each.changes.items()}
        if "definition" in now["changes"]:  # the run was superseded since
            changes["definition"] = now["changes"]["definition"]
        assert {**each.to_dict(), "changes": changes} == now


def test_the_earlier_text_of_changes_comes_back() -> None:
    with EARLIER.open(newline="") as file:
        texts = [line["modified"] for line in csv.DictReader(file)]
    assert [each.modified for each in read_rows(EARLIER)] == texts
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize(
    ("text", "recipe_epochs", "changes"),
    [
        ("", 60, {}),
        ("no", 60, {}),
        ("yes", 60, {"unknown": "yes"}),
        ("epochs=60 of 640", 640, {}),
        ("epochs=60", 60, {"epochs": 60}),
        ("lr=0.1 epochs=60 of 640", 640, {"lr": 0.1}),
        ("hold_out=True warmup=0", 60, {"hold_out": True, "warmup": 0}),
        ("weight_decay=0.0 primary=1/64", 60, {"weight_decay": 0.0, "primary": "1/64"}),
        ("iterations=None clip=nan", 60, {"iterations": None, "clip": "nan"}),
        ("data=/my images chosen=last-epoch", 60, {"data": "/my images", "chosen": "last-epoch"}),
    ],
)
def test_every_change_of_an_earlier_result_is_kept(
    text: str, recipe_epochs: int, changes: dict[str, object]
) -> None:
    values = row(epochs=60).to_dict()
    del values["recipe_epochs"], values["changes"], values["command"]  # the first had no command
    back = AccuracyRow.from_dict({**values, "modified": text})
    assert (back.recipe_epochs, back.changes, back.command) == (recipe_epochs, changes, "")


def test_a_row_is_added_to_an_earlier_record(tmp_path: Path) -> None:
    path = tmp_path / "accuracy.csv"
    path.write_bytes(EARLIER.read_bytes())
    before = read_rows(path)
    for seed in (7, 8):
        append_row(path, row(seed=seed, changes={"data": "/a, b", "lr": 0.1}))
    assert read_rows(path) == [
        *before,
        *(row(seed=s, changes={"data": "/a, b", "lr": 0.1}) for s in (7, 8)),
    ]
    assert "modified" not in path.read_text().splitlines()[0]


@pytest.mark.parametrize(
    "changed", [{"test": "x"}, {"seed": None}, {"seed": True}, {"changes": []}]
)
def test_a_result_of_another_type_is_refused(changed: dict[str, object]) -> None:
    values = json.loads(json.dumps(row().to_dict()))
    assert AccuracyRow.from_dict(values) == row()
    (column,) = changed
    with pytest.raises(ValueError, match=f"{column} is missing or of another type"):
        AccuracyRow.from_dict({**values, **changed})
