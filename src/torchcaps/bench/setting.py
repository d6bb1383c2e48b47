"""What is measured, and what came out."""

import statistics
from dataclasses import dataclass
from typing import Literal

__all__ = ["HEAD", "WAYS", "Measured", "Setting"]

HEAD = "capsule-head"
"""The case of a :class:`CapsuleHead` alone, on features of 512 channels that are given."""


WAYS = ("floor", "fused", "torch", "dense")
"""How a network can run, in the order of tables."""


@dataclass(frozen=True)
class Setting:
    """One thing to measure.

    Args:
        case: a network of the zoo.
        arrangement: "torch", "dense", "fused" or "floor", with "+compile" and "+graph" as wanted.
        batch: images of a step.
        mode: "train" (forward, backward, optimizer) or "inference".
        dtype: "bfloat16" runs under autocast.
        iterations: of the routing; None leaves the network's.
        competition: of convolutional EM routing; see :class:`torchcaps.ConvCapsules`.
        classes: how many, if not the network's.
        side: of the images, or of the head's feature map, if not the network's.
        pose: size of the head's poses.
    """

    case: str
    arrangement: str = "fused"
    batch: int = 128
    mode: str = "train"
    dtype: str = "float32"
    iterations: int | None = None
    competition: Literal["window", "image"] = "window"
    classes: int | None = None
    side: int | None = None
    pose: int | None = None

    def __post_init__(self) -> None:
        way, *more = self.arrangement.split("+")
        if way not in WAYS or not set(more) <= {"compile", "graph"}:
            raise ValueError(
                f"there is no arrangement {self.arrangement!r}: it is one of {', '.join(WAYS)}, "
                "with +compile and +graph as wanted"
            )
        if self.batch < 1:
            raise ValueError(f"a step needs at least one image, not {self.batch}")

    def __str__(self) -> str:
        sizes = (("classes", self.classes), ("side", self.side), ("pose", self.pose))
        more = "".join(f", {name} {size}" for name, size in sizes if size is not None)
        return f"{self.case}, {self.arrangement}, {self.mode}, batch {self.batch}{more}"

    def has(self, word: str) -> bool:
        """Whether the arrangement names this."""
        return word in self.arrangement.split("+")


@dataclass(frozen=True)
class Measured:
    """What came out: seconds of a step over the repeats, and the most memory in use."""

    setting: Setting
    seconds: tuple[float, ...]
    peak_mib: float
    ready_s: float

    @property
    def images_per_s(self) -> float:
        """From the median step."""
        return self.setting.batch / statistics.median(self.seconds)

    def quantile(self, share: float) -> float:
        """Seconds below which this share of the steps stayed."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
