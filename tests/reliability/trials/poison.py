"""NaN and Inf put into the input, the logits, the loss or a gradient of one step of a run."""

import dataclasses
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from reliability.trials.runs import ROUTINGS, newest, prints, same
from torchcaps.capsules import Routed
from torchcaps.data import Batches, Draws
from torchcaps.data.augment import as_float
from torchcaps.models import Network, build
from torchcaps.recipes import Recipe, get
from torchcaps.train import CheckpointError, TrainingError, TrainOptions, train
from torchcaps.train.checkpoint.files import load_checkpoint
from torchcaps.train.images import load_sources

STEPS, EPOCHS, BATCH = 3, 2, 8
VALUES = (torch.nan, torch.inf, -torch.inf)
NOWHERE = -1


def trials(first: int, count: int) -> Iterator[str]:
    """Every place and value for every routing, at changing steps."""
    for number in range(first, first + count):
        rest, which = divmod(number, len(ROUTINGS))
        routing, turn = ROUTINGS[which], rest + which
        place = list(PLACES)[turn % len(PLACES)]
        value = VALUES[turn % len(VALUES)]
        at = number % (STEPS * EPOCHS)
        with tempfile.TemporaryDirectory(prefix="torchcaps-poison-") as name:
            try:
                poisoned(routing, place, value, at, Path(name) / "run")
                yield ""
            except (AssertionError, CheckpointError) as error:
                yield f"poison {number}, {routing}, {place} {value} at step {at + 1}: {error}"


@dataclasses.dataclass(frozen=True)
class Marked:
    """A transform that spoils one image, or none."""

    sample: int
    value: float

    def __call__(self, images: Tensor, draws: Draws) -> Tensor:
        images = as_float(images.clone())
        images[draws.samples == self.sample, 0, 3, 3] = self.value
        return images


def plain(routing: str) -> Recipe:
    recipe = get(f"demo/strokes-{routing}").override(
        limit=BATCH * STEPS, test_limit=16, batch_size=BATCH, epochs=EPOCHS
    )
    return dataclasses.replace(recipe, train_transforms=(Marked(NOWHERE, 0.0),))


@cache
def unspoilt(routing: str) -> tuple[tuple[str, ...], dict[int, dict[str, Tensor]]]:
    """What a run ends with, and its weights after every step."""
    with tempfile.TemporaryDirectory(prefix="torchcaps-unspoilt-") as name:
        out = Path(name) / "run"
        run(plain(routing), out, keep=100)
        steps = {
            step: load_checkpoint(out / "checkpoints" / f"step-{step:08d}").model
            for step in range(1, STEPS * EPOCHS + 1)
        }
        return prints(out), steps


def run(recipe: Recipe, out: Path, *, keep: int = 2) -> None:
    train(recipe, TrainOptions(out=out, device="cpu", tensorboard=False, save_every=0.0, keep=keep))


def poisoned(routing: str, place: str, value: float, at: int, out: Path) -> None:
    """Assert that a run stops before the step, says where, and goes on once the cause is gone."""
    final, steps = unspoilt(routing)
    recipe = plain(routing)
    told = PLACES[place](recipe, value, at, lambda changed: run(changed, out))
    words = {
        "input": "the images of that batch",
        "logits": "the output of layer classes (",
        "loss": "the loss is not",
        "gradient": "the gradient of primary",
    }
    assert f"at step {at + 1} " in told, f"the step is not named: {told}"
    assert words[place] in told, f"the place is not named: {told}"
    assert "\n" not in told, f"more than a sentence: {told}"
    last = newest(out)
    if at:
        assert last is not None
        assert last.step == at, f"the last checkpoint is of step {last.step}"
        assert f"step-{at:08d}" in told, f"the last good checkpoint is not named: {told}"
        for key, tensor in steps[at].items():
            assert torch.equal(last.model[key], tensor), f"{key} was changed by the bad step"
    else:
        assert last is None, "a step that was not finite was saved"
    run(recipe, out)
    same(prints(out), final)


Run = Callable[[Recipe], None]


def refused(go: Callable[[], None]) -> str:
    """What a run says when it stops."""
    try:
        go()
    except TrainingError as error:
        return str(error)
    raise AssertionError("the run did not stop")


def spoil_input(recipe: Recipe, value: float, at: int, go: Run) -> str:
    source = load_sources(recipe, root=None, own_folder=None, device=torch.device("cpu")).train
    batches = Batches(source, BATCH, seed=0, drop_last=True)
    epoch, place = divmod(at, STEPS)
    sample = int(batches.order(epoch)[place * BATCH + at % BATCH])
    # the other epoch sees the same image: spoil it in its own epoch only
    marked = Spoilt(sample, value, at)
    return refused(lambda: go(dataclasses.replace(recipe, train_transforms=(marked,))))


@dataclasses.dataclass
class Spoilt:
    """Spoils a sample in the epoch of one step."""

    sample: int
    value: float
    at: int
    seen: int = 0

    def __call__(self, images: Tensor, draws: Draws) -> Tensor:
        here = bool((draws.samples == self.sample).any())
        self.seen += here
        due = self.seen > self.at // STEPS
        return Marked(self.sample if here and due else NOWHERE, self.value)(images, draws)


def spoil_loss(recipe: Recipe, value: float, at: int, go: Run) -> str:
    def loss(
        scores: Tensor, targets: Tensor, *, step: Tensor, share: Tensor, smoothing: float
    ) -> Tensor:
        found = recipe.loss(scores, targets, step=step, share=share, smoothing=smoothing)
        return found + (value if spoils.due else 0.0)

    spoils = Spoils(at)
    with spoils.watching():
        return refused(lambda: go(dataclasses.replace(recipe, loss=loss)))


def spoil_logits(recipe: Recipe, value: float, at: int, go: Run) -> str:
    spoils = Spoils(at)

    def change(module: object, arguments: object, routed: Routed) -> Routed | None:
        if not spoils.due:
            return None
        poses = routed.poses.clone(memory_format=torch.contiguous_format)
        activations = routed.activations.clone(memory_format=torch.contiguous_format)
        poses.view(-1)[0] = value
        activations.view(-1)[0] = value
        return Routed(poses, activations, routed.couplings)

    def attach(network: Any) -> None:
        network.classes.register_forward_hook(change)

    with spoils.watching(attach):
        return refused(lambda: go(recipe))


def spoil_gradient(recipe: Recipe, value: float, at: int, go: Run) -> str:
    spoils = Spoils(at)

    def change(gradient: Tensor) -> Tensor:
        if not spoils.due:
            return gradient
        gradient = gradient.clone(memory_format=torch.contiguous_format)
        gradient.view(-1)[0] = value
        return gradient

    def attach(network: Any) -> None:
        next(network.primary.parameters()).register_hook(change)

    with spoils.watching(attach):
        return refused(lambda: go(recipe))


class Spoils:
    """Counts the training steps of the network that a run builds, and spoils from one on."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.steps = 0

    @property
    def due(self) -> bool:
        return self.steps > self.at

    def watching(self, attach: Callable[[Any], None] = lambda network: None) -> Any:
        def watched(*arguments: Any, **options: Any) -> Network:
            network = build(*arguments, **options)
            network.register_forward_pre_hook(self._count)
            attach(network)
            return network

        return patch("torchcaps.train.building.build", watched)

    def _count(self, network: torch.nn.Module, arguments: object) -> None:
        self.steps += network.training


PLACES: dict[str, Callable[[Recipe, float, int, Run], str]] = {
    "input": spoil_input,
    "logits": spoil_logits,
    "loss": spoil_loss,
    "gradient": spoil_gradient,
}
