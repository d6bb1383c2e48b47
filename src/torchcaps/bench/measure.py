"""Speed and memory of the training step of a recipe, or of inference, beside a floor.

A case is a network or a recipe. Its floor is the same backbone with average pooling; for CapsNet
it is the same network with one routing iteration. An implementation says how it runs: "torch" (the
plain functions), "dense" (those on votes that are all cast first, with every update of every
layer) or "fused" (the kernels). "+compile" compiles, "+reduce" does with mode="reduce-overhead",
and "+graph" captures the step as a CUDA graph.
"""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, cast, final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from torchcaps import kernels
from torchcaps.bench.setting import HEAD, Measured, Setting
from torchcaps.capsules import Output
from torchcaps.captured import CapturedStep
from torchcaps.captured.graphs import record
from torchcaps.data import Batch
from torchcaps.errors import UsageError
from torchcaps.layers import CapsuleHead, ConvCapsules
from torchcaps.models import AttentionCapsNet, CapsNet, EMCapsNet, Network, ResCapsNet, build
from torchcaps.models.network import Classifier
from torchcaps.models.zoo import ZOO
from torchcaps.recipes import RECIPES, Published, Recipe, study
from torchcaps.recipes.tools.loading import find_study_recipe
from torchcaps.routing.base import Routing
from torchcaps.train.compiling import compiled
from torchcaps.train.evaluation.score import autocast, tensor_float
from torchcaps.train.optimizers import make_optimizers
from torchcaps.train.process import Process
from torchcaps.train.step import GraphedStep, Step, total_loss
from torchcaps.votes import Votes

MAX_LR = 1e-4
"""Steps on random images must stay finite; the learning rate does not change their speed."""


@final
class HeadNetwork(Network):
    """A capsule head on random features of 512 channels."""

    def __init__(self, side: int, n_classes: int, d: int) -> None:
        super().__init__((512, side, side), n_classes)
        self.head = CapsuleHead(512, n_classes, d=d)

    def forward(
        self, images: Tensor, targets: Tensor | None = None, *, couplings: bool = False
    ) -> Output:
        """Classify features ``[b 512 h w]``."""
        output: Output = self.head(images)
        return output


def find_recipe(setting: Setting) -> Recipe:
    """Return the recipe of a case: of that name, the first of that network, or a plain one.

    A case may also name a recipe of a study. Batch normalization takes its statistics over the
    whole batch.
    """
    case = setting.case
    if case.startswith(study.PREFIX):
        recipe: Recipe | None = find_study_recipe(case)
    else:
        recipe = RECIPES.get(case) or next((r for r in RECIPES.values() if r.network == case), None)
    recipe = recipe or Recipe(case, network=case, dataset="", published=Published(""))
    return replace(recipe, precision=setting.dtype, norm_batch=0, lr=min(recipe.lr, MAX_LR))


def network(setting: Setting) -> Network:
    """Build the network of a setting, or its floor."""
    net = _build(setting)
    if setting.iterations is not None:
        net.set_iterations(setting.iterations)
    for module in net.modules():
        if isinstance(module, Routing):
            plain = setting.has("torch") or setting.has("dense")
            module.implementation = "torch" if plain else "auto"
            if setting.has("dense"):
                module.register_forward_pre_hook(_cast_votes)
        if isinstance(module, ConvCapsules) and module.routing.competition == "image":
            module.competition = setting.competition
    return _floor(net, setting.case) if setting.has("floor") else net


def _build(setting: Setting) -> Network:
    if setting.case == HEAD:
        return HeadNetwork(setting.side or 7, setting.classes or 1000, setting.pose or 16)
    name = find_recipe(setting).network
    shape = None
    if setting.side is not None and name in ZOO:
        shape = (ZOO[name].image_shape[0], setting.side, setting.side)
    return build(name, image_shape=shape, n_classes=setting.classes)


