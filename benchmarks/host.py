"""Time what the host does in an eager training step on a GPU, on a machine without one.

    PYTHONPATH=src python benchmarks/host.py
    PYTHONPATH=src python benchmarks/host.py --profile capsnet

Networks of a few channels run on the CPU, and operators take the path of a GPU. Triton binds,
specializes and looks up every launch as usual, but compiles nothing and launches nothing. So the
time of a step is that of Python, of PyTorch's dispatcher and of tiny operators. The cost of the
CUDA driver is missing.
"""

import argparse
import cProfile
import importlib
import os
import pkgutil
import pstats
import sys
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

from torchcaps import kernels
from torchcaps.bench.measure import find_recipe, random_batch
from torchcaps.bench.setting import Setting
from torchcaps.layers.decoders import FullyConnectedDecoder
from torchcaps.models import AttentionCapsNet, CapsNet, Network
from torchcaps.models.parts.backbones import BasicBlock, ConvBackbone, ImageConv2d
from torchcaps.models.tsai2020 import ResNetBackbone
from torchcaps.train.process import Process
from torchcaps.train.step import Step
from torchcaps.votes import Votes

Call = Callable[[], object]
METADATA = SimpleNamespace(target=SimpleNamespace(backend="cuda"))


class Driver:
    """A GPU of compute capability 9.0, as far as Triton asks before it launches."""

    def get_current_device(self) -> int:
        """Return the number of the device."""
        return 0

    def get_current_stream(self, device: int) -> int:
        """Return the stream."""
        return 0

    def get_current_target(self) -> Any:
        """Return the target of the compiler."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)


def launch_nothing() -> list[object]:
    """Make tensors on the CPU take a GPU's path; return a list that grows with every launch."""
    import triton
    from triton.compiler import CompiledKernel

    launches: list[object] = []

    def compiled(source: Any, **_: object) -> CompiledKernel:
        kernel = CompiledKernel.__new__(CompiledKernel)
        kernel.src, kernel.name, kernel.module, kernel.function = source, "", 0, 0
        kernel.metadata, kernel.packed_metadata = METADATA, (4, 1, 0)
        kernel._run = lambda *_: launches.append(None)
        return kernel

    for module in pkgutil.walk_packages(kernels.__path__, f"{kernels.__name__}."):
        importlib.import_module(module.name)
    os.environ["TRITON_INTERPRET"] = "1"  # for which kernels accept tensors on the CPU
    triton.runtime.driver.set_active(Driver())
    triton.compiler.compile = compiled
    mock.patch.object(ImageConv2d, "forward", ImageConv2d.by_patches).start()
    return launches


def capsnet() -> Network:
    """Return CapsNet with few channels."""
    net = CapsNet((1, 20, 20), 10, backbone=partial(ConvBackbone, out_channels=4), n_types=2)
    net.decoder = FullyConnectedDecoder(10, 16, net.image_shape, hidden=(8, 8))
    return net


def tsai() -> Network:
    """Return Tsai's network with few channels."""
    net = AttentionCapsNet(
        (3, 14, 14), 10, n_types=4, backbone=partial(ResNetBackbone, out_channels=8)
    )
    net.backbone.layers = nn.Sequential(
        ImageConv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        *(BasicBlock(8, 8) for _ in range(3)),
        BasicBlock(8, 8, stride=2),
        *(BasicBlock(8, 8) for _ in range(3)),
    )
    return net


def step_of(net: Network, case: str, n: int) -> Call:
    """Return the training step of a recipe on n images, which fill the tiles of the kernels."""
    setting = Setting(case, "fused", n, "train", "bfloat16")
    device = torch.device("cpu")
    recipe = find_recipe(setting)
    batch = random_batch(recipe, net, n, device)
    optimizer = recipe.optimizer(net.train().parameters(), lr=recipe.lr, fused=True)
    step = Step(recipe, net, net, optimizer, None, Process(device))
    step.skips = True  # as on a GPU
    return partial(step, batch)


def gradient_of(function: Callable[[], Tensor]) -> Call:
    """Return a call of a function and of its gradient."""

    def run() -> None:
        out = function()
        out.backward(torch.ones_like(out))

    return run


def launch_squash() -> Call:
    """Return the launch of a kernel with two tensors and four numbers."""
    from torchcaps.kernels.elementwise.kernel import squash_kernel
    from torchcaps.kernels.elementwise.launch import _by_rows

    poses = torch.rand(2, 36, 8)
    return partial(_by_rows, squash_kernel, poses, torch.empty_like(poses))


def launch_attend() -> Call:
    """Return the launch of a kernel with the arguments of an agreement step."""
    from torchcaps.kernels.attend.forward import attend_kernel
    from torchcaps.kernels.attend.launch import _cast_options
    from torchcaps.kernels.common.launching import launch
    from torchcaps.kernels.common.layout import Layout

    poses, weight = torch.rand(2, 1, 1, 8, 8), torch.rand(8, 10, 8, 16)
    layout = Layout(poses, weight, None, (1, 1), (1, 1), (0, 0))
    arguments = (layout.arguments(), poses, None, poses, poses, 8, 0.5)
    return partial(
        launch, attend_kernel, (2, 2, 2), *arguments, leaky=False, **_cast_options(layout)
    )


def attend() -> Call:
    """Return an agreement step and its gradient, with the shapes of CapsNet's digits."""
    poses = torch.rand(64, 8, 8, dtype=torch.bfloat16, requires_grad=True)
    weight = torch.rand(8, 10, 8, 16, dtype=torch.bfloat16, requires_grad=True)
    parents = torch.rand(64, 10, 16, dtype=torch.bfloat16, requires_grad=True)
    votes = Votes(poses, weight)
    return gradient_of(lambda: kernels.attend(votes, parents)[0])


def squash() -> Call:
    """Return squashing and its gradient."""
    poses = torch.rand(2, 36, 8, requires_grad=True)
    return gradient_of(lambda: kernels.squash(poses))


def plain() -> Call:
    """Return a multiplication and its gradient."""
    poses = torch.rand(2, 36, 8, requires_grad=True)
    return gradient_of(lambda: poses * 2.0)


CASES: dict[str, Callable[[], Call]] = {
    "plain": plain,
    "launch-squash": launch_squash,
    "launch-attend": launch_attend,
    "squash": squash,
    "attend": attend,
    "capsnet": lambda: step_of(capsnet(), "sabour2017/mnist", 2),
    "tsai": lambda: step_of(tsai(), "tsai2020/cifar10-resnet", 2),
}


def times(call: Call, n: int) -> np.ndarray[Any, Any]:
    """Return microseconds of n calls."""
    for _ in range(10):
        call()
    seconds = []
    for _ in range(n):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return np.array(seconds) * 1e6


def main() -> None:
    """Time the cases of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--profile", action="store_true", help="list functions")
    parser.add_argument("-n", type=int, default=200, help="calls")
    options = parser.parse_args()
    launches = launch_nothing()
    torch.manual_seed(0)
    for name in options.cases:
        call = CASES[name]()
        taken = times(call, options.n)
        launches.clear()
        call()
        low, middle = np.percentile(taken, [10, 50])
        sys.stdout.write(
            f"{name:14} {low:8.1f} us (tenth percentile) {middle:8.1f} us (median), "
            f"{len(launches)} launches\n"
        )
        if options.profile:
            with cProfile.Profile() as profile:
                for _ in range(options.n):
                    call()
            pstats.Stats(profile).sort_stats("tottime").print_stats(60)


if __name__ == "__main__":
    main()
