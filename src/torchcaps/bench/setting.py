"""Settings to measure, and their measurements."""

import statistics
from dataclasses import dataclass
from typing import Literal

from torchcaps.errors import UsageError

HEAD = "capsule-head"
"""The case of a :class:`CapsuleHead` alone, on random features of 512 channels."""


WAYS = ("floor", "fused", "torch", "dense")
"""Ways in which a network can run, in the order of tables."""


@dataclass(frozen=True)
class Setting:
    """One thing to measure.

    Args:
        case: a network or a recipe; see :func:`torchcaps.bench.measure`.
        implementation: "torch", "dense", "fused" or "floor", with "+compile" or "+reduce" (compile
            with mode="reduce-overhead"), and "+graph" as wanted.
        batch: batch size.
        mode: "train" (the recipe's whole step) or "inference".
        dtype: "bfloat16" runs under autocast.
        iterations: routing iterations; None keeps the network's.
        competition: where the couplings of convolutional EM routing compete; see
            :class:`torchcaps.ConvCapsules`.
        classes: number of classes, if not the network's.
        side: height and width of the images, or of the head's features, if not the network's.
        pose: pose size of the head.
        loop: "recipe" takes the training step of the recipe, with its checks for finite numbers.
            "user" takes the step of a plain loop: forward, loss, backward, optimizer.
    """

    case: str
    implementation: str = "fused"
    batch: int = 128
    mode: str = "train"
    dtype: Literal["float32", "bfloat16"] = "float32"
    iterations: int | None = None
    competition: Literal["window", "image"] = "window"
    classes: int | None = None
    side: int | None = None
    pose: int | None = None
    loop: Literal["recipe", "user"] = "recipe"

    def __post_init__(self) -> None:
        way, *extras = self.implementation.split("+")
        if way not in WAYS or not set(extras) <= {"compile", "reduce", "graph"}:
            raise UsageError(
                f"there is no implementation {self.implementation!r}: it is one of "
                f"{', '.join(WAYS)}, with +compile or +reduce, and +graph as wanted"
            )
        if "reduce" in extras and len(extras) > 1:
            raise UsageError("+reduce compiles and captures graphs by itself: leave out the others")
        if self.batch < 1:
            raise UsageError(f"a step needs at least one image, not {self.batch}")

    def __str__(self) -> str:
        sizes = (("classes", self.classes), ("side", self.side), ("pose", self.pose))
        extras = "".join(f", {name} {size}" for name, size in sizes if size is not None)
        extras += ", competition over the image" if self.competition == "image" else ""
        extras += ", loop of a user" if self.loop == "user" else ""
        return f"{self.case}, {self.implementation}, {self.mode}, batch {self.batch}{extras}"

    def has(self, word: str) -> bool:
        """Return whether the implementation names this word, such as "graph"."""
        return word in self.implementation.split("+")


@dataclass(frozen=True)
class Measured:
    """Seconds of each repeat, peak memory in MiB and seconds until the first step was done."""

    setting: Setting
    seconds: tuple[float, ...]
    peak_mib: float
    ready_s: float

    @property
    def images_per_s(self) -> float:
        """Throughput of the median step."""
        return self.setting.batch / statistics.median(self.seconds)

    def quantile(self, share: float) -> float:
        """Return the seconds below which this share of the steps stayed."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