def _cast_votes(routing: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Cast all votes before they are routed."""
    children, votes, *rest = arguments
    return (children, votes.dense() if isinstance(votes, Votes) else votes, *rest)


def _floor(net: Network, case: str) -> Network:
    """Return what the capsules of a network are compared with."""
    if isinstance(net, CapsNet):
        net.set_iterations(1)
        return net
    if not isinstance(net, AttentionCapsNet | EMCapsNet | ResCapsNet):
        raise UsageError(f"{case} has no floor to be compared with")
    pooled = nn.Sequential(
        net.backbone,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(net.backbone.out_channels, net.n_classes),
    )
    return Classifier(net.image_shape, net.n_classes, pooled)


def prepare(setting: Setting, device: torch.device) -> Callable[[], None]:
    """Build a network and its random images, and return the function to time."""
    reason = kernels.machine_obstacle()
    if setting.has("fused") and reason is not None:
        raise UsageError(f"{setting}: kernels do not run because {reason}; ask for torch instead")
    if setting.has("graph") and device.type != "cuda":
        raise UsageError(f"{setting}: a CUDA graph needs a CUDA device; leave out +graph")
    torch.manual_seed(0)
    recipe = find_recipe(setting)
    net = network(setting).to(device)
    if device.type == "cuda" and recipe.channels_last:
        for module in net.modules():
            if isinstance(module, nn.Conv2d):
                weight = module.weight
                weight.data = weight.data.contiguous(memory_format=torch.channels_last)
    batch = random_batch(recipe, net, setting.batch, device)
    if setting.mode == "inference":
        return _inference(setting, recipe, net.eval(), batch)
    return partial(_training_step(setting, recipe, net.train(), device), batch)


def random_batch(recipe: Recipe, net: Network, size: int, device: torch.device) -> Batch:
    """Draw images and labels as the recipe's data set has them, of one or two objects."""
    images = torch.rand(size, *net.image_shape, device=device)
    indices = torch.arange(size, device=device)
    if recipe.measure == "top1":
        return Batch(images, torch.randint(net.n_classes, (size,), device=device), indices)
    if recipe.measure == "r2":
        return Batch(images, torch.rand(size, net.n_classes, device=device), indices)
    labels = torch.rand(size, net.n_classes, device=device).argsort(1)[:, :2]
    return Batch(images, labels, indices, torch.rand(size, 2, *net.image_shape, device=device))


def _training_step(
    setting: Setting, recipe: Recipe, net: Network, device: torch.device
) -> Callable[[Batch], None]:
    """Return the step that :func:`torchcaps.train.train` takes."""

    def with_couplings(images: Tensor, targets: Tensor | None = None) -> Output:
        output: Output = net(images, targets, couplings=True)
        return output

    forward: Callable[..., Output] = with_couplings if setting.has("dense") else net
    forward = _compiled(setting, forward)
    optimizer, ascent = make_optimizers(recipe, net, device)
    if setting.loop == "user":
        return _user_step(setting, recipe, forward, optimizer, device)
    step = Step(recipe, net, forward, optimizer, ascent, Process(device))
    if not setting.has("graph"):
        return step
    if not step.capturable:
        raise UsageError(f"{setting}: this recipe's step cannot be captured; leave out +graph")
    return GraphedStep(step)


def _user_step(
    setting: Setting,
    recipe: Recipe,
    forward: Callable[..., Output],
    optimizer: Optimizer,
    device: torch.device,
) -> Callable[[Batch], None]:
    """Return the step of the loop in docs/speed.md, with the loss of the recipe."""
    taken = torch.zeros((), device=device)
    batches: list[Batch] = []

    def loss(output: Output, labels: Tensor) -> Tensor:
        return total_loss(recipe, output, batches[-1], taken)

    step = CapturedStep(
        cast(nn.Module, forward),
        loss,
        optimizer,
        autocast=torch.bfloat16 if setting.dtype == "bfloat16" else None,
        pass_targets=bool(recipe.reconstruction_weight),
        capture=setting.has("graph"),
    )

    def run(batch: Batch) -> None:
        batches[:] = [batch]
        step(batch.images, batch.labels)

    return run


def _inference(setting: Setting, recipe: Recipe, net: Network, batch: Batch) -> Callable[[], None]:
    """Return a function that classifies the images."""
    forward: Callable[[Tensor], Any] = _compiled(setting, net)
    images = batch.images
    if images.is_cuda and recipe.channels_last:
        images = images.contiguous(memory_format=torch.channels_last)

    def step() -> None:
        with torch.no_grad(), autocast(images.device, recipe.precision):
            forward(images)

    if not setting.has("graph"):
        return step
    graph, _ = record(step)
    replay: Callable[[], None] = graph.replay
    return replay


def _compiled(setting: Setting, forward: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function if the setting says so."""
    if setting.has("reduce"):
        return compiled(forward, mode="reduce-overhead")
    return compiled(forward) if setting.has("compile") else forward


@contextmanager
def training_backends(setting: Setting, device: torch.device) -> Iterator[None]:
    """Set cuDNN's search and the float32 precision as training does."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        with tensor_float(device, find_recipe(setting).precision):
            yield
    finally:
        torch.backends.cudnn.benchmark = before


def measure(
    setting: Setting,
    *,
    device: torch.device,
    repeats: int = 20,
    clock: Callable[[], float] = time.perf_counter,
) -> Measured:
    """Time one setting; raise :class:`UsageError` if it cannot run here.

    Args:
        setting: the setting.
        device: the device.
        repeats: timed steps.
        clock: clock of steps on a CPU, such as :func:`time.process_time`, which other programs do
            not slow down.
    """
    if repeats < 1:
        raise UsageError(f"a median needs at least one repeat, not {repeats}")
    try:
        with training_backends(setting, device):
            return _measure(setting, device, repeats, clock)
    except torch.OutOfMemoryError as error:
        raise UsageError(f"{setting}: does not fit into the memory of the GPU") from error


def _measure(
    setting: Setting, device: torch.device, repeats: int, clock: Callable[[], float]
) -> Measured:
    on_gpu = device.type == "cuda"
    torch.compiler.reset()
    used_bytes = 0
    if on_gpu:
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        used_bytes = torch.cuda.memory_allocated()
    start = time.perf_counter()
    step = prepare(setting, device)
    step()
    if on_gpu:
        torch.cuda.synchronize()
    ready_s = time.perf_counter() - start
    for _ in range(5 if on_gpu else 1):
        step()
    seconds = tuple(time_step(step, on_gpu, clock) for _ in range(repeats))
    peak = (torch.cuda.max_memory_allocated() - used_bytes) / 2**20 if on_gpu else float("nan")
    return Measured(setting, seconds, peak, ready_s)


def time_step(
    step: Callable[[], object], on_gpu: bool, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Return the seconds of one step."""
    if not on_gpu:
        start = clock()
        step()
        return clock() - start
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    step()
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last)) / 1000
