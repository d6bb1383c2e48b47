"""Compile kernels ahead of their launches, on a machine without a GPU.

The first argument names the check. Kernels are compiled for compute capability 9.0.
"""

import copy
import logging
import os
import runpy
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import torch
import triton
from torch import Tensor, nn
from triton.runtime.jit import JITFunction, KernelInterface

from helpers.kernels.compilation import (
    LOW,
    ONE,
    THREE,
    Target,
    layout,
    moments,
    norm,
    pointwise,
)
from torchcaps.bench import Setting
from torchcaps.bench.measure import find_recipe, network, random_batch
from torchcaps.captured import precompilation
from torchcaps.captured.precompilation import compile_ahead, compile_gradient, compiling_only
from torchcaps.recipes import Recipe
from torchcaps.train.step import total_loss

CPU = torch.device("cpu")
Names = Counter[str]


def compiled_kernels() -> list[tuple[str, Any]]:
    """Return names and code of all kernels that were compiled in this process, and forget them."""
    kernels = []
    for name, module in list(sys.modules.items()):
        if name.startswith("torchcaps.kernels."):
            kernels += [x for x in vars(module).values() if isinstance(x, JITFunction)]
    found = []
    for kernel in set(kernels):
        for compiled, *_ in kernel.device_caches.values():
            found += [(kernel.__name__, code) for code in compiled.values()]
        kernel.device_caches.clear()
    return found


def check_binaries() -> None:
    """Compare the code that threads compile with what one kernel after another gives.

    PTX is compared: the assembler behind it does not give the same binary at every call.
    """
    run = JITFunction.run

    def one_by_one(self: Any, *arguments: Any, warmup: bool, **options: Any) -> None:
        run(self, *arguments, warmup=True, **options)

    texts = []
    for threads in (0, 4):
        with TemporaryDirectory() as folder:
            triton.knobs.cache.dir = folder
            if threads:
                with mock.patch.object(precompilation, "MAX_THREADS", threads), compiling_only():
                    norm()
                    pointwise()
            else:
                with mock.patch.object(JITFunction, "run", one_by_one):
                    norm()
                    pointwise()
            texts.append(sorted((name, code.asm["ptx"]) for name, code in compiled_kernels()))
    assert len(texts[0]) >= 10, len(texts[0])
    assert texts[0] == texts[1]


def check_variants() -> None:
    """Check that layers that differ in stride and size share kernels."""
    with compiling_only():
        moments(layout((4, 5, 5, 8, 16), (72, 8, 4, 4), THREE, LOW), "")
        moments(layout((4, 6, 6, 8, 16), (72, 8, 4, 4), ONE, LOW), "")
    names = Counter(name for name, _ in compiled_kernels())
    assert names.pop("fold_kernel") == 2, "its stride is compiled in"
    assert len(names) == names.total() == 3, names


def train_once(recipe: Recipe, net: torch.nn.Module, images: Any) -> None:
    """Run forward and backward of a recipe's loss, without an update."""
    with torch.autocast("cpu", torch.bfloat16):
        output = net(images.images, images.labels)
    total_loss(recipe, output, images, torch.zeros(())).backward()


def check_kernels(case: str, batch: int) -> None:
    """Compare the kernels of a step that is not launched with those of a step on fake tensors."""
    os.environ["TRITON_INTERPRET"] = "1"  # for which kernels accept tensors on the CPU
    setting = Setting(case, "fused", batch, "train", "bfloat16")
    recipe, net = find_recipe(setting), network(setting).train()
    names: Names = Counter()

    def count(self: Any, *_: Any, warmup: bool, **__: Any) -> None:
        assert warmup
        names[self.__name__] += 1

    with mock.patch.object(JITFunction, "run", count), compiling_only():
        train_once(recipe, net, random_batch(recipe, net, batch, CPU))
    assert all(p.grad is None or p.grad.isfinite().all() for p in net.parameters())
    expected = launches(setting)
    assert names == Counter({k: n for k, n in expected.items() if k in names}), (names, expected)
    assert {k for k in expected if k.endswith("_kernel")} == set(names), (names, expected)


def launches(setting: Setting) -> Names:
    """Return what ``benchmarks/launches.py`` counts."""
    path = str(Path(__file__).parents[3] / "benchmarks/launches.py")
    counts: Names = runpy.run_path(path)["count_launches"](setting, step="plain")
    return counts


@contextmanager
def pretended_gpu() -> Iterator[None]:
    """Let the code believe in a GPU."""
    with (
        mock.patch.object(torch.cuda, "is_available", return_value=True),
        mock.patch.object(torch.cuda, "is_current_stream_capturing", return_value=False),
        mock.patch.object(torch.cuda, "device", return_value=nullcontext()),
        mock.patch.object(torch.cuda, "get_rng_state", return_value=torch.get_rng_state()),
        mock.patch.object(torch.cuda, "set_rng_state"),
    ):
        yield


def check_state() -> None:
    """Check that a run ahead of the first step changes no weight, gradient, statistic or draw."""
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout())
    before = copy.deepcopy(net.state_dict())
    calls: list[bool] = []

    def total() -> Tensor:
        output: Tensor = net(torch.rand(4, 3)).sum()
        calls.append(precompilation.is_precompiling())
        return output

    torch.manual_seed(0)
    with pretended_gpu():
        compile_gradient(net, total, torch.device("cuda", 0))
    assert calls == [True]
    drawn = torch.rand(3)
    torch.manual_seed(0)
    assert torch.equal(drawn, torch.rand(3))
    assert all(torch.equal(x, before[name]) for name, x in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())
    compile_gradient(net, total, CPU)
    assert len(calls) == 1, "something ran on a CPU"


def check_errors() -> None:
    """Check that a failure is logged once and leaves nothing behind."""
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("torchcaps").addHandler(handler)
    launcher = KernelInterface.__getitem__

    def fail() -> None:
        norm()
        raise ValueError("no such thing")

    with (
        pretended_gpu(),
        mock.patch.object(ThreadPoolExecutor, "submit", side_effect=MemoryError("no room")),
    ):
        assert not compile_ahead(fail)
        assert not compile_ahead(fail)
    assert messages == ["kernels compile one after another: MemoryError: no room"], messages
    assert KernelInterface.__getitem__ is launcher
    assert not precompilation.is_precompiling()
    compiled_kernels()
    with (
        pretended_gpu(),
        mock.patch.object(triton.compiler, "compile", side_effect=OSError("disk full")),
    ):
        assert compile_ahead(norm)
    assert not compiled_kernels(), "a kernel that did not compile is kept"
    assert compile_ahead(fail) is False


CHECKS: dict[str, Callable[[], None]] = {
    "binaries": check_binaries,
    "errors": check_errors,
    "state": check_state,
    "variants": check_variants,
    "kernels": lambda: check_kernels(sys.argv[2], 2),
}


def main() -> None:
    """Run the check of the argument."""
    triton.runtime.driver.set_active(Target())
    CHECKS[sys.argv[1]]()


if __name__ == "__main__":
    main()
