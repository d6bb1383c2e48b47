"""Count the kernels that one eager step launches on a GPU, on a machine without one.

    PYTHONPATH=src python benchmarks/launches.py sabour2017/mnist tsai2020/cifar10-resnet
    PYTHONPATH=src python benchmarks/launches.py sabour2017/mnist --step recipe --list

Tensors are fake, nothing is computed, and operators take the path of a GPU. Every PyTorch operator
that is no view and no allocation counts once, a convolution's gradient once per tensor it is for,
and every launch of a Triton kernel once. The count is an estimate: a library may launch several
kernels for one operator. ``profile_step.py`` counts what a GPU really launches.

``--step plain`` is the loop that users write: autocast, the recipe's loss, ``zero_grad``,
``backward`` and a fused optimizer. ``--step recipe`` is the step of our own loop, with its checks
for finite numbers and its sums of losses and accuracies.
"""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, cast
from unittest import mock

import torch
from torch import Tensor
from torch._library.custom_ops import OPDEFS
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from torchcaps import functional
from torchcaps.bench import Setting
from torchcaps.bench.measure import find_recipe, network, random_batch
from torchcaps.data import Batch
from torchcaps.layers import decoders
from torchcaps.models import Network
from torchcaps.models.parts.backbones import ImageConv2d
from torchcaps.recipes import Recipe
from torchcaps.train.process import Process
from torchcaps.train.step import Step, total_loss

CPU = torch.device("cpu")
FREE = {
    "_unsafe_view", "detach", "detach_", "device", "empty", "empty_like", "empty_strided",
    "lift_fresh", "new_empty", "new_empty_strided", "scalar_tensor",
}  # fmt: skip
"""Operators that launch nothing, beside views; a scalar tensor stays on the host."""


class Launches(TorchDispatchMode):
    """Counts operators and Triton kernels; runs our own operators' launch code on fake tensors."""

    def __init__(self) -> None:
        TorchDispatchMode.__init__(self)
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count an operator and run it."""
        kwargs = kwargs or {}
        schema = func._schema
        if func.namespace == "torchcaps":
            with self:
                return cast(Any, OPDEFS[schema.name])._init_fn(*args, **kwargs)
        name = schema.name.removeprefix("aten::")
        is_view = any(r.alias_info and not r.alias_info.is_write for r in schema.returns)
        if func.namespace == "aten" and not is_view and name not in FREE:
            self.counts[name] += sum(args[-1]) if name == "convolution_backward" else 1
        return func(*args, **kwargs)


class Scalars(TorchDispatchMode):
    """Answers zero where the host reads a number, as it does to initialize weights."""

    def __init__(self) -> None:
        TorchDispatchMode.__init__(self)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator."""
        if func is torch.ops.aten._local_scalar_dense.default:
            return 0.0 if args[0].is_floating_point() else 0
        return func(*args, **(kwargs or {}))


@contextmanager
def path_of_a_gpu(launches: Launches) -> Iterator[None]:
    """Make tensors on the CPU take a GPU's path; Triton counts its kernels and runs none."""
    os.environ["TRITON_INTERPRET"] = "1"  # for which kernels accept tensors on the CPU
    from torch.nn.utils import clip_grad
    from triton.runtime.jit import KernelInterface

    def count(kernel: Any, grid: Any) -> Callable[..., None]:
        return lambda *_, **__: launches.counts.update([kernel.__name__])

    with ExitStack() as stack:
        for owner, name, replacement in (
            (KernelInterface, "__getitem__", count),
            (clip_grad, "_has_foreach_support", lambda *_: True),
            (functional, "check_classes", lambda *_: None),  # reads numbers on a CPU alone
            (decoders, "check_classes", lambda *_: None),
            (ImageConv2d, "forward", ImageConv2d.by_patches),
        ):
            stack.enter_context(mock.patch.object(owner, name, replacement))
        yield


def count_launches(setting: Setting, *, step: str) -> Counter[str]:
    """Return how often each kernel is launched in the second step of a setting."""
    launches, scalars = Launches(), Scalars()
    with FakeTensorMode(), path_of_a_gpu(launches), scalars:
        recipe, net = find_recipe(setting), network(setting)
        run = _step(setting, recipe, net, step)
        run()
        launches.counts.clear()
        with launches:
            run()
    return launches.counts


def _step(setting: Setting, recipe: Recipe, net: Network, step: str) -> Callable[[], None]:
    batch = random_batch(recipe, net, setting.batch, CPU)
    lowers = setting.dtype == "bfloat16"
    if setting.mode == "inference":
        return partial(_infer, net.eval(), batch.images, lowers)
    optimizer = recipe.optimizer(net.train().parameters(), lr=recipe.lr, fused=True)
    whole = Step(recipe, net, net, optimizer, None, Process(CPU))
    if step == "recipe":
        whole.skips = True  # as on a GPU
        cast(Any, optimizer).found_inf = whole.stops
        return partial(whole, batch)
    return partial(_train, recipe, net, optimizer, batch, whole.taken, lowers)


@torch.no_grad()
def _infer(net: Network, images: Tensor, lowers: bool) -> None:
    with torch.autocast("cpu", torch.bfloat16, enabled=lowers):
        net(images)


def _train(
    recipe: Recipe,
    net: Network,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    taken: Tensor,
    lowers: bool,
) -> None:
    with torch.autocast("cpu", torch.bfloat16, enabled=lowers):
        output = net(batch.images, batch.labels)
    loss = total_loss(recipe, output, batch, taken)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def main() -> None:
    """Count the launches of the networks of the command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("cases", nargs="+", help="networks or recipes")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--mode", choices=("train", "inference"), default="train")
    parser.add_argument("--step", choices=("plain", "recipe"), default="plain")
    parser.add_argument("--list", action="store_true", help="list kernels, most frequent first")
    options = parser.parse_args()
    for case in options.cases:
        setting = Setting(case, "fused", options.batch, options.mode, options.dtype)
        counts = count_launches(setting, step=options.step)
        sys.stdout.write(f"{case}, {options.mode}, {options.step}: {counts.total()} launches\n")
        if options.list:
            sys.stdout.writelines(f"{n:6}  {name}\n" for name, n in counts.most_common())


if __name__ == "__main__":
    main()
