"""Checkpoints keep every bit, are whole or not there, and are never lost on the way."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from helpers.runs.checkpoints import save
from torchcaps.train.checkpoint import files as module, state
from torchcaps.train.checkpoint.files import (
    Checkpoint,
    CheckpointError,
    checkpoints,
    load_checkpoint,
    newest_checkpoint,
    prune,
    save_checkpoint,
    sweep,
)

BITS = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
TENSORS = {
    "every bfloat16": BITS.view(torch.bfloat16),
    "every float16": BITS.view(torch.float16),
    "float32": torch.tensor([[1.0, -0.0], [float("nan"), float("inf")]]),
    "float64": torch.randn(3, dtype=torch.float64),
    "int64": torch.tensor([-(2**63), 2**63 - 1]),
    "uint8": torch.get_rng_state(),
    "bool": torch.tensor([True, False]),
    "scalar": torch.tensor(3.5),
    "whole scalar": torch.tensor(7),
    "empty": torch.zeros(0, 3),
    "not contiguous": torch.arange(12).reshape(3, 4).T,
    "channels last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
}


def holds(found: Checkpoint | None, step: int, value: float | None = None) -> bool:
    number = float(step) if value is None else value
    return (
        found is not None
        and found.step == step
        and found.state["value"] == number
        and bool((found.model["w"] == number).all())
        and bool((found.optim["m"] == number).all())
    )


def silent(message: str) -> None:
    raise AssertionError(message)


def same_bits(a: Tensor, b: Tensor) -> bool:
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return False
    flat = (x.contiguous().reshape(-1).view(torch.uint8) for x in (a, b))
    return torch.equal(*flat)


def test_every_bit_of_every_type_comes_back(tmp_path: Path) -> None:
    state = {
        "step": 3,
        "best": None,
        "lr": 0.1 + 0.2,
        "seed": 2**63,
        "name": "π\n",
        "list": [1, []],
    }
    path = save_checkpoint(tmp_path, 3, model=TENSORS, optim={}, state=state)
    assert path == tmp_path / "step-00000003"
    found = load_checkpoint(path, model=TENSORS)
    assert (found.step, found.state, found.optim) == (3, state, {})
    assert found.model.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert same_bits(found.model[name], tensor), name
        found.model[name].zero_()


def test_tied_weights_are_saved_under_both_names(tmp_path: Path) -> None:
    tied = torch.randn(4)
    path = save_checkpoint(
        tmp_path, 0, model={"a": tied, "b": tied}, optim={"c": tied[1:]}, state={}
    )
    found = load_checkpoint(path)
    assert torch.equal(found.model["b"], tied)
    assert torch.equal(found.optim["c"], tied[1:])


def test_the_files_are_those_named_and_nothing_else_is_left(tmp_path: Path) -> None:
    save(tmp_path, 12)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000012"]
    names = {p.name for p in (tmp_path / "step-00000012").iterdir()}
    assert names == {"model.safetensors", "optim.safetensors", "state.json", "manifest.json"}
    manifest = json.loads((tmp_path / "step-00000012" / "manifest.json").read_text())
    assert manifest["torch"] == torch.__version__
    for name in names - {"manifest.json"}:
        assert manifest["files"][name]["size"] == (tmp_path / "step-00000012" / name).stat().st_size


def test_a_step_saved_again_replaces_the_old_one(tmp_path: Path) -> None:
    save(tmp_path, 5, 1.0)
    save(tmp_path, 5, 2.0)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000005"]
    assert holds(newest_checkpoint(tmp_path, warn=silent), 5, 2.0)


KILLED = """
import os, sys
from pathlib import Path
from helpers.runs.checkpoints import save

real = Path.rename

def rename(path, target):
    if path.name.endswith(".tmp"):
        os._exit(9)
    return real(path, target)

