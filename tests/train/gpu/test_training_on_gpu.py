"""The loop on a GPU: the recorded step is the step, and stops as the plain one does."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from torchcaps.optim import Muon
from torchcaps.recipes import Recipe, get
from torchcaps.recipes.losses import cross_entropy
from torchcaps.results import AccuracyRow
from torchcaps.train import TrainingError, TrainOptions, train
from torchcaps.train.checkpoint.files import load_checkpoint
from torchcaps.train.step import Step

pytestmark = pytest.mark.gpu
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

OPTIMIZERS: dict[str, Any] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": partial(torch.optim.SGD, momentum=0.9, nesterov=True),
    "rmsprop": partial(torch.optim.RMSprop, alpha=0.9),
    "muon": Muon,
}


def quick(recipe: Recipe, **options: Any) -> AccuracyRow:
    defaults = {"device": "cuda", "tensorboard": False, "deterministic": True}
    return train(recipe, TrainOptions(**{**defaults, **options}))


@pytest.fixture(autouse=True)
def workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def small(routing: str = "dynamic", **changes: Any) -> Recipe:
    usual = {"limit": 640, "epochs": 2, "test_limit": 200, "precision": "float32"}
    return get(f"demo/strokes-{routing}").override(**{**usual, **changes})


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_recorded_step_is_the_plain_step(
    optimizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = replace(small(clip=1.0), optimizer=OPTIMIZERS[optimizer])
    quick(recipe, out=tmp_path / "recorded")
    monkeypatch.setattr(Step, "capturable", False)
    quick(recipe, out=tmp_path / "plain")
    one, other = (
        load_checkpoint(tmp_path / name / "checkpoints/step-00000020").model
        for name in ("recorded", "plain")
    )
    for name, tensor in one.items():
        torch.testing.assert_close(tensor, other[name], rtol=1e-3, atol=1e-4)


def test_a_run_goes_on_to_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchcaps.train.run import Run

    whole = quick(small(), out=tmp_path / "whole")
    usual = Run.after_step

    def after_step(self: Run, epoch: int) -> None:
        usual(self, epoch)
        if self.progress.step == 13:
            raise KeyError

    with monkeypatch.context() as patched:
        patched.setattr(Run, "after_step", after_step)
        with pytest.raises(KeyError):
            quick(small(), out=tmp_path / "broken", save_every=0.0)
    resumed = quick(small(), out=tmp_path / "broken")
    assert resumed.weights_sha256 == whole.weights_sha256


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_nan_inside_a_recorded_step_changes_nothing(optimizer: str, tmp_path: Path) -> None:
    def poisoned(
        scores: Tensor, targets: Tensor, *, step: Tensor, share: Tensor, smoothing: float
    ) -> Tensor:
        loss = cross_entropy(scores, targets, step=step, share=share, smoothing=smoothing)
        return loss * torch.where(step == 14, torch.nan, 1.0)

    recipe = replace(small(clip=1.0), loss=poisoned, optimizer=OPTIMIZERS[optimizer])
    with pytest.raises(TrainingError, match=r"step 15 \(epoch 2\): in float32 the same batch is"):
        quick(recipe, out=tmp_path)
    kept = load_checkpoint(tmp_path / "checkpoints/step-00000010")
    assert all(torch.isfinite(tensor).all() for tensor in kept.model.values())


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch 2.11 while it traces
@pytest.mark.parametrize("routing", ["dynamic", "discriminative"])
def test_compiled_bfloat16_learns(routing: str, tmp_path: Path) -> None:
    recipe = small(routing, limit=6400, precision="bfloat16", compile=True, average=0.9)
    row = train(recipe, TrainOptions(out=tmp_path, device="cuda", tensorboard=False))
    assert row.test is not None
    assert row.test > 80
