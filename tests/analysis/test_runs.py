"""Run folders, weight files and benchmark rows become subjects, curves and costs."""

from pathlib import Path

import pytest
import torch

import torchcaps as tc
from helpers.networks.families import family
from helpers.runs.folders import SPEED, write_run
from torchcaps import analysis
from torchcaps.data import CenterCrop, Normalize
from torchcaps.results import read_speed
from torchcaps.train.evaluation.trained import find_trained


@pytest.fixture
def speed(tmp_path: Path) -> Path:
    path = tmp_path / "speed.csv"
    path.write_text(SPEED)
    return path


def test_a_curve_has_the_epochs_and_nothing_else(tmp_path: Path) -> None:
    lines = [
        '{"kind": "start", "epoch": 0, "loss": 9}',
        '{"kind": "epoch", "epoch": 1, "step": 10, "loss": 0.5, "train": 90, "validation": 91}',
        '{"kind": "epoch", "epoch": 2, "step": 20, "loss": 9.9, "train": 80, "validation": 81}',
        "not json",
        '{"kind": "epoch", "epoch": 2, "step": 20, "loss": 0.25, "train": 95, "validation": 94}',
        '{"kind": "epoch", "epoch": 3, "st',
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    curve = analysis.training_curve(tmp_path, name="mine")
    assert (curve.name, curve.epochs) == ("mine", (1, 2))
    assert curve.values["loss"] == (0.5, 0.25)
    assert curve.values["validation"] == (91, 94)


def test_what_an_epoch_did_not_write_is_missing(tmp_path: Path) -> None:
    curve = analysis.training_curve(write_run(tmp_path / "seed0"))
    assert set(curve.values) == {"loss", "train"}
    assert curve.name == "seed0"


def test_runs_without_epochs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="has trained"):
        analysis.training_curve(tmp_path)
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(ValueError, match="no epochs yet"):
        analysis.training_curve(tmp_path)


def test_costs_are_what_the_rows_say(speed: Path) -> None:
    rows = read_speed(speed)
    assert len(rows) == 6
    assert rows[0].batch_ms == pytest.approx(10)
    assert rows[4].seconds_per_100_steps == pytest.approx(4)
    assert rows[5].iterations is None
    (curve,) = analysis.cost_by_iterations(rows)
    assert (curve.case, curve.implementation) == ("sabour2017/mnist", "torch")
    assert curve.iterations == (1, 2, 3)
    assert curve.batch_ms == pytest.approx((10, 40 / 3, 20))
    assert curve.peak_mib == (100, 120, 140)


MIXED = """\
case,mode,implementation,batch,dtype,iterations,side,images_per_s,peak_mib,gpu
sabour2017/mnist,train,torch,128,bfloat16,3,,12800,,H200
sabour2017/mnist,train,fused,128,bfloat16,3,,25600,,H200
sabour2017/mnist,train,fused,128,bfloat16,5,,6400,,H200
sabour2017/mnist,train,floor,128,bfloat16,,,51200,,H200
sabour2017/mnist,train,fused,128,bfloat16,4,64,1280,,H200
sabour2017/mnist,train,torch,2048,bfloat16,3,,20480,,H200
sabour2017/mnist,train,floor,16,float32,,,160,,CPU
sabour2017/mnist,train,fused,128,bfloat16,2,,128,,CPU
"""


def test_costs_of_other_sizes_batches_and_devices_are_not_compared(tmp_path: Path) -> None:
    (tmp_path / "speed.csv").write_text(MIXED)
    rows = read_speed(tmp_path / "speed.csv")
    (curve,) = analysis.cost_by_iterations(rows, mode="train")
    assert curve.iterations == (3, 5)
    assert curve.batch_ms == pytest.approx((5, 20))
    alike = {row.implementation: row for row in analysis.comparable(rows, mode="train")}
    assert {name: row.batch_ms for name, row in alike.items()} == pytest.approx(
        {"torch": 10, "fused": 5, "floor": 2.5}
    )
    assert analysis.comparable(rows, mode="inference") == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a,b\n1,2\n", "known columns"),
        (SPEED.replace("12800", "fast"), "row 2: images_per_s must be a number, not 'fast'"),
        (SPEED.replace("12800", "-1"), "images_per_s must be a number of at least 0"),
        (SPEED.replace("12800", "0"), "above 0"),
    ],
)
def test_other_tables_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "speed.csv").write_text(text)
    with pytest.raises(ValueError, match=reason):
        read_speed(tmp_path / "speed.csv")
    with pytest.raises(ValueError, match=r"cannot read .*none\.csv"):
        read_speed(tmp_path / "none.csv")


def test_a_run_folder_opens_with_its_data(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs" / "demo" / "seed3")
    subject = analysis.open_subject(run)
    assert subject.name == "demo/strokes-dynamic seed3"
    assert (subject.dataset, subject.run, subject.measure) == ("strokes", run, "top1")
    assert subject.result is not None
    assert subject.result.test == 97.25
    assert not subject.network.training
    batch = subject.batch(5)
    assert batch.images.shape == (5, 1, 28, 28)
    assert torch.equal(batch.images, analysis.open_subject(run).batch(5).images)
    assert torch.equal(batch.images[:2], subject.batch(2).images)


def test_a_weight_file_opens_by_the_network_it_names(tmp_path: Path) -> None:
    path = tmp_path / "mine.safetensors"
    tc.save(tc.build("demo/strokes-pairwise"), path)
    subject = analysis.open_subject(path)
    assert (subject.name, subject.dataset, subject.run) == ("mine", "strokes", None)


def test_a_recipe_opens_by_name_if_it_was_trained_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="torchcaps train demo/strokes-em"):
        find_trained(Path("demo/strokes-em"))
    run = write_run(tmp_path / "runs/demo/strokes-em/seed0", recipe="demo/strokes-em")
    assert find_trained(Path("demo/strokes-em")).resolve() == run
    assert analysis.open_subject("demo/strokes-em").dataset == "strokes"


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no run folder or weight file"):
        analysis.open_subject(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="no finished run"):
        analysis.open_subject(tmp_path / "empty")
    path = tmp_path / "other.safetensors"
    tc.save(tc.build("demo/strokes-pairwise", n_classes=3), path)
    with pytest.raises(ValueError, match="of 3 classes and the data have"):
        analysis.open_subject(path)


def test_a_prepared_network_sees_what_the_transforms_give() -> None:
    network = family("plain")
    transforms = (CenterCrop(28), Normalize((0.2,), (0.5,)))
    prepared = analysis.Prepared(network, transforms, (1, 32, 32)).eval()
    images = torch.rand(3, 1, 32, 32)
    with torch.no_grad():
        expected = network((images[..., 2:30, 2:30] - 0.2) / 0.5).scores
        torch.testing.assert_close(prepared(images).scores, expected)
    with pytest.raises(ValueError, match="takes images"):
        prepared(torch.rand(1, 1, 28, 28))


def test_layers_of_a_prepared_network_keep_their_names() -> None:
    prepared = analysis.Prepared(family("dynamic"), (Normalize((0.2,), (0.5,)),), (1, 28, 28))
    (layer,) = analysis.trace(prepared.eval(), torch.rand(1, 1, 28, 28))
    assert layer.name == "classes"
