"""A recipe: everything that determines a training run, and the number its paper prints."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin

import torch

from torchcaps.data import Transform
from torchcaps.errors import UsageError, suggest
from torchcaps.recipes.losses import Loss, cross_entropy
from torchcaps.recipes.schedules import Schedule, constant

Measure = Literal["top1", "top2", "threshold", "r2"]
"""When an image is classified correctly, or how well numbers are predicted.

- "top1": the best class is its label.
- "top2": the two best classes are its two labels (Sabour's MultiMNIST).
- "threshold": its labels are the classes with a sigmoid above one half (DiverseMultiMNIST).
- "r2": the coefficient of determination in place of an accuracy: R² = 1 - squared error / variance,
  its mean over the numbers, in percent. A negative mean counts as 0.
"""

Setting = bool | int | float | str | None

T = TypeVar("T")


def setting(
    default: T, low: float = -math.inf, high: float = math.inf, *, settable: bool = True
) -> T:
    """Declare a field with its default and its range; ``--set`` may change it if ``settable``."""
    metadata: dict[str, Any] = {"settable": settable}
    if low > -math.inf:
        metadata["range"] = (low, high)
    declared: T = field(default=default, metadata=metadata)
    return declared


@dataclass(frozen=True)
class Published:
    """The number that a paper prints.

    Attributes:
        where: table, figure or section.
        value: accuracy in percent; None where the paper shows a curve or nothing.
        spread: standard deviation in percent, where it is printed.
        what: what was measured, such as "best test epoch, mean of 5 runs".
        is_row: whether a paper or its authors have this very row. False for controls, and for rows
            that are scored on other images than the paper's.
    """

    where: str
    value: float | None = None
    spread: float | None = None
    what: str = ""
    is_row: bool = True

    @property
    def is_best_epoch(self) -> bool:
        """Return whether the number is that of the best test epoch."""
        return self.what.startswith("best")


@dataclass(frozen=True)
class Recipe:
    """A training run, determined except for its seed.

    Attributes:
        name: ``paper/dataset-variant``.
        network: name of the network, as :func:`torchcaps.build` knows it.
        dataset: name of the data set, as :func:`torchcaps.data.load` knows it.
        published: the paper's number.
        notes: what differs from the paper's text, and why.
        iterations: routing iterations; None keeps the network's own number.
        train_transforms: transforms of the training images, in order.
        test_transforms: transforms of the validation and test images, in order.
        resize: side length to which images are resized when they are loaded; 0 keeps their size.
        shift: largest shift in pixels of each digit of MultiMNIST or expanded MNIST; None keeps the
            set's own, 4 and 6. For MultiMNIST the code of Sabour 2017 has 6.
        test_dataset: another data set for the test score, never trained on.
        validation_dataset: another data set whose validation split chooses the epoch; training then
            takes all images of ``dataset``.
        test_draws: how often a generated test set, such as MultiMNIST's pairs, is drawn for its
            score. One draw of 10,000 pairs has a standard error of 0.2 points at 95 %, ten draws
            have 0.07.
        measure: when an image is classified correctly; "r2" for a recipe with ``targets``.
        targets: annotation of the data set whose numbers are predicted, such as "pose" of strokes;
            empty for the labels.
        loss: function of scores, targets, step and label smoothing; see `torchcaps.recipes.losses`.
        label_smoothing: share of the target that is spread over all classes.
        reconstruction_weight: weight of the decoder's squared error; 0 trains no decoder.
        reconstruction: sum or mean of that error over the pixels of an image.
        optimizer: a class of `torch.optim`, or a partial of one.
        lr: learning rate, multiplied by the schedule.
        weight_decay: weight decay of every parameter.
        decay_all: also decay biases, norms and other vectors.
        decay_votes: also decay the weights of votes. Where a norm hides their size from the loss,
            decay shrinks them until agreements vanish and couplings are uniform.
        schedule: factor of the learning rate by progress; see `torchcaps.recipes.schedules`.
        warmup: epochs in which the learning rate first rises from 0.
        epochs: passes over the training images.
        batch_size: images per step, over all processes.
        norm_batch: images over which batch normalization of feature maps computes its statistics
            in training, as on one of a paper's GPUs; 0 for the whole batch of a process.
        clip: largest norm of the gradient; 0 does not clip.
        average: decay of the exponential moving average of the weights that is evaluated; 0
            evaluates the weights themselves.
        coefficient_lr: learning rate of the ascent on discriminative routing's coefficients; 0
            trains them with the weights.
        coefficient_optimizer: optimizer of the ascent.
        coefficient_penalty: lambda of discriminative routing's objective; None keeps the network's.
        coefficient_every: weight steps per step on the coefficients.
        hold_out: choose the epoch on a held-out tenth of the training images. Otherwise train on
            all of them and take the last epoch, except for a user's folder without test images.
        stop_at: validation accuracy in percent at which training ends before its last epoch; 0
            trains all epochs.
        ensemble: number of seeds whose scores the published number sums.
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
    iterations: int | None = setting(None, 1, 100)
    train_transforms: tuple[Transform, ...] = ()
    test_transforms: tuple[Transform, ...] = ()
    resize: int = setting(0, 0, 4096)
    shift: int | None = setting(None, 0, 100)
    test_dataset: str = ""
    validation_dataset: str = ""
    test_draws: int = setting(1, 1, 1000)
    measure: Measure = "top1"
    targets: str = ""
    loss: Loss = cross_entropy
    label_smoothing: float = setting(0.0, 0, 0.999)
    reconstruction_weight: float = setting(0.0, 0)
    reconstruction: Literal["sum", "mean"] = "sum"
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.Adam
    lr: float = setting(1e-3, 0, 1e6)
    weight_decay: float = setting(0.0, 0, 1e6)
    decay_all: bool = setting(True)
    decay_votes: bool = setting(True)
    schedule: Schedule = constant
    warmup: float = setting(0.0, 0, 1e6)
    epochs: int = setting(10, 1, 1_000_000)
    batch_size: int = setting(128, 1, 1_000_000)
    norm_batch: int = setting(0, 0, 1_000_000)
    clip: float = setting(0.0, 0)
    average: float = setting(0.0, 0, 0.999999)
    coefficient_lr: float = setting(0.0, 0, 1e6)
    coefficient_optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.Adam
    coefficient_penalty: float | None = setting(None, 0, 1e9)
    coefficient_every: int = setting(1, 1, 1_000_000)
    hold_out: bool = setting(True)
    stop_at: float = setting(0.0, 0, 100)
    ensemble: int = setting(1, 1, 1000, settable=False)
    precision: Literal["auto", "float32", "bfloat16"] = setting("auto")
    channels_last: bool = setting(True)
    compile: bool = setting(False)
    limit: int = setting(0, 0, 1_000_000_000)
    test_limit: int = setting(0, 0, 1_000_000_000)
    changed: dict[str, Setting] = field(default_factory=dict, compare=False)
    """The settings that :meth:`override` changed; such a run is not the published row."""
    overridden: frozenset[str] = field(default=frozenset(), compare=False)
    """The settings passed to :meth:`override`, whether they changed or not."""

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
        if bool(self.targets) != (self.measure == "r2"):
            raise UsageError(
                "a recipe that predicts numbers names their annotation with targets and has the "
                f"measure 'r2': {self.name} has {self.targets!r} and {self.measure!r}"
            )

    def variant(self, name: str, **changes: Any) -> "Recipe":
        """Return this recipe under another name, with these fields changed."""
        return dataclasses.replace(self, name=name, **changes)

    def settings(self) -> dict[str, Setting]:
        """Return every setting that a run may change, and its value."""
        return {key: getattr(self, key) for key in SETTABLE}

    def override(self, **changes: Setting) -> "Recipe":
        """Return this recipe with other settings; it records which ones changed."""
        if unknown := [key for key in changes if key not in SETTABLE]:
            raise UsageError(_unknown(unknown[0]))
        values = {key: _as_type(key, value) for key, value in changes.items()}
        changed = {key: value for key, value in values.items() if getattr(self, key) != value}
        arguments: dict[str, Any] = {**changed, "changed": {**self.changed, **changed}}
        return dataclasses.replace(self, **arguments, overridden=self.overridden.union(values))

    def parse(self, texts: list[str]) -> "Recipe":
        """Override settings from ``key=value`` texts, as the command line takes them."""
        changes: dict[str, Setting] = {}
        for text in texts:
            key, equals, value = text.partition("=")
            if not equals:
                raise UsageError(f"{text!r} must be key=value, such as epochs=5")
            if key not in SETTABLE:
                raise UsageError(_unknown(key))
            changes[key] = _from_text(key, value)
        return self.override(**changes)


def _kind(annotation: Any) -> type:
    """Return the type of a setting: int of ``int | None``, str of a Literal of strings."""
    kinds = [kind for kind in get_args(annotation) or (annotation,) if kind is not NoneType]
    return kinds[0] if isinstance(kinds[0], type) else type(kinds[0])


_FIELDS = dataclasses.fields(Recipe)

SETTABLE: dict[str, type] = {f.name: _kind(f.type) for f in _FIELDS if f.metadata.get("settable")}
"""The settings that ``--set`` may change, and their types."""

RANGES: dict[str, tuple[float, float]] = {
    f.name: f.metadata["range"] for f in _FIELDS if "range" in f.metadata
}
CHOICES: dict[str, tuple[str, ...]] = {
    f.name: get_args(f.type) for f in _FIELDS if get_origin(f.type) is Literal
}

_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}


def _unknown(key: str) -> str:
    return f"a recipe has no setting {key!r}: {suggest(key, SETTABLE)}"


def _from_text(key: str, text: str) -> Setting:
    """Return the value of a setting as written on a command line."""
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
    """Return the value if it has the type of the setting."""
    kind = SETTABLE[key]
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise UsageError(f"{key} must be {_WORDS[kind]}, not {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{key} must be a finite number, not {value}")
    return value
