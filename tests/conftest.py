import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from torchcaps.models.weights import pretrained
from torchcaps.train.evaluation import publish as recording

torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _compile_once() -> None:
    """Dynamo knows functions by identity from its first use on: no test's stand-in for one."""
    torch.compile(torch.neg, backend="eager")(torch.zeros(1))


@pytest.fixture(autouse=True)
def _same_numbers_every_time() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _forget_compiled_graphs() -> Iterator[None]:
    yield
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in place of the package's own; the current folder is empty too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pretrained, "weights_folder", lambda: tmp_path / "weights")
    monkeypatch.setattr(recording, "weights_folder", lambda: tmp_path / "weights")
    return tmp_path / "weights"
