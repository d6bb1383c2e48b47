"""The command line as a new user meets it: one sentence and the right exit code."""

import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

from helpers.commands import invoke, one_sentence
from helpers.data.own_images import SMALL, draw, made
from torchcaps.data import Batch, Batches
from torchcaps.recipes import get
from torchcaps.train.images import load_sources
from torchcaps.train.step import Step


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_run_ends_in_its_folder_and_in_the_record() -> None:
    result = invoke("train", "demo/strokes-dynamic", *SMALL)
    assert result.exit_code == 0, result.output
    assert "test " in result.stdout.splitlines()[-1]
    folder = Path("runs/demo/strokes-dynamic/seed0")
    row = json.loads((folder / "result.json").read_text())
    assert row["changes"] == {"limit": 64, "test_limit": 50}
    assert len(Path("results/accuracy.csv").read_text().splitlines()) == 2
    scored = invoke("evaluate", folder, "--device", "cpu", "--json")
    assert json.loads(scored.stdout)[str(folder)]["images"] == 10_000
    again = invoke("train", "demo/strokes-dynamic", *SMALL, "--json")
    assert json.loads(again.stdout) == row


def test_several_seeds_give_mean_and_spread() -> None:
    result = invoke("train", "demo/strokes-pairwise", *SMALL, "--seeds", "2", "--seed", "5")
    assert result.exit_code == 0, result.output
    assert "2 seeds" in result.stdout.splitlines()[-1]
    assert Path("runs/demo/strokes-pairwise/seed6/weights.safetensors").is_file()
    printed = json.loads(
        invoke("train", "demo/strokes-pairwise", *SMALL, "--seeds", "2", "--json").stdout
    )
    assert [row["seed"] for row in printed] == [0, 1]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["sabour2017/mnst"], "did you mean 'sabour2017/mnist'?"),
        (["sabour2017/mnist", "--set", "epohs=3"], "did you mean 'epochs'?"),
        (["sabour2017/mnist", "--set", "epochs=many"], "epochs must be a whole number"),
        (["sabour2017/mnist", "--set", "epochs=0"], "epochs must be between 1 and"),
        (["sabour2017/mnist", "--set", "epochs"], "must be key=value"),
        (["sabour2017/mnist", "--set", "lr=-0.1"], "lr must be"),
        (["sabour2017/mnist", "--set", "lr=nan"], "lr must be a finite number"),
        (["sabour2017/mnist", "--set", "compile=maybe"], "compile must be true or false"),
        (["sabour2017/mnist", "--set", "precision=half"], "precision must be one of"),
        (["sabour2017/mnist", "--device", "tpu"], "there is no device 'tpu'"),
        (["demo/strokes-em", "--seed", "9" * 23], "seed must be between 0 and 4294967295"),
        (["demo/strokes-em", "--seed", str(2**32 - 1), "--seeds", "2"], "4294967295, not"),
        (["demo/strokes-em", "--resume"], "no checkpoint to resume"),
        (["sabour2017/mnist", "--set", "label_smoothing=0.1"], "label_smoothing is for cross-"),
        (["sabour2017/mnist-baseline", "--set", "iterations=3"], "does not iterate"),
        (["zhao2020/cifar10", *SMALL, "--set", "reconstruction_weight=1"], "has no decoder"),
        (["demo/strokes-em", *SMALL, "--set", "coefficient_lr=0.1"], "has no coefficients"),
        (["demo/strokes-em", *SMALL, "--set", "coefficient_every=2"], "has no coefficients"),
    ],
)
def test_wrong_use_is_answered_with_2(arguments: list[str], expected: str) -> None:
    assert expected in one_sentence(invoke("train", *arguments), 2)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_is_named() -> None:
    said = one_sentence(invoke("train", "demo/strokes-em", "--device", "cuda"), 2)
    assert said == "cuda was asked for and PyTorch sees no CUDA GPU: use --device cpu"


