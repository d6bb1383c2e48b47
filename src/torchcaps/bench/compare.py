"""Networks of any origin side by side: same images, batch size, precision, loss and loop."""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchcaps.bench.measure import time_step
from torchcaps.captured import CapturedNetwork, CapturedStep
from torchcaps.errors import UsageError

WARM_UP_STEPS = 3


@dataclass(frozen=True)
class Compared:
    """Seconds of each repeat of one network, and its peak memory in MiB on a GPU."""

    name: str
    batch: int
    seconds: tuple[float, ...]
    peak_mib: float | None

    @property
    def images_per_s(self) -> float:
        """Throughput of the median step."""
        return self.batch / statistics.median(self.seconds)

    @property
    def spread(self) -> tuple[float, float]:
        """Throughput of the slowest and of the fastest tenth of the steps."""
        ordered = sorted(self.seconds)
        tenth = len(ordered) // 10
        return self.batch / ordered[-1 - tenth], self.batch / ordered[tenth]


def scores_of(output: object) -> Tensor:
    """Return the scores ``[b n]`` of what a network returns.

    That is a tensor, something with ``scores`` or ``logits``, or a tuple that starts with a tensor.
    """
    for name in ("scores", "logits"):
        output = getattr(output, name, output)
    if isinstance(output, tuple | list) and output:
        output = output[0]
    if not isinstance(output, Tensor) or output.dim() != 2:
        what = f"shape {list(output.shape)}" if isinstance(output, Tensor) else repr(type(output))
        raise UsageError(
            f"a network to compare returns scores [batch classes], not {what}: return them alone, "
            "first in a tuple, or as the attribute scores"
        )
    return output


def compare(
    networks: Mapping[str, nn.Module],
    *,
    image_shape: tuple[int, int, int],
    batch: int,
    mode: str = "train",
    dtype: str = "float32",
    compiles: bool = False,
    device: torch.device,
    repeats: int = 20,
) -> list[Compared]:
    """Time networks in turns, one step of each, so that all see the same state of the machine.

    A training step is forward, cross-entropy, backward and Adam. On a GPU the whole step is one
    CUDA graph where it can be captured, for all networks or for none.

    Args:
        networks: networks by name.
        image_shape: channels, height and width of the random images.
        batch: batch size.
        mode: "train" or "inference".
        dtype: "float32", or "bfloat16" for autocast.
        compiles: use ``torch.compile``.
        device: device to measure on.
        repeats: timed steps of each network.
    """
    torch.manual_seed(0)
    images = torch.rand(batch, *image_shape, device=device)
    precision = torch.bfloat16 if dtype == "bfloat16" else None
    steps: dict[str, Callable[[], object]] = {}
    peaks: dict[str, float | None] = {}
    for name, network in networks.items():
        network = network.to(device)
        make = _training if mode == "train" else _inference
        steps[name] = make(name, network, images, precision, compiles)
        peaks[name] = _peak_mib(steps[name], device)
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repeats):
        for name, step in steps.items():
            seconds[name].append(time_step(step, device.type == "cuda"))
    return [Compared(name, batch, tuple(seconds[name]), peaks[name]) for name in steps]


def _training(
    name: str,
    network: nn.Module,
    images: Tensor,
    precision: torch.dtype | None,
    compiles: bool,
) -> Callable[[], object]:
    with torch.no_grad():
        n_classes = scores_of(_called(name, network.eval(), images[:1])).shape[1]
    labels = torch.arange(len(images), device=images.device) % n_classes
    optimizer = torch.optim.Adam(network.train().parameters(), lr=1e-4)

    def loss(output: object, targets: Tensor) -> Tensor:
        return F.cross_entropy(scores_of(output).float(), targets)

    forward: Any = torch.compile(network) if compiles else network
    step = CapturedStep(forward, loss, optimizer, autocast=precision)
    return lambda: step(images, labels)


def _inference(
    name: str,
    network: nn.Module,
    images: Tensor,
    precision: torch.dtype | None,
    compiles: bool,
) -> Callable[[], object]:
    network.eval()
    forward: Any = torch.compile(network) if compiles else network
    captured = CapturedNetwork(forward, autocast=precision)
    with torch.no_grad():
        scores_of(_called(name, network, images[:1]))
    return lambda: captured(images)


def _called(name: str, network: nn.Module, images: Tensor) -> object:
    """Call a network, and say in one sentence what it refuses."""
    try:
        return network(images)
    except (RuntimeError, ValueError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"{name} fails on images {list(images.shape)}: {reason}") from error


def _peak_mib(step: Callable[[], object], device: torch.device) -> float | None:
    """Warm a step up; return the peak of its memory on a GPU, beside what was there before."""
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    used = torch.cuda.memory_allocated() if on_gpu else 0
    for _ in range(WARM_UP_STEPS):
        step()
    return (torch.cuda.max_memory_allocated() - used) / 2**20 if on_gpu else None
