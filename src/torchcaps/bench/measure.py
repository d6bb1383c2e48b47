"""Speed and memory of routings and networks on this machine, beside what they stand on.

A case is a network of the zoo and its floor: the same backbone with average pooling or, for
CapsNet, the same network with a matrix product in place of routing. An arrangement is how it runs:
"torch" (the plain functions), "dense" (those on votes that are all cast first, with every update
of every layer), "fused" (the kernels); "+compile" compiles, "+graph" captures the whole step as a
CUDA graph.
"""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from torchcaps import kernels
from torchcaps.bench.setting import HEAD, Measured, Setting
from torchcaps.capsules import Output
from torchcaps.functional import cross_entropy_loss, margin_loss, reconstruction_loss, spread_loss
from torchcaps.layers import CapsuleHead, ConvCapsules
from torchcaps.models import AttentionCapsNet, CapsNet, EMCapsNet, Network, ResCapsNet, build
from torchcaps.models.network import Classifier
from torchcaps.models.zoo import ZOO
from torchcaps.routing.base import Routing
from torchcaps.train.compiling import compiled
from torchcaps.votes import Votes

__all__ = ["measure", "network", "searching", "stepper"]


@final
class HeadNetwork(Network):
    """A capsule head on features that some backbone would give."""

    def __init__(self, side: int, n_classes: int, d: int) -> None:
        super().__init__((512, side, side), n_classes)
        self.head = CapsuleHead(512, n_classes, d=d)

    def forward(
        self, images: Tensor, targets: Tensor | None = None, *, couplings: bool = False
    ) -> Output:
        """Scores of the features."""
        output: Output = self.head(images)
        return output


def _built(setting: Setting) -> Network:
    if setting.case == HEAD:
        return HeadNetwork(setting.side or 7, setting.classes or 1000, setting.pose or 16)
    shape = ZOO[setting.case].image_shape if setting.case in ZOO else (1, 1, 1)
    side = None if setting.side is None else (shape[0], setting.side, setting.side)
    return build(setting.case, image_shape=side, n_classes=setting.classes)


def network(setting: Setting) -> Network:
    """The network of a setting, or its floor."""
    net = _built(setting)
    if setting.iterations is not None:
        net.set_iterations(setting.iterations)
    for module in net.modules():
        if isinstance(module, Routing):
            plain = setting.has("torch") or setting.has("dense")
            module.implementation = "torch" if plain else "auto"
            if setting.has("dense"):
                module.register_forward_pre_hook(_cast)
        if isinstance(module, ConvCapsules) and module.routing.competition == "image":
            module.competition = setting.competition
    if not setting.has("floor"):
        return net
    if isinstance(net, CapsNet):
        net.set_iterations(1)
        return net
    if not isinstance(net, AttentionCapsNet | EMCapsNet | ResCapsNet):
        raise ValueError(f"{setting.case} has no floor to be compared with")
    pooled = nn.Sequential(
        net.backbone,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(net.backbone.out_channels, net.n_classes),
    )
    return Classifier(net.image_shape, net.n_classes, pooled)


