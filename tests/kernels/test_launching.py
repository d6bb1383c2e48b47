"""Launches find the compiled kernel that Triton would find."""

import re
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from torchcaps import kernels

pytestmark = pytest.mark.usefixtures("interpreter")
Runs = list[tuple[Any, tuple[Any, ...]]]


def kernel() -> Any:
    """Return a kernel of the package as Triton's compiler gets it."""
    from triton.runtime.jit import JITFunction

    from torchcaps.kernels.elementwise.kernel import margin_kernel

    return JITFunction(margin_kernel.fn)


def votes(poses: Tensor, bias: Tensor | None, n_windows: int) -> Any:
    """Return votes as kernels receive them."""
    from torchcaps.kernels.common.arguments import VoteArguments

    return VoteArguments(poses, poses, bias, n_windows, *(32,) * 12)


def specialization(argument: object) -> object:
    """Return what Triton specializes on for an NVIDIA GPU."""
    from triton._C.libtriton import native_specialize_impl
    from triton.backends.nvidia.compiler import CUDABackend

    return native_specialize_impl(CUDABackend, argument, False, True, True)


def key(argument: object) -> tuple[Any, ...]:
    from torchcaps.kernels.common.launching import read_arguments

    parts: list[Any] = []
    read_arguments([argument], parts)
    return tuple(parts)


def arguments() -> list[object]:
    from triton.language import constexpr

    storage = torch.zeros(64)
    halves = storage.to(torch.bfloat16)
    tensors = (storage, storage[1:], storage[4:], halves, halves[1:], storage.int())
    numbers = (1, 2, 16, 17, 2**31, 2**31 + 1, 2**63, 1.0, 0.5, True, False, None)
    tuples = [
        votes(poses, bias, n)
        for poses in (storage, storage[1:], halves)
        for bias in (None, storage)
        for n in (1, 8, 16)
    ]
    return [*tensors, *numbers, constexpr(1), constexpr(7), *tuples]


def test_arguments_that_triton_tells_apart_have_different_keys() -> None:
    pairs = list(combinations(arguments(), 2))
    different = [(a, b) for a, b in pairs if specialization(a) != specialization(b)]
    assert len(different) > len(pairs) / 2
    for a, b in different:
        assert key(a) != key(b), (a, b)


def test_constants_of_different_value_have_different_keys() -> None:
    from triton.language import constexpr

    assert key(constexpr(7)) != key(constexpr(8))
    assert key(constexpr(7)) != key(7)


def test_other_tensors_and_numbers_of_the_same_kind_share_a_key() -> None:
    assert key(torch.zeros(64)) == key(torch.ones(32))
    assert key(0.5) == key(0.25)
    assert key(votes(torch.zeros(64), None, 8)) == key(votes(torch.ones(64), None, 8))


def test_kernels_are_launched_in_one_place() -> None:
    folder = Path(kernels.__file__).parent
    launches = {
        path.name
        for path in folder.rglob("*.py")
        if re.search(r"(kernel|function)\[[^\]]*\]\(", path.read_text())
    }
    assert launches == {"launching.py"}


def test_a_tensor_on_another_device_has_another_key() -> None:
    assert key(torch.zeros(64)) != key(torch.zeros(64, device="meta"))


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    """Return a list that grows by the compiled kernel and arguments of every launch."""
    import triton
    from triton.compiler import CompiledKernel

    from helpers.kernels.compilation import Target
    from torchcaps.kernels.common import launching

    seen: Runs = []

    def compiled(source: Any, **_: object) -> CompiledKernel:
        code = CompiledKernel.__new__(CompiledKernel)
        target = SimpleNamespace(backend="cuda")
        code.src, code.name, code.module, code.function = source, "", 0, 0
        code.metadata, code.packed_metadata = SimpleNamespace(target=target), (4, 1, 0)
        code._run = lambda *given: seen.append((code, given))
        return code

    monkeypatch.setattr(triton.compiler, "compile", compiled)
    monkeypatch.setattr(launching, "_compiled", {})
    before = triton.runtime.driver._active
    triton.runtime.driver.set_active(Target())
    yield seen
    triton.runtime.driver._active = before


def margin(function: Any, lengths: Tensor, *, n: int = 40, block: int = 64) -> None:
    """Launch the margin loss."""
    from torchcaps.kernels.common.launching import launch

    sizes = (n, 10, 4, 0.9, 0.1, 0.5)
    launch(function, (3,), lengths, lengths, lengths, *sizes, numbered=False, block=block)


def test_a_launch_runs_what_was_compiled_for_arguments_of_its_kind(runs: Runs) -> None:
    function, storage = kernel(), torch.zeros(64)
    calls: list[Callable[[], None]] = [
        lambda: margin(function, storage),
        lambda: margin(function, storage[1:]),
        lambda: margin(function, storage.bfloat16()),
        lambda: margin(function, storage, n=1),
        lambda: margin(function, storage, n=48),
        lambda: margin(function, storage, block=128),
    ]
    for call in calls:
        call()
    first = [code for code, _ in runs]
    assert len(set(map(id, first))) == len(calls)
    runs.clear()
    for call in calls:
        call()
    assert [code for code, _ in runs] == first


def test_a_second_launch_passes_what_triton_passes(runs: Runs) -> None:
    function, storage = kernel(), torch.zeros(64)
    for _ in range(2):
        margin(function, storage)
    (_, first), (_, second) = runs
    assert len(first) == len(second)
    assert first[:6] == second[:6] == (3, 1, 1, 0, 0, (4, 1, 0))
    assert second[9:12] == (storage.data_ptr(),) * 3
    assert first[12:18] == second[12:18] == (40, 10, 4, 0.9, 0.1, 0.5)


def test_triton_launches_where_a_profiler_watches(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    from triton import knobs

    function, storage = kernel(), torch.zeros(64)
    margin(function, storage)
    assert runs[-1][1][9] is storage
    margin(function, storage)
    assert runs[-1][1][9] == storage.data_ptr()
    names: list[str] = []
    monkeypatch.setattr(knobs.runtime, "launch_enter_hook", lambda launch: names.append(launch))
    margin(function, storage)
    assert runs[-1][1][9] is storage
