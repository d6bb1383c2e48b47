"""Stops while images are scored, and the best epoch's weights when they are lost: nothing hangs."""

import itertools
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, Store

from helpers.commands import invoke
from helpers.runs.training import Listener, quick
from reliability.trials.runs import prints
from torchcaps import load
from torchcaps.errors import UsageError
from torchcaps.recipes import Recipe, get
from torchcaps.train import InterruptedRunError
from torchcaps.train.checkpoint.files import checkpoints, load_checkpoint
from torchcaps.train.evaluation import score as scored
from torchcaps.train.process import join_processes
from torchcaps.train.run import Run


def small(**changes: Any) -> Recipe:
    """Two epochs of three steps; 250 images are scored in three batches."""
    settings = {"limit": 24, "batch_size": 8, "epochs": 2, "test_limit": 250, **changes}
    return get("demo/strokes-inverted-attention").override(**settings)


def saved(folder: Path) -> list[str]:
    return [path.name for path in checkpoints(folder / "checkpoints")]


@pytest.mark.parametrize("wanted", [signal.SIGINT, signal.SIGTERM])
def test_a_run_stopped_while_images_are_scored_ends_like_one_that_was_not(
    wanted: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(small(average=0.9), out=tmp_path / "unbroken")
    usual, batches, asked = scored.sums_of, itertools.count(1), {1, 6, 10, 13}

    def sums_of(*given: Any) -> Any:
        if next(batches) in asked:
            os.kill(os.getpid(), wanted)
        return usual(*given)

    monkeypatch.setattr(scored, "sums_of", sums_of)
    # batches 1; 2 to 4 and 5 to 6; 7 to 9 and the test set's 10; 11 to 13
    for step, epochs in ((3, 0), (6, 1), (6, 2), (6, 2)):
        assert not (tmp_path / "run/result.json").exists()
        with pytest.raises(InterruptedRunError, match=f"stopped at step {step} of 6") as caught:
            quick(small(average=0.9), out=tmp_path / "run")
        assert caught.value.exit_code == 128 + wanted
        assert saved(tmp_path / "run")[-1] == f"step-{step:08d}"
        metrics = tmp_path / "run/metrics.jsonl"
        assert len(metrics.read_text().splitlines() if metrics.exists() else []) == epochs
    assert next(batches) == 14
    row = quick(small(average=0.9), out=tmp_path / "run")
    assert next(batches) == 15  # it was finished
    assert row.test is not None
    assert prints(tmp_path / "run") == prints(tmp_path / "unbroken")


def test_a_stopped_run_says_that_fresh_would_start_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def after_step(self: Run, epoch: int) -> None:
        self.stop.signal = signal.SIGINT
        self.save_and_leave()

    monkeypatch.chdir(tmp_path)
    words = ["train", "demo/strokes-pairwise", "--set", "limit=192", "--set", "test_limit=9"]
    with monkeypatch.context() as patched:
        patched.setattr(Run, "after_step", after_step)
        stopped = invoke(*words, "--fresh")
    assert stopped.exit_code == 130
    assert "the same command goes on from here, unless it has --fresh" in stopped.stderr
    assert "resumed at step 1 of 3" in invoke(*words).stdout


def test_a_second_run_of_the_same_processes_reads_no_address_of_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left, stores = HashStore(), list[Store]()
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(
        sys.modules["torch.distributed.rendezvous"],
        "rendezvous",
        lambda *given, **options: iter([(left, 0, 2)]),
    )
    monkeypatch.setattr(
        dist, "init_process_group", lambda *given, store, **options: stores.append(store)
    )
    for name, value in (("destroy_process_group", None), ("get_rank", 0), ("get_world_size", 2)):
        monkeypatch.setattr(dist, name, lambda value=value: value)
    for _ in range(2):
        with join_processes("cpu"):
            assert not stores[-1].check(["address"])
            stores[-1].set("address", "here")


def test_a_run_whose_best_epoch_is_damaged_scores_its_last_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small(epochs=3, average=0.5)
    unbroken = quick(recipe, out=tmp_path / "unbroken")
    given = iter([50.0, 70.0, 60.0])
    with monkeypatch.context() as patched:
        patched.setattr(Run, "accuracy", lambda *those: next(given))
        with pytest.raises(StopIteration):  # when the test set is to be scored
            quick(recipe, out=tmp_path / "run")
    best = tmp_path / "run/checkpoints/step-00000006/model.safetensors"
    best.write_bytes(best.read_bytes()[:-1])
    heard = Listener()
    row = quick(recipe, out=tmp_path / "run", reporter=heard)
    assert heard.said[0] == "resumed at step 9 of 9"
    (warning,) = [line for line in heard.said if line.startswith("warning")]
    assert warning.startswith("warning: the last epoch is scored and not the best, number 2: ")
    assert row.changes == {**unbroken.changes, "chosen": "last-epoch"}
    last = json.loads((tmp_path / "unbroken/metrics.jsonl").read_text().splitlines()[-1])
    assert row.validation == last["validation"]
    weights = load(tmp_path / "run/weights.safetensors").state_dict()
    kept = load_checkpoint(tmp_path / "run/checkpoints/step-00000009").optim
    assert torch.equal(weights["classes.weight"], kept["average/classes.weight"])


def test_a_run_may_go_on_at_another_speed(tmp_path: Path) -> None:
    """What changes no more than rounding keeps nobody from a checkpoint."""
    row = quick(small(), out=tmp_path)
    (tmp_path / "result.json").unlink()
    again = quick(small(channels_last=not small().channels_last), out=tmp_path, resume=True)
    assert (again.test, again.modified) == (row.test, row.modified)


@pytest.mark.parametrize("finished", [False, True])
def test_a_run_that_nothing_describes_is_not_taken_for_the_one_asked_for(
    finished: bool, tmp_path: Path
) -> None:
    quick(small(), out=tmp_path / "run")
    for name in ("run.json",) if finished else ("run.json", "result.json"):
        Path(tmp_path / "run" / name).unlink()  # a kill while --fresh sets it aside leaves this
    with pytest.raises(UsageError, match=r"no run\.json that says which: .* --fresh"):
        quick(small(lr=0.01), seed=5, out=tmp_path / "run")
    quick(small(lr=0.01), seed=5, out=tmp_path / "run", resume=False)
    assert len(list(tmp_path.glob("run.before-*/checkpoints"))) == 1
