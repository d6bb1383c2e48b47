"""The devices that commands run on."""

from pathlib import Path

import pytest
import torch

from helpers.commands import invoke, one_sentence
from torchcaps.tensors import widest_float
from torchcaps.train.evaluation.score import autocast
from torchcaps.train.process import choose_device


def test_an_apple_gpu_is_used_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device("mps") == torch.device("mps")
    assert choose_device("auto").type != "mps"
    assert widest_float(torch.device("mps")) == torch.float32
    for precision in ("auto", "bfloat16"):
        with autocast(torch.device("mps"), precision):
            assert not torch.is_autocast_enabled("mps")


def test_what_an_apple_gpu_lacks_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    for built, missing in ((False, "a PyTorch built for Apple GPUs"), (True, "an Apple GPU that")):
        monkeypatch.setattr(torch.backends.mps, "is_built", lambda built=built: built)
        said = one_sentence(invoke("evaluate", "demo/mnist-em", "--device", "mps"), 2)
        assert missing in said
        assert "use --device cpu" in said
    assert "not on 'meta'" in one_sentence(invoke("evaluate", "x", "--device", "meta"), 2)


def test_a_half_written_run_gets_advice_that_evaluate_can_follow(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"recipe": ')
    (tmp_path / "weights.safetensors").write_bytes(b"")
    said = one_sentence(invoke("evaluate", str(tmp_path), "--device", "cpu"), 1)
    assert "put it back, or train the run again with torchcaps train and --fresh" in said
