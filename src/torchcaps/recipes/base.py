"""A recipe: everything that decides a training run, and the number its paper prints for it."""

import dataclasses
import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from torchcaps.data import Transform
from torchcaps.errors import UsageError
from torchcaps.recipes.losses import Loss, cross_entropy
from torchcaps.recipes.schedules import Schedule, constant

__all__ = ["Measure", "Published", "Recipe", "Setting"]

Measure = Literal["top1", "top2", "threshold"]
"""When an image counts as right: the best class is its label; the two best are its two labels
(Sabour's MultiMNIST); the classes with a sigmoid above one half are its labels
(DiverseMultiMNIST)."""

Setting = bool | int | float | str | None


@dataclass(frozen=True)
class Published:
    """What a paper prints for a row.

    Attributes:
        where: table, figure or section.
        value: percent correct; None where the paper shows a curve or nothing.
        spread: standard deviation in percent, where it is printed.
        what: what was measured, such as "best test epoch, mean of 5 runs".
    """

    where: str
    value: float | None = None
    spread: float | None = None
    what: str = ""


@dataclass(frozen=True)
class Recipe:
    """A training run that is decided but for its seed; listing one changes nothing.

    Attributes:
        name: ``paper/dataset-variant``.
        network: name of the network, as :func:`torchcaps.build` knows it.
        dataset: name of the data set, as :func:`torchcaps.data.load` knows it.
        published: the paper's number.
        notes: what differs from the paper's text, and why.
        iterations: routing iterations; None leaves the network's own.
        train_transforms: what training images go through, in order.
        test_transforms: what validation and test images go through.
        resize: side images are resized to when they are loaded; 0 leaves them.
        test_dataset: another data set to score at the end, trained on none of it.
        test_draws: how often a test set made of digits, such as MultiMNIST's pairs, is drawn for
            its score: 10,000 pairs say 95 % to 0.2 (one standard error), ten times as many to 0.07.
        measure: when an image counts as right.
        loss: of scores, targets, step and label smoothing; see `torchcaps.recipes.losses`.
        label_smoothing: share of the target spread over all classes.
        reconstruction_weight: of the decoder's squared error; 0 trains no decoder.
        reconstruction: whether that error is summed or averaged over an image's pixels.
        optimizer: a class of `torch.optim`, or a partial of one.
        lr: learning rate the schedule multiplies.
        weight_decay: of every parameter.
        decay_all: also decay biases, norms and other vectors.
        schedule: factor of the learning rate by progress; see `torchcaps.recipes.schedules`.
        warmup: epochs in which the learning rate rises from 0, before anything else.
        epochs: passes over the training images.
        batch_size: images of one step, over all processes.
        norm_batch: images that batch normalization of feature maps takes its statistics over while
            it trains, as on one of a paper's GPUs; 0 for all that a process has of a batch.
        clip: largest norm of the gradient; 0 does not clip.
        average: decay of the exponential moving average of the weights that is evaluated; 0 for
            the weights themselves.
        coefficient_lr: of the ascent on discriminative routing's coefficients; 0 trains them with
            the weights.
        coefficient_optimizer: what takes those steps.
        coefficient_every: weight steps for each step on the coefficients.
        hold_out: choose the epoch on a held-out tenth of the training images; otherwise train on
            all of them and take the last epoch, but for a user's folder with nothing to score.
        ensemble: how many seeds the published number sums the scores of.
        precision: "float32", "bfloat16" (autocast) or "auto": bfloat16 on a GPU.
        channels_last: memory format of images and convolutions on a GPU.
        compile: compile the network.
        limit: train on the first so many images; 0 for all.
        test_limit: score the first so many validation and test images; 0 for all.
    """

    name: str
    network: str
    dataset: str
    published: Published
    notes: str = ""
    iterations: int | None = None
    train_transforms: tuple[Transform, ...] = ()
    test_transforms: tuple[Transform, ...] = ()
    resize: int = 0
    test_dataset: str = ""
    test_draws: int = 1
    measure: Measure = "top1"
    loss: Loss = cross_entropy
    label_smoothing: float = 0.0
    reconstruction_weight: float = 0.0
    reconstruction: Literal["sum", "mean"] = "sum"
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.Adam
    lr: float = 1e-3
    weight_decay: float = 0.0
    decay_all: bool = True
    schedule: Schedule = constant
    warmup: float = 0.0
    epochs: int = 10
    batch_size: int = 128
    norm_batch: int = 0
    clip: float = 0.0
    average: float = 0.0
    coefficient_lr: float = 0.0
    coefficient_optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.Adam
    coefficient_every: int = 1
    hold_out: bool = True
    ensemble: int = 1
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    channels_last: bool = True
    compile: bool = False
    limit: int = 0
    test_limit: int = 0
    changed: dict[str, Setting] = field(default_factory=dict, compare=False)
    """What :meth:`override` changed: a run with any of these is not the published row."""
    asked: frozenset[str] = field(default=frozenset(), compare=False)
    """What :meth:`override` was told, also where that is the recipe's own value."""

    def __post_init__(self) -> None:
        for key, (low, high) in RANGES.items():
            value = getattr(self, key)
            if value is not None and not low <= value <= high:
                limits = f"between {low:g} and {high:g}" if high < math.inf else f"at least {low:g}"
                raise UsageError(f"{key} must be {limits}, not {value}")
        if self.lr <= 0:
            raise UsageError(f"lr must be above 0, not {self.lr}")
        for key, allowed in CHOICES.items():
            if getattr(self, key) not in allowed:
                names = ", ".join(allowed)
                raise UsageError(f"{key} must be one of {names}, not {getattr(self, key)!r}")

    def variant(self, name: str, **changes: Any) -> "Recipe":
        """Another published row: this recipe under another name, with these fields changed."""
        return dataclasses.replace(self, name=name, **changes)

    def settings(self) -> dict[str, Setting]:
        """Every scalar of the recipe that a run may change, and its value."""
        return {key: getattr(self, key) for key in SETTABLE}

    def override(self, **changes: Setting) -> "Recipe":
        """The same recipe with other scalars; remembers which."""
        if unknown := [key for key in changes if key not in SETTABLE]:
            raise UsageError(_unknown(unknown[0]))
        checked = {key: _as_type(key, value) for key, value in changes.items()}
        kept = {key: value for key, value in checked.items() if getattr(self, key) != value}
        arguments: dict[str, Any] = {**kept, "changed": {**self.changed, **kept}}
        arguments["asked"] = self.asked.union(changes)
        return dataclasses.replace(self, **arguments)

    def parse(self, texts: list[str]) -> "Recipe":
        """Override from ``key=value`` texts, as the command line takes them."""
        changes: dict[str, Setting] = {}
        for text in texts:
            key, equals, value = text.partition("=")
            if not equals:
                raise UsageError(f"{text!r} must be key=value, such as epochs=5")
            if key not in SETTABLE:
                raise UsageError(_unknown(key))
            changes[key] = _from_text(key, value)
        return self.override(**changes)