def test_another_recipe_s_folder_is_refused() -> None:
    invoke("train", "demo/strokes-dynamic", *SMALL, "--out", "here")
    said = one_sentence(invoke("train", "demo/strokes-em", *SMALL, "--out", "here"), 2)
    assert "here holds a run with recipe demo/strokes-dynamic and not demo/strokes-em" in said


@pytest.mark.parametrize("out", [".", "here"])
def test_fresh_sets_the_run_aside_and_leaves_other_files_alone(out: str) -> None:
    Path("here").mkdir()
    (Path(out) / "thesis.txt").write_text("mine")
    words = ["train", "demo/strokes-pairwise", *SMALL, "--out", out, "--fresh"]
    for _ in range(2):
        result = invoke(*words)
        assert result.exit_code == 0, result.output
    assert (Path(out) / "thesis.txt").read_text() == "mine"
    folder = Path(out).absolute()
    aside = list(folder.parent.glob(f"{folder.name}.before-*"))
    assert len(aside) == 1
    assert (aside[0] / "weights.safetensors").is_file()


def test_a_folder_that_cannot_be_written_is_named() -> None:
    Path("file").write_text("not a folder")
    said = one_sentence(invoke("train", "demo/strokes-em", *SMALL, "--out", "file/run"), 1)
    assert said.startswith("file/run cannot be written")


def test_a_record_that_is_none_is_named_before_the_training() -> None:
    Path("notes.csv").write_text("day,weather\n")
    words = ["train", "demo/strokes-pairwise", *SMALL, "--out", "run", "--results", "notes.csv"]
    assert "notes.csv is not a table of results" in one_sentence(invoke(*words), 1)
    assert not Path("run").exists()


def test_a_record_that_cannot_be_added_to_is_named_before_the_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = ["train", "demo/strokes-pairwise", *SMALL, "--results", "rows.csv", "--out"]
    assert invoke(*words, "first").exit_code == 0
    before, usual = Path("rows.csv").read_bytes(), Path.open

    def refuse(self: Path, mode: str = "r", *given: Any, **options: Any) -> Any:
        if self.name == "rows.csv" and "a" in mode:
            raise PermissionError(13, "Permission denied")
        return usual(self, mode, *given, **options)

    monkeypatch.setattr(Path, "open", refuse)
    said = one_sentence(invoke(*words, "second"), 1)
    assert said.startswith("rows.csv cannot be added to (Permission denied)")
    assert not Path("second").exists()
    assert Path("rows.csv").read_bytes() == before


def full(step: Step, batch: Batch) -> None:
    torch.empty(2**50)


def full_gpu(step: Step, batch: Batch) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def full_host(step: Step, batch: Batch) -> None:
    raise MemoryError


