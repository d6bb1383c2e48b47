"""The preprocessing of a network's images, as a record that a weight file can hold."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self, TypeGuard

from torch import Tensor

from torchcaps.checks import check_sizes
from torchcaps.errors import InputError, UsageError
from torchcaps.preprocessing.images import Image, as_batch
from torchcaps.preprocessing.steps import (
    CenterCrop,
    Channels,
    Mono,
    Normalize,
    Standardize,
    as_float,
)

Step = CenterCrop | Channels | Mono | Normalize | Standardize

STEPS: dict[str, type[Step]] = {
    "center_crop": CenterCrop,
    "channels": Channels,
    "mono": Mono,
    "normalize": Normalize,
    "standardize": Standardize,
}
"""The vocabulary of a record: every transform without randomness, by name."""

MAX_STEPS = 16
MAX_SIDE = 4096
MAX_CHANNELS = 64
LARGEST = 1e6


@dataclass(frozen=True)
class Preprocessing:
    """The preprocessing of a network's images: channels and size, then steps in order.

    An image of another size is resized so that it covers ``size``, and its center is cut out. A
    color image becomes gray for one channel, and a gray image is repeated for three.

        network.preprocessing = Preprocessing(3, (32, 32), (Normalize(mean, std),))

    Attributes:
        channels: number of channels of an image before the steps.
        size: height and width of an image before the steps.
        steps: transforms of `torchcaps.data` without randomness, such as `Normalize`.
        background: mean brightness, from 0 to 1, of the border of the training images; None if it
            is unknown. Inverted scans are recognized by it.
    """

    channels: int
    size: tuple[int, int]
    steps: tuple[Step, ...] = ()
    background: float | None = None

    def __post_init__(self) -> None:
        check_sizes(channels=self.channels, height=self.size[0], width=self.size[1])
        if not are_steps(self.steps):
            raise UsageError(f"steps must be transforms such as Normalize, not {self.steps!r}")

    def __call__(self, images: "Image | Sequence[Image]") -> Tensor:
        """Return images as the float batch ``[b c h w]`` that the network was trained to see.

        Args:
            images: see :meth:`torchcaps.Network.preprocess`.
        """
        batch = as_batch(images, self.channels, self.size)
        for step in self.steps:
            batch = step(batch)
        return as_float(batch)

    def output_shape(self) -> tuple[int, int, int]:
        """Return channels, height and width of the images after the steps."""
        channels, (height, width) = self.channels, self.size
        for step in self.steps:
            match step:
                case CenterCrop() if step.size > min(height, width):
                    raise InputError(f"images of {height}x{width} have no crop of {step.size}")
                case CenterCrop():
                    height = width = step.size
                case Channels() if channels != 1:
                    raise InputError(f"{step} repeats one channel, not {channels}")
                case Channels():
                    channels = step.count
                case Mono():
                    channels = 1
                case Normalize() if len(step.mean) != channels:
                    raise InputError(f"{step} does not fit {channels} channels")
        return channels, height, width

    def to_json(self) -> dict[str, Any]:
        """Return the record as `json` can store it."""
        names = {kind: name for name, kind in STEPS.items()}
        return {
            "channels": self.channels,
            "size": list(self.size),
            "steps": [{"name": names[type(step)], **_arguments(step)} for step in self.steps],
            "background": self.background,
        }

    @classmethod
    def from_json(cls, record: object) -> Self:
        """Read a record of :meth:`to_json`; refuse anything else with a ValueError."""
        keys = {"channels", "size", "steps", "background"}
        if type(record) is not dict or set(record) != keys:
            raise ValueError("a record of preprocessing has other entries")
        size, steps, background = record["size"], record["steps"], record["background"]
        channels = _whole(record["channels"], MAX_CHANNELS)
        if type(size) is not list or len(size) != 2:
            raise ValueError("size must be [height, width]")
        if type(steps) is not list or len(steps) > MAX_STEPS:
            raise ValueError(f"steps must be a list of at most {MAX_STEPS}")
        if background is not None and not 0 <= _number(background) <= 1:
            raise ValueError("background must be between 0 and 1")
        read = cls(
            channels,
            (_whole(size[0], MAX_SIDE), _whole(size[1], MAX_SIDE)),
            tuple(_step(step) for step in steps),
            background,
        )
        read.output_shape()
        return read


def are_steps(transforms: Sequence[object]) -> TypeGuard[tuple[Step, ...]]:
    """Return whether transforms are a tuple of steps, which a record can hold."""
    return type(transforms) is tuple and all(type(one) in STEPS.values() for one in transforms)


def _arguments(step: Step) -> dict[str, Any]:
    if isinstance(step, Normalize):
        return {"mean": list(step.mean), "std": list(step.std)}
    return {field.name: getattr(step, field.name) for field in fields(step)}


def _step(record: object) -> Step:
    """Return the step of a record."""
    if type(record) is not dict or type(record.get("name")) is not str:
        raise ValueError("a step must have a name")
    arguments = {key: value for key, value in record.items() if key != "name"}
    match record["name"], sorted(arguments):
        case "center_crop", ["size"]:
            return CenterCrop(_whole(arguments["size"], MAX_SIDE))
        case "channels", ["count"]:
            return Channels(_whole(arguments["count"], MAX_CHANNELS))
        case "mono", []:
            return Mono()
        case "standardize", []:
            return Standardize()
        case "normalize", ["mean", "std"]:
            return Normalize(_numbers(arguments["mean"]), _numbers(arguments["std"]))
    raise ValueError("a step has another name or other arguments")


def _whole(value: object, most: int) -> int:
    if type(value) is not int or not 1 <= value <= most:
        raise ValueError(f"a size must be a whole number from 1 to {most}")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"a number must not be a {type(value).__name__}")
    if not -LARGEST <= value <= LARGEST:  # NaN is not
        raise ValueError("a number must be finite")
    return float(value)


def _numbers(values: object) -> list[float]:
    if type(values) is not list or len(values) > MAX_CHANNELS:
        raise ValueError(f"numbers must be a list of at most {MAX_CHANNELS}")
    return [_number(value) for value in values]
