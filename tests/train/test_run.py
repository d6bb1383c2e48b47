"""The loop: reproducible, resumable, honest about which images it chose by."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from helpers.runs.training import BrokenError, Listener, break_at, metrics, quick, small
from torchcaps import build, load
from torchcaps.data import Batch
from torchcaps.errors import UsageError
from torchcaps.recipes import Measure, get
from torchcaps.recipes.losses import cross_entropy
from torchcaps.recipes.schedules import Clock
from torchcaps.train import TrainingError, TrainOptions, train
from torchcaps.train.checkpoint.files import checkpoints, load_checkpoint
from torchcaps.train.checkpoint.saver import Saver
from torchcaps.train.evaluation.files import evaluate_files
from torchcaps.train.evaluation.score import right
from torchcaps.train.optimizers import make_optimizers
from torchcaps.train.outputs.report import Lines
from torchcaps.train.run import Run
from torchcaps.train.step import Step, total_loss


def test_one_seed_fixes_every_bit_and_another_changes_them(tmp_path: Path) -> None:
    rows = [quick(small(), seed=seed, out=tmp_path / str(n)) for n, seed in enumerate((3, 3, 4))]
    assert rows[0].weights_sha256 == rows[1].weights_sha256
    assert rows[0].weights_sha256 != rows[2].weights_sha256
    assert [m["loss"] for m in metrics(tmp_path / "0")] == [
        m["loss"] for m in metrics(tmp_path / "1")
    ]


@pytest.mark.parametrize(
    ("routing", "changes"),
    [
        ("dynamic", {"average": 0.9, "clip": 0.1, "warmup": 1.0}),
        ("discriminative", {"coefficient_every": 3}),
        ("em", {"weight_decay": 0.01, "decay_all": False}),
    ],
)
def test_a_broken_run_goes_on_to_the_same_bits(
    routing: str, changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small(routing, **changes)
    whole = quick(recipe, out=tmp_path / "whole")
    with monkeypatch.context() as patched:
        break_at(patched, 14)
        with pytest.raises(BrokenError):
            quick(recipe, out=tmp_path / "broken", save_every=0.0)
    heard = Listener()
    resumed = quick(recipe, out=tmp_path / "broken", reporter=heard)
    assert heard.said[0] == "resumed at step 14 of 30"
    assert resumed.weights_sha256 == whole.weights_sha256
    assert resumed.test == whole.test
    for one, other in zip(metrics(tmp_path / "whole"), metrics(tmp_path / "broken"), strict=True):
        assert {one[key] for key in ("loss", "train", "validation", "lr")} == {
            other[key] for key in ("loss", "train", "validation", "lr")
        }


def test_a_damaged_checkpoint_is_passed_over_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = quick(small(), out=tmp_path / "whole")
    with monkeypatch.context() as patched:
        break_at(patched, 14)
        with pytest.raises(BrokenError):
            quick(small(), out=tmp_path / "broken", save_every=0.0)
    newest = tmp_path / "broken/checkpoints/step-00000014/model.safetensors"
    damaged = bytearray(newest.read_bytes())
    damaged[-5] ^= 4
    newest.write_bytes(damaged)
    heard = Listener()
    resumed = quick(small(), out=tmp_path / "broken", reporter=heard)
    assert "step-00000014" in heard.said[0]
    assert heard.said[0].startswith("warning: ")
    assert heard.said[1] == "resumed at step 13 of 30"
    assert resumed.weights_sha256 == whole.weights_sha256


def test_a_finished_run_is_not_trained_again_and_a_fresh_one_sets_it_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # rows of the same bits in the same second are one row, and these runs are that short
    dates = iter(f"2026-11-16T05:02:{second}Z" for second in range(10, 60))
    monkeypatch.setattr("torchcaps.train.finish.date", lambda: next(dates))
    out, record = tmp_path / "run", tmp_path / "accuracy.csv"
    first = quick(small(), out=out, record=record)
    heard = Listener()
    assert quick(small(), out=out, record=record, reporter=heard) == first
    assert "finished" in heard.said[0]
    assert len(record.read_text().splitlines()) == 2
    quick(small(), out=out, record=record, resume=False)
    aside = [path for path in tmp_path.iterdir() if ".before-" in path.name]
    assert len(aside) == 1
    assert (aside[0] / "weights.safetensors").is_file()
    assert len(record.read_text().splitlines()) == 3


def test_the_epoch_is_chosen_on_held_out_images_and_the_test_set_scored_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored: list[Any] = []
    usual = Run.accuracy
    given = iter([50.0, 70.0, 60.0])

    def pretend(self: Run, network: Any, source: Any, *how: Any) -> float:
        scored.append(source)
        usual(self, network, source, *how)
        return next(given, 33.0)

    monkeypatch.setattr(Run, "accuracy", pretend)
    row = quick(small(), out=tmp_path)
    assert row.validation == 70.0
    assert row.test == 33.0
    assert len(scored) == 4
    assert len({id(source) for source in scored[:3]}) == 1
    assert scored[3] is not scored[0]
    saved = load(tmp_path / "weights.safetensors").state_dict()
    kept = load_checkpoint(tmp_path / "checkpoints/step-00000020").model
    assert all(torch.equal(saved[name], kept[name]) for name in saved)


def test_epochs_that_a_busy_disk_skips_are_trained_again_and_the_best_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, recipe = Run.accuracy, small(epochs=5, average=0.9)
    held_out = {10: 50.0, 20: 70.0, 30: 60.0, 40: 65.0}

    def pretend(self: Run, network: Any, source: Any, *how: Any) -> float:
        found = usual(self, network, source, *how)
        return found if source is self.sources.test else held_out.get(self.progress.step, 55.0)

    monkeypatch.setattr(Run, "accuracy", pretend)
    whole = quick(recipe, out=tmp_path / "whole")
    monkeypatch.setattr(Saver, "busy", property(lambda self: self.pending is not None))
    with monkeypatch.context() as patched:
        break_at(patched, 44)
        with pytest.raises(BrokenError):
            quick(recipe, out=tmp_path / "broken")
    kept = tmp_path / "broken" / "checkpoints"
    assert [path.name for path in checkpoints(kept)] == ["step-00000010", "step-00000020"]
    heard = Listener()
    resumed = quick(recipe, out=tmp_path / "broken", reporter=heard)
    assert heard.said[0] == "resumed at step 20 of 50"
    assert (resumed.validation, resumed.test) == (whole.validation, whole.test)
    assert resumed.weights_sha256 == whole.weights_sha256
    assert [m["epoch"] for m in metrics(tmp_path / "broken")] == [1, 2, 3, 4, 5]
    assert (kept / "step-00000020").is_dir()


def test_a_run_stops_after_the_epoch_that_reaches_the_accuracy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held_out = {10: 50.0, 20: 70.0, 30: 90.0, 40: 95.0}
    usual = Run.accuracy

    def pretend(self: Run, network: Any, source: Any, *how: Any) -> float:
        found = usual(self, network, source, *how)
        return found if source is self.sources.test else held_out.get(self.progress.step, 99.0)

    monkeypatch.setattr(Run, "accuracy", pretend)
    for stop_at, epochs in ((0.0, 5), (70.0, 2), (90.5, 4)):
        folder = tmp_path / str(stop_at)
        row = quick(small(epochs=5, stop_at=stop_at), out=folder)
        assert [m["epoch"] for m in metrics(folder)] == list(range(1, epochs + 1))
        assert row.validation == held_out.get(10 * epochs, 99.0)
        assert quick(small(epochs=5, stop_at=stop_at), out=folder) == row


def test_without_held_out_images_the_last_epoch_counts(tmp_path: Path) -> None:
    row = quick(small(hold_out=False), out=tmp_path)
    assert row.validation is None
    saved = load(tmp_path / "weights.safetensors").state_dict()
    kept = load_checkpoint(tmp_path / "checkpoints/step-00000030").model
    assert all(torch.equal(saved[name], kept[name]) for name in saved)


def test_averaged_weights_are_what_is_evaluated_and_saved(tmp_path: Path) -> None:
    quick(small(average=0.8, epochs=1, hold_out=False), out=tmp_path)
    saved = load(tmp_path / "weights.safetensors").state_dict()
    kept = load_checkpoint(tmp_path / "checkpoints/step-00000010")
    name = "classes.weight"
    assert torch.equal(saved[name], kept.optim[f"average/{name}"])
    assert not torch.equal(saved[name], kept.model[name])


def test_clipping_bounds_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    norms: list[float] = []
    usual = torch.optim.Adam.step

    def look(self: torch.optim.Adam) -> None:
        parts = [p.grad.norm() for group in self.param_groups for p in group["params"]]
        norms.append(float(torch.stack(parts).norm()))
        usual(self)

    monkeypatch.setattr(torch.optim.Adam, "step", look)
    quick(small(clip=0.01, epochs=1), out=tmp_path)
    assert norms
    assert max(norms) <= 0.01 * 1.001


def test_the_learning_rate_follows_warm_up_and_schedule(tmp_path: Path) -> None:
    rates: list[float] = []

    class Spy(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            rates.append(self.param_groups[0]["lr"])
            return super().step(closure)

    def halves(clock: Clock) -> float:
        return 0.5 ** (clock.step // clock.steps_per_epoch)

    recipe = replace(small(warmup=1.0, lr=0.1), optimizer=Spy, schedule=halves)
    quick(recipe, out=tmp_path)
    expected = [0.1 * (n + 1) / 10 for n in range(10)] + [0.05] * 10 + [0.025] * 10
    assert rates == pytest.approx(expected)


def test_what_counts_as_right() -> None:
    scores = torch.tensor([[3.0, 2.0, -1.0], [-1.0, -2.0, 4.0], [0.1, 5.0, 4.0]])
    assert right(scores, torch.tensor([0, 2, 0]), "top1").tolist() == [True, True, False]
    two = torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [0.0, 1.0, 1.0]])
    assert right(scores, two, "top2").tolist() == [True, False, True]
    some = torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    assert right(scores, some, "threshold").tolist() == [True, True, False]


def test_a_loss_that_turns_nan_stops_before_the_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def poisoned(
        scores: Tensor, targets: Tensor, *, step: Tensor, share: Tensor, smoothing: float
    ) -> Tensor:
        loss = cross_entropy(scores, targets, step=step, share=share, smoothing=smoothing)
        return loss * torch.where(step == 17, torch.nan, 1.0)

    recipe = replace(small(), loss=poisoned)
    with pytest.raises(TrainingError) as caught:
        quick(recipe, out=tmp_path)
    assert "step 18 (epoch 2)" in str(caught.value)
    assert str(tmp_path / "checkpoints/step-00000010") in str(caught.value)
    kept = load_checkpoint(tmp_path / "checkpoints/step-00000010")
    assert all(torch.isfinite(tensor).all() for tensor in kept.model.values())


def test_a_layer_that_turns_nan_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Step.__call__

    def poison(self: Step, batch: Any) -> None:
        if self.count == 12:
            self.network.get_parameter("primary.pose_conv.bias").data.fill_(torch.inf)
        usual(self, batch)

    monkeypatch.setattr(Step, "__call__", poison)
    with pytest.raises(TrainingError, match=r"step 13 .*primary\.pose_conv\.bias"):
        quick(small(), out=tmp_path)


def test_reconstruction_errors_of_two_objects_add_up() -> None:
    from torchcaps.capsules import Output

    recipe = get("sabour2017/multimnist")
    images, targets = torch.zeros(2, 1, 36, 36), torch.ones(2, 2, 1, 36, 36)
    batch = Batch(images, torch.tensor([[1, 2], [3, 4]]), torch.arange(2), targets)
    scores = batch.multi_hot(10)
    output = Output(scores, reconstruction=torch.zeros_like(targets))
    loss = total_loss(recipe, output, batch, torch.zeros(()))
    assert float(loss) == pytest.approx(recipe.reconstruction_weight * 2 * 36 * 36, rel=1e-5)


def test_saved_weights_score_what_the_run_said_and_two_make_an_ensemble(tmp_path: Path) -> None:
    rows = [
        quick(small("attention", limit=3200, test_limit=0), seed=n, out=tmp_path / str(n))
        for n in range(2)
    ]
    scores = evaluate_files([tmp_path / "0", tmp_path / "1/weights.safetensors"], device="cpu")
    ours = [value["percent"] for value in scores.values()]
    assert ours[:2] == [row.test for row in rows]
    assert list(scores)[2] == "ensemble"
    assert scores["ensemble"]["images"] == 10_000
    assert ours[2] > min(ours[:2])


def test_test_images_are_scored_in_float32_whatever_the_training_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def spy(scores: Tensor, targets: Tensor, measure: Measure) -> Tensor:
        asked.append(torch.is_autocast_enabled("cpu"))
        return right(scores, targets, measure)

    monkeypatch.setattr("torchcaps.train.evaluation.score.right", spy)
    quick(small(epochs=1, precision="bfloat16"), out=tmp_path)
    assert asked[-2:] == [True, False]  # held-out images, test images
    asked.clear()
    evaluate_files([tmp_path], device="cpu")
    assert asked
    assert not any(asked)


def test_weight_decay_spares_biases_and_norms_of_any_shape() -> None:
    recipe = get("zhao2020/smallnorb")
    network = build(recipe.network)
    optimizer, _ = make_optimizers(recipe, network, torch.device("cpu"))
    decayed = {id(p) for p in optimizer.param_groups[0]["params"]}
    spared = [name for name, p in network.named_parameters() if id(p) not in decayed]
    assert optimizer.param_groups[0]["weight_decay"] == recipe.weight_decay
    assert optimizer.param_groups[1]["weight_decay"] == 0
    norm = network.get_parameter("classes.vote_norm.weight")
    assert norm.dim() == 3
    assert "classes.vote_norm.weight" in spared
    assert all(
        "bias" in name or "norm" in name or p.dim() == 1
        for name, p in network.named_parameters()
        if name in spared
    )
    assert id(network.get_parameter("classes.weight")) in decayed
    bias = build("choi2019/mnist")
    optimizer, _ = make_optimizers(get("choi2019/mnist-modern"), bias, torch.device("cpu"))
    assert all(
        id(p) in {id(q) for q in optimizer.param_groups[1]["params"]}
        for name, p in bias.named_parameters()
        if name.endswith("bias")
    )


def test_lines_say_how_it_goes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(small(), TrainOptions(out=tmp_path, device="cpu", reporter=Lines()))
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("epoch 1/3  step 10/30  loss ")
    assert "validation" in printed[1]
    assert any((tmp_path / "tensorboard").iterdir())
    short: dict[str, Any] = {"limit": 64, "batch_size": 64}
    quick(small(**short), out=tmp_path / "short", reporter=Lines())
    looks = [line for line in capsys.readouterr().out.splitlines() if line.endswith(" left")]
    assert looks[0].endswith(" ? left")
    quick(small(**short, epochs=1), out=tmp_path / "one", reporter=Lines())
    assert " 0:00 left" in capsys.readouterr().out


def test_a_batch_that_cannot_be_shared_or_one_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least 2"):
        quick(small(), out=tmp_path, keep=1)


def test_checkpoints_of_another_run_are_refused(tmp_path: Path) -> None:
    quick(small(), out=tmp_path)
    for other in (small("em"), small(lr=0.1)):
        with pytest.raises(UsageError, match=r"holds a run with .*--fresh"):
            quick(other, out=tmp_path)
    with pytest.raises(UsageError, match="seed 0 and not 1"):
        quick(small(), out=tmp_path, seed=1)
    shutil.rmtree(tmp_path / "checkpoints")
    (tmp_path / "result.json").unlink()
    with pytest.raises(UsageError, match="no checkpoint to resume"):
        quick(small(), out=tmp_path, resume=True)


@pytest.mark.parametrize("routing", ["dynamic", "discriminative"])
def test_no_gradient_outlives_its_step(
    routing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CUDA graph that adds to one writes into memory that is given back with it."""
    steps: list[Step] = []
    left: list[bool] = []
    take: Any = Step.__call__
    backward: Any = Tensor.backward

    def taken(self: Step, batch: Batch) -> None:
        steps.append(self)
        take(self, batch)

    def watched(self: Tensor) -> None:
        left.append(any(p.grad is not None for p in steps[-1].network.parameters()))
        backward(self)

    monkeypatch.setattr(Step, "__call__", taken)
    monkeypatch.setattr(Tensor, "backward", watched)
    quick(small(routing, limit=160, epochs=1), out=tmp_path)
    assert len(left) > 1
    assert not any(left)