@pytest.mark.parametrize("take", [full, full_gpu, full_host])
def test_too_little_memory_is_one_sentence(
    take: Callable[[Step, Batch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Step, "__call__", take)
    said = one_sentence(invoke("train", "demo/strokes-pairwise", *SMALL), 1)
    assert said.startswith("there is not enough memory: set a batch_size below 64, such as --set")


def test_no_data_and_no_network_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> NoReturn:
        raise OSError("no network")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    said = one_sentence(invoke("train", "sabour2017/mnist", *SMALL, "--data-dir", "empty"), 1)
    assert "mnist" in said


def test_an_earlier_run_is_set_aside_and_said_where() -> None:
    words = ["train", "demo/strokes-pairwise", *SMALL, "--out", "run"]
    assert "kept in" not in invoke(*words).stdout
    printed = invoke(*words, "--fresh").stdout
    (aside,) = Path().glob("run.before-*")
    assert f"the earlier run is kept in {aside.absolute()}" in printed


def test_what_cannot_be_kept_is_said_before_the_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("plain").touch()
    words = ["train", "demo/strokes-pairwise", *SMALL, "--out", "run"]
    said = one_sentence(invoke(*words, "--results", "plain/x.csv"), 1)
    assert "plain/x.csv cannot be written" in said
    assert said.endswith("name another file with --results")
    assert not Path("run").exists()
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    monkeypatch.delattr("torch.utils.tensorboard", raising=False)
    printed = invoke(*[word for word in words if word != "--no-tensorboard"]).stdout
    assert "tensorboard is not installed: no events are written" in printed


def test_fewer_test_images_than_are_shown_do_not_cost_the_weights() -> None:
    draw(Path("mine/train"), shape=(20, 20), count=20)
    draw(Path("mine/test"), shape=(20, 20), count=2)
    words = ["--data", "mine", "--set", "epochs=1", "--device", "cpu", "--out", "run"]
    result = invoke("train", "demo/strokes-pairwise", *words)
    assert result.exit_code == 0, result.output
    assert Path("run/weights.safetensors").is_file()
    assert any(Path("run/tensorboard").iterdir())


def test_a_paper_s_number_is_not_printed_beside_a_user_s_own_images() -> None:
    draw(Path("mine"), shape=(28, 28), count=20)
    words = ["--data", "mine", *SMALL, "--set", "batch_size=8", "--out", "run"]
    result = invoke("train", "choi2019/mnist", *words)
    assert result.exit_code == 0, result.output
    assert get("choi2019/mnist").published.value == 99.46
    assert json.loads(Path("run/result.json").read_text())["paper"] is None


def test_a_user_s_own_validation_images_choose_the_epoch() -> None:
    for part, count in (("train", 20), ("validation", 4), ("test", 6)):
        draw(Path("mine", part), shape=(20, 20), count=count)
    sources = load_sources(
        get("demo/strokes-pairwise"), root=None, own_folder=Path("mine"), device=torch.device("cpu")
    )
    assert sources.validation is not None
    assert sources.test is not None
    assert [len(sources.train), len(sources.validation), len(sources.test)] == [40, 8, 12]


@pytest.mark.parametrize(("count", "held_out"), [(20, 4), (3, None)])
def test_own_images_without_a_test_part_are_scored_on_some_held_out(
    count: int, held_out: int | None
) -> None:
    recipe = get("tsai2020/cifar10-resnet-modern")
    assert not recipe.hold_out
    draw(Path("mine"), shape=(32, 32, 3), count=count)
    sources = load_sources(recipe, root=None, own_folder=Path("mine"), device=torch.device("cpu"))
    assert sources.test is None
    assert (sources.validation and len(sources.validation)) == held_out
    assert len(sources.train) == 2 * count - (held_out or 0)


def test_the_first_of_a_user_s_images_are_of_every_class() -> None:
    draw(Path("mine"), shape=(20, 20), count=20)
    recipe = get("demo/strokes-pairwise").override(limit=4)
    sources = load_sources(recipe, root=None, own_folder=Path("mine"), device=torch.device("cpu"))
    batch = next(iter(Batches(sources.train, 4, shuffled=False)))
    assert batch.labels.tolist() == [0, 1, 0, 1]


def test_too_few_images_to_hold_any_out_are_told_what_to_do() -> None:
    draw(Path("mine"), shape=(20, 20), count=1)
    said = one_sentence(invoke("train", "demo/strokes-em", "--data", "mine", *SMALL), 1)
    assert "--set hold_out=false" in said


def test_a_recipe_of_two_objects_refuses_a_folder_of_one() -> None:
    draw(Path("mine"), shape=(20, 20), count=20)
    words = ["train", "sabour2017/multimnist-baseline", "--data", "mine", *SMALL]
    assert "two objects" in one_sentence(invoke(*words), 2)


def test_a_wrong_folder_is_answered_with_the_layout_expected_and_found() -> None:
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("no images here")
    said = one_sentence(invoke("train", "demo/strokes-em", "--data", "mine", *SMALL), 1)
    assert "Expected: FOLDER/CLASS/IMAGE.png" in said
    assert "Found: notes.txt" in said
    assert "Expected" in one_sentence(invoke("train", "demo/strokes-em", "--data", "no"), 1)


def test_a_run_that_held_nothing_out_has_no_validation_score() -> None:
    invoke("train", "demo/strokes-pairwise", *SMALL, "--set", "hold_out=false", "--out", "run")
    said = one_sentence(invoke("evaluate", "run", "--split", "validation"), 2)
    assert "no validation images" in said


def test_runs_on_different_images_are_not_scored_on_the_first_one_s() -> None:
    draw(Path("mine"), shape=(28, 28), count=20)
    invoke("train", "demo/strokes-pairwise", *SMALL, "--out", "strokes")
    invoke("train", "demo/strokes-pairwise", *SMALL, "--data", "mine", "--out", "own")
    said = one_sentence(invoke("evaluate", "strokes", "own", "--device", "cpu"), 2)
    assert "strokes and own were trained on images of different kinds" in said
    said = one_sentence(invoke("evaluate", "strokes", "--recipe", "demo/stroks-em"), 2)
    assert "did you mean" in said


def test_wrong_files_to_evaluate_are_named() -> None:
    said = one_sentence(invoke("evaluate", "sabour2017/mnst"), 1)
    assert "no run folder or weight file" in said
    assert "did you mean 'sabour2017/mnist'?" in said
    Path("run").mkdir()
    assert "no finished run" in one_sentence(invoke("evaluate", "run"), 1)
    Path("x.safetensors").write_bytes(b"junk")
    assert "not a whole safetensors file" in one_sentence(invoke("evaluate", "x.safetensors"), 1)


def test_a_folder_without_weights_is_told_what_it_lacks() -> None:
    Path("runs").mkdir()
    run = made("runs/seed0", data=None, n_classes=10)
    said = one_sentence(invoke("evaluate", "runs"), 1)
    assert said == "runs holds runs and is none itself: name them, such as runs/seed0"
    (run / "weights.safetensors").unlink()
    said = one_sentence(invoke("evaluate", run), 1)
    assert said == "runs/seed0 holds no finished run: weights.safetensors is not there yet"
    (run / "result.json").write_text("{}")
    assert "is finished and its weights.safetensors is gone" in one_sentence(
        invoke("evaluate", run), 1
    )


def test_places_that_cannot_be_written_are_named_before_the_work() -> None:
    Path("file").write_text("")
    words = (["bench", "--keep", "file/here/rows.csv"], ["figures", "run", "--out", "file"])
    made("run", data="mine", n_classes=2)
    draw(Path("mine"), shape=(32, 32, 3), count=20)
    for each in words:
        said = one_sentence(invoke(*each), 1)
        assert "cannot be created" in said
        assert each[-2] in said


def test_an_unreadable_image_is_named_alone() -> None:
    draw(Path("mine"), shape=(20, 20), count=20)
    Path("mine/dark/0.png").write_bytes(b"junk")
    said = one_sentence(invoke("train", "demo/strokes-em", "--data", "mine", *SMALL), 1)
    assert said.startswith("mine/dark/0.png cannot be used")
    assert "Expected" not in said


def test_the_environment_is_printed_for_a_bug_report() -> None:
    facts = json.loads(invoke("env", "--json").stdout)
    assert facts["torch"] == torch.__version__
    assert {"commit", "python", "gpus", "data folder"} <= set(facts)
    assert "torchcaps" in invoke("env").stdout


def test_ship_refuses_an_unknown_store_before_it_adds_anything() -> None:
    said = one_sentence(invoke("ship", "nowhere", "--store", "int4"), 2)
    assert "weights are stored as int8 or float16, not 'int4'" in said


def test_an_error_of_the_system_is_a_sentence_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = ["train", "demo/strokes-pairwise", *SMALL, "--out", "run"]
    assert invoke(*words).exit_code == 0
    Path("plain").touch()
    said = one_sentence(invoke("ship", "run", "--into", "plain", "--results", "record.csv"), 1)
    assert said == "plain is not a folder: choose another with --into"
    assert not Path("record.csv").exists()

    def denied(path: Path) -> NoReturn:
        raise PermissionError(13, "Permission denied", str(path))

    draw(Path("mine"), shape=(28, 28), count=1)
    monkeypatch.setattr(Path, "iterdir", denied)
    said = one_sentence(invoke("data", "info", "./mine"), 1)
    assert said.startswith("mine cannot be used (Permission denied): check that")
