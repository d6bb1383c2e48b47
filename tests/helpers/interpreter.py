"""What watches kernels in Triton's interpreter: fixtures of the interpreted_*.py files."""

from collections.abc import Iterator

import pytest
import torch

from helpers.kernel_bounds import refuse_strays


@pytest.fixture(autouse=True)
def _watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernel reads or writes outside its tensors."""
    refuse_strays(monkeypatch)


@pytest.fixture(autouse=True)
def _poisoned() -> Iterator[None]:
    """Memory that nothing has written yet is NaN."""
    torch.use_deterministic_algorithms(True)
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)