Path.rename = rename
save(Path(sys.argv[1]), 5, 2.0)
"""


def test_a_kill_between_the_two_renames_loses_nothing(tmp_path: Path) -> None:
    save(tmp_path, 5, 1.0)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    assert subprocess.run(command, env=environment, check=False).returncode == 9
    assert not (tmp_path / "step-00000005").exists()
    assert holds(newest_checkpoint(tmp_path, warn=silent), 5, 1.0)
    sweep(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000005"]
    assert holds(newest_checkpoint(tmp_path, warn=silent), 5, 1.0)


def test_a_rename_that_is_refused_leaves_the_old_one_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 5, 1.0)
    real = Path.rename

    def refused(path: Path, target: Path) -> Path:
        if path.name.endswith(".tmp"):
            raise PermissionError(13, "Permission denied")
        return real(path, target)

    monkeypatch.setattr(Path, "rename", refused)
    with pytest.raises(CheckpointError, match="Permission denied"):
        save(tmp_path, 5, 2.0)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000005"]
    assert holds(newest_checkpoint(tmp_path, warn=silent), 5, 1.0)


def test_no_checkpoint_is_none_and_only_bad_ones_an_error(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path / "nowhere", warn=silent) is None
    assert newest_checkpoint(tmp_path, warn=silent) is None
    for step in (1, 2):
        (save(tmp_path, step) / "state.json").unlink()
    told: list[str] = []
    with pytest.raises(CheckpointError, match="holds 2 checkpoints and none can be used") as caught:
        newest_checkpoint(tmp_path, warn=told.append)
    assert "step-00000002" in str(caught.value)
    assert len(told) == 2
    assert len(checkpoints(tmp_path)) == 2


def test_the_one_before_is_taken_where_the_newest_has_no_manifest(tmp_path: Path) -> None:
    save(tmp_path, 99_999_999)
    (save(tmp_path, 100_000_000) / "manifest.json").unlink()
    told: list[str] = []
    assert holds(newest_checkpoint(tmp_path, warn=told.append), 99_999_999)
    assert len(told) == 1
    assert "manifest.json is missing" in told[0]
    assert [p.name for p in checkpoints(tmp_path)] == ["step-99999999"]
    assert (tmp_path / "step-100000000").is_dir()


def test_a_checkpoint_of_another_network_is_refused_and_passed_over(tmp_path: Path) -> None:
    save(tmp_path, 1)
    other = {"w": torch.zeros(4, 4)}
    save_checkpoint(tmp_path, 2, model=other, optim={}, state={})
    told: list[str] = []
    wanted = {"w": torch.zeros(4, 3)}
    assert holds(newest_checkpoint(tmp_path, warn=told.append, model=wanted), 1)
    assert "another network, 1 tensors differ, 'w'" in told[0]
    for model in ({}, {"v": torch.zeros(4, 3)}, {"w": torch.zeros(4, 3).double()}):
        with pytest.raises(CheckpointError, match="another network"):
            load_checkpoint(tmp_path / "step-00000001", model=model)


def test_pruning_keeps_the_newest_the_best_and_what_is_damaged(tmp_path: Path) -> None:
    for step in range(1, 8):
        save(tmp_path, step)
    (tmp_path / "step-00000002" / "manifest.json").write_text("{}")
    data = (tmp_path / "step-00000006" / "optim.safetensors").read_bytes()
    (tmp_path / "step-00000006" / "optim.safetensors").write_bytes(data[:-1] + b"x")
    prune(tmp_path, keep=2, best=3)
    kept = sorted(int(p.name[5:]) for p in tmp_path.iterdir())
    assert kept == [2, 3, 5, 6, 7]
    with pytest.raises(ValueError, match="keep must be at least 1"):
        prune(tmp_path, keep=0)


def test_nothing_is_pruned_while_no_checkpoint_is_good(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        (save(tmp_path, step) / "state.json").write_text("{}")
    prune(tmp_path, keep=1)
    assert len(checkpoints(tmp_path)) == 3


def test_sweeping_removes_what_is_half_done_and_nothing_else(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (tmp_path / ".step-00000002.77-0a0b0c0d.tmp").mkdir()
    (tmp_path / ".step-00000002.77-0a0b0c0d.tmp" / "model.safetensors").write_text("half")
    (tmp_path / "step-00000001.before-0a0b0c0d").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / ".step-file.tmp").write_text("a file")
    sweep(tmp_path)
    sweep(tmp_path / "nowhere")
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        ".step-file.tmp",
        "notes",
        "step-00000001",
    ]


class _Number(float):
    pass


PLAIN: list[tuple[str, Any]] = [
    ("is nan", float("nan")),
    ("is inf", float("inf")),
    ("is a tuple", (1, 2)),
    ("is a Tensor", torch.zeros(1)),
    ("is a _Number", _Number(1)),
    ("which is not text", {1: 2}),
    ("cannot be written as JSON", 10**5000),
]


@pytest.mark.parametrize(("sentence", "value"), PLAIN, ids=[sentence for sentence, _ in PLAIN])
def test_what_json_cannot_hold_is_refused_before_anything_is_written(
    tmp_path: Path, sentence: str, value: object
) -> None:
    with pytest.raises(CheckpointError, match=sentence) as caught:
        save(tmp_path / "run", 1, odd={"deep": value})
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("sentence", "tensors"),
    [
        ("cannot be called '__metadata__'", {"__metadata__": torch.zeros(1)}),
        ("cannot be called 3", {3: torch.zeros(1)}),
        ("is a float, not a tensor", {"lr": 0.1}),
        ("torch.complex64", {"c": torch.zeros(1, dtype=torch.complex64)}),
        ("torch.sparse_coo", {"s": torch.zeros(2).to_sparse()}),
    ],
)
def test_what_is_no_plain_tensor_is_refused(tmp_path: Path, sentence: str, tensors: object) -> None:
    with pytest.raises(CheckpointError, match=sentence):
        save_checkpoint(tmp_path, 1, model=cast(Any, tensors), optim={}, state={})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("step", [-1, 1.0, True, 10**18])
def test_a_step_is_a_whole_number(tmp_path: Path, step: object) -> None:
    with pytest.raises(CheckpointError, match="whole number"):
        save_checkpoint(tmp_path, cast(int, step), model={}, optim={}, state={})


def test_files_that_do_not_belong_are_not_read(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    (path / "pytorch_model.bin").write_bytes(b"\x80\x04cos\nsystem\n(S'true'\ntR.")
    (tmp_path / "step-00000009").write_text("a file")
    (tmp_path / "step-00000008").symlink_to(path)
    (tmp_path / "step-7").mkdir()
    assert checkpoints(tmp_path) == [path]
    assert holds(newest_checkpoint(tmp_path, warn=silent), 1)


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file where the folder should be")
    with pytest.raises(CheckpointError, match="cannot be written") as caught:
        save(tmp_path / "run", 1)
    assert "\n" not in str(caught.value)
    (tmp_path / "step-00000001").write_text("a file where the checkpoint should be")
    with pytest.raises(CheckpointError, match="cannot be written"):
        save(tmp_path, 1)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run", "step-00000001"]


def test_a_checkpoint_that_cannot_be_removed_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (1, 2, 3):
        save(tmp_path, step)

    def refused(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(module, "_remove", refused)
    with pytest.raises(CheckpointError, match="step-00000001 cannot be removed"):
        prune(tmp_path, keep=2)


def test_progress_that_is_no_number_is_one_sentence() -> None:
    saved = Checkpoint(3, {}, {}, {"step": "three"})
    with pytest.raises(CheckpointError, match="its step is 'three' and must be a number"):
        state._progress(saved)
