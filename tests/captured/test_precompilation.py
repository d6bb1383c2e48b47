"""Kernels that compile all at once before the first launch; each check is its own process."""

import sys
from pathlib import Path

import pytest
import torch

from helpers.processes import run_python
from torchcaps.captured.precompilation import compile_ahead

SCRIPT = str(Path(__file__).parents[1] / "helpers/kernels/precompilation.py")
needs_triton = pytest.mark.skipif(
    sys.platform != "linux", reason="Triton has no build for this system"
)


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


@needs_triton
def test_threads_compile_the_same_code_as_one_kernel_after_another() -> None:
    run_python(SCRIPT, "binaries")


@needs_triton
@pytest.mark.parametrize("case", ["hinton2018/smallnorb", "sabour2017/mnist"])
def test_all_kernels_of_a_training_step_compile_ahead(case: str) -> None:
    run_python(SCRIPT, "kernels", case)


@needs_triton
def test_layers_that_differ_in_stride_share_their_kernels() -> None:
    run_python(SCRIPT, "variants")


@needs_triton
def test_a_failure_is_logged_once_and_leaves_nothing_behind() -> None:
    run_python(SCRIPT, "errors")


@needs_triton
def test_a_run_ahead_of_the_first_step_leaves_no_trace() -> None:
    run_python(SCRIPT, "state")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_nothing_is_called() -> None:
    assert not compile_ahead(pytest.fail)