def _cast(routing: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Cast all votes before they are routed."""
    children, votes, *rest = given
    return (children, votes.dense() if isinstance(votes, Votes) else votes, *rest)


def loss_of(net: Network, images: Tensor, targets: Tensor, *, whole: bool = False) -> Tensor:
    """The loss the network's paper trains with; ``whole`` computes what it does not need too."""
    out = net(images, targets, couplings=whole)
    several = targets.dim() > 1
    if isinstance(net, CapsNet) or several:
        there = one_hot(targets, net.n_classes).sum(1) if several else targets
        loss = margin_loss(out.scores.float(), there)
        if out.reconstruction is None:
            return loss
        objects = images[:, None].expand_as(out.reconstruction) if several else images
        return loss + reconstruction_loss(out.reconstruction.float(), objects)
    if isinstance(net, EMCapsNet):
        return spread_loss(out.scores.float(), targets, margin=0.2)
    return cross_entropy_loss(out.scores.float(), targets)


def stepper(setting: Setting, device: torch.device) -> Callable[[], None]:
    """Build everything and return one step, ready to be timed."""
    _check(setting, device)
    torch.manual_seed(0)
    net = network(setting).to(device)
    channels_last = device.type == "cuda"
    if channels_last:
        for parameter in net.parameters():
            if parameter.dim() == 4 and parameter.shape[2:] != (1, 1):
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    images = torch.rand(setting.batch, *net.image_shape, device=device)
    if channels_last:
        images = images.contiguous(memory_format=torch.channels_last)
    targets = _targets(net, setting.batch).to(device)
    low = partial(torch.autocast, device.type, torch.bfloat16, enabled=setting.dtype == "bfloat16")
    if setting.mode == "inference":
        return _inference(setting, net.eval(), images, low)
    optimizer = torch.optim.SGD(
        net.parameters(), lr=1e-4, momentum=0.9, fused=device.type == "cuda"
    )
    wanted = partial(loss_of, whole=setting.has("dense"))
    loss = compiled(wanted) if setting.has("compile") else wanted

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with low():
            value = loss(net, images, targets)
        value.backward()
        optimizer.step()

    return _captured(step) if setting.has("graph") else step


def _targets(net: Network, batch: int) -> Tensor:
    """Class numbers ``[b]``, or ``[b objects]``, all different, of a network of several objects."""
    if isinstance(net, CapsNet | ResCapsNet) and net.n_objects > 1:
        return torch.rand(batch, net.n_classes).argsort(1)[:, : net.n_objects]
    return torch.randint(net.n_classes, (batch,))


def _check(setting: Setting, device: torch.device) -> None:
    why = kernels.machine_obstacle()
    if setting.has("fused") and why is not None:
        raise ValueError(f"{setting}: kernels do not run because {why}; ask for torch instead")
    if setting.has("graph") and device.type != "cuda":
        raise ValueError(f"{setting}: a CUDA graph needs a CUDA device; leave out +graph")


def _inference(
    setting: Setting, net: Network, images: Tensor, low: Callable[[], Any]
) -> Callable[[], None]:
    forward: Callable[[Tensor], Any] = compiled(net) if setting.has("compile") else net

    def step() -> None:
        with torch.no_grad(), low():
            forward(images)

    return _captured(step) if setting.has("graph") else step


def _captured(step: Callable[[], None]) -> Callable[[], None]:
    """The step as one CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    replay: Callable[[], None] = graph.replay
    return replay


@contextmanager
def searching() -> Iterator[None]:
    """In here cuDNN looks for the fastest convolution, as in training."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def measure(setting: Setting, *, device: torch.device, repeats: int = 20) -> Measured:
    """Time one setting on its own, or say in a ValueError why it cannot be."""
    if repeats < 1:
        raise ValueError(f"a median needs at least one repeat, not {repeats}")
    try:
        with searching():
            return _measured(setting, device, repeats)
    except torch.OutOfMemoryError as error:
        raise ValueError(f"{setting}: does not fit into the memory of the GPU") from error


def _measured(setting: Setting, device: torch.device, repeats: int) -> Measured:
    cuda = device.type == "cuda"
    torch.compiler.reset()
    before = 0
    if cuda:
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    start = time.perf_counter()
    step = stepper(setting, device)
    step()
    _wait(cuda)
    ready = time.perf_counter() - start
    for _ in range(5 if cuda else 1):
        step()
    seconds = tuple(_timed(step, cuda) for _ in range(repeats))
    peak = (torch.cuda.max_memory_allocated() - before) / 2**20 if cuda else float("nan")
    return Measured(setting, seconds, peak, ready)


def _wait(cuda: bool) -> None:
    if cuda:
        torch.cuda.synchronize()


def _timed(step: Callable[[], None], cuda: bool) -> float:
    if not cuda:
        start = time.perf_counter()
        step()
        return time.perf_counter() - start
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    step()
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last)) / 1000
