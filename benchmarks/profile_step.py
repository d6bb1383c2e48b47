"""List the kernels of one training step, longest first.

    PYTHONPATH=src python benchmarks/profile_step.py tsai2020/cifar10-resnet --batch 512
    PYTHONPATH=src python benchmarks/profile_step.py hinton2018/smallnorb --iterations 2

Each implementation is built and warmed up as :func:`torchcaps.bench.measure` does it, timed without
the profiler, then profiled. On a GPU the rows are its kernels, also those of a CUDA graph. Without
a GPU they are operators, each without the operators it calls.
"""

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from torchcaps.bench import Setting
from torchcaps.bench.measure import prepare, training_backends


@dataclass(frozen=True)
class Kernel:
    """A kernel of a step: its calls per step and its total milliseconds per step."""

    name: str
    calls: float
    ms: float


def profile_setting(
    setting: Setting, *, device: torch.device, steps: int
) -> tuple[float, list[Kernel]]:
    """Return the milliseconds of a step without the profiler, and its kernels, longest first."""
    cuda = device.type == "cuda"
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * cuda
    torch.compiler.reset()
    with profile(activities=activities):
        pass  # the profiler sees kernels of a graph only if it ran before the capture
    step = prepare(setting, device)
    _repeat(step, 5 if cuda else 1, cuda)
    start = time.perf_counter()
    _repeat(step, steps, cuda)
    wall = (time.perf_counter() - start) / steps
    with profile(activities=activities) as seen:
        _repeat(step, steps, cuda)
    calls: dict[str, int] = defaultdict(int)
    micros: dict[str, float] = defaultdict(float)
    events: Any = seen.events()
    for event in events:
        if cuda and (event.device_type.name != "CUDA" or event.is_user_annotation):
            continue
        calls[event.name] += 1
        micros[event.name] += event.time_range.elapsed_us() if cuda else event.self_cpu_time_total
    kernels = [Kernel(name, calls[name] / steps, micros[name] / steps / 1000) for name in micros]
    return 1000 * wall, sorted(kernels, key=lambda kernel: -kernel.ms)


def _repeat(step: Callable[[], None], steps: int, cuda: bool) -> None:
    for _ in range(steps):
        step()
    if cuda:
        torch.cuda.synchronize()


def report(setting: Setting, wall: float, kernels: list[Kernel], *, top: int, wide: int) -> str:
    """Format the longest kernels as a table; a share is of the time of all kernels."""
    busy = sum(kernel.ms for kernel in kernels)
    lines = [
        f"{setting.case}, {setting.implementation}, {setting.mode}, {setting.dtype}, "
        f"batch {setting.batch}: {wall:.3f} ms a step, {1000 * setting.batch / wall:,.0f} images/s",
        f"{len(kernels)} different kernels, {sum(kernel.calls for kernel in kernels):.0f} calls, "
        f"{busy:.3f} ms in all",
        f"{'ms':>9} {'share':>6} {'calls':>7}  kernel",
    ]
    for kernel in kernels[:top]:
        share = kernel.ms / busy if busy else 0.0
        lines.append(f"{kernel.ms:9.3f} {share:6.1%} {kernel.calls:7.1f}  {kernel.name[:wide]}")
    rest = kernels[top:]
    if rest:
        ms, calls = sum(kernel.ms for kernel in rest), sum(kernel.calls for kernel in rest)
        lines.append(f"{ms:9.3f} {ms / busy:6.1%} {calls:7.1f}  {len(rest)} others")
    return "\n".join(lines)


def main() -> None:
    """Profile the settings of the command line and print their tables."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("case", help="a network or a recipe")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument(
        "--implementation",
        nargs="+",
        default=["fused", "fused+compile+graph"] if torch.cuda.is_available() else ["torch"],
        help="floor, fused, torch or dense, with +compile and +graph as wanted",
    )
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--mode", choices=("train", "inference"), default="train")
    parser.add_argument("--iterations", type=int, default=None, help="of the routing")
    parser.add_argument("--side", type=int, default=None, help="of the images")
    parser.add_argument("--steps", type=int, default=10, help="timed, and profiled")
    parser.add_argument("--top", type=int, default=30, help="kernels listed")
    parser.add_argument("--wide", type=int, default=110, help="characters shown of a kernel's name")
    options = parser.parse_args()
    if options.steps < 1:
        parser.error(f"--steps must be at least 1, not {options.steps}")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for implementation in options.implementation:
        try:
            setting = Setting(
                options.case,
                implementation,
                options.batch,
                options.mode,
                options.dtype,
                options.iterations,
                side=options.side,
            )
            with training_backends(setting, device):
                wall, kernels = profile_setting(setting, device=device, steps=options.steps)
        except ValueError as error:
            parser.error(str(error))
        text = report(setting, wall, kernels, top=options.top, wide=options.wide)
        sys.stdout.write(text + "\n\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