RANGES: dict[str, tuple[float, float]] = {
    "iterations": (1, 100),
    "resize": (0, 4096),
    "test_draws": (1, 1000),
    "label_smoothing": (0, 0.999),
    "reconstruction_weight": (0, math.inf),
    "lr": (0, 1e6),
    "weight_decay": (0, 1e6),
    "warmup": (0, 1e6),
    "epochs": (1, 1_000_000),
    "batch_size": (1, 1_000_000),
    "norm_batch": (0, 1_000_000),
    "clip": (0, math.inf),
    "average": (0, 0.999999),
    "coefficient_lr": (0, 1e6),
    "coefficient_every": (1, 1_000_000),
    "ensemble": (1, 1000),
    "limit": (0, 1_000_000_000),
    "test_limit": (0, 1_000_000_000),
}
CHOICES: dict[str, tuple[str, ...]] = {
    "measure": ("top1", "top2", "threshold"),
    "reconstruction": ("sum", "mean"),
    "precision": ("auto", "float32", "bfloat16"),
}
SETTABLE: dict[str, type] = {
    "iterations": int,
    "resize": int,
    "test_draws": int,
    "label_smoothing": float,
    "reconstruction_weight": float,
    "lr": float,
    "weight_decay": float,
    "decay_all": bool,
    "warmup": float,
    "epochs": int,
    "batch_size": int,
    "norm_batch": int,
    "clip": float,
    "average": float,
    "coefficient_lr": float,
    "coefficient_every": int,
    "hold_out": bool,
    "precision": str,
    "channels_last": bool,
    "compile": bool,
    "limit": int,
    "test_limit": int,
}
"""What ``--set`` may change, and its type."""

_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}


def _unknown(key: str) -> str:
    near = difflib.get_close_matches(key, SETTABLE, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(SETTABLE)}"
    return f"a recipe has no setting {key!r}: {hint}"


def _from_text(key: str, text: str) -> Setting:
    """A setting's value as written on a command line."""
    kind = SETTABLE[key]
    if kind is bool:
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        if text.lower() not in words:
            raise UsageError(f"{key} must be true or false, not {text!r}")
        return words[text.lower()]
    if kind is str:
        return text
    try:
        return int(text) if kind is int else float(text)
    except ValueError:
        raise UsageError(f"{key} must be {_WORDS[kind]}, not {text!r}") from None


def _as_type(key: str, value: Setting) -> Setting:
    """The value, if it is of the setting's type."""
    kind = SETTABLE[key]
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise UsageError(f"{key} must be {_WORDS[kind]}, not {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{key} must be a finite number, not {value}")
    return value
