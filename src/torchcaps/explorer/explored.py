"""A trained network as the page asks for it: look at an image, draw a capsule."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.analysis.parse import receptive_fields
from torchcaps.analysis.perturbation import SHAPE, dimension_effects, perturbation, step_scale
from torchcaps.capsules import Capsules, Routed
from torchcaps.data import Batches, load
from torchcaps.errors import UsageError
from torchcaps.export.traced import Drawing, Traced
from torchcaps.layers import CapsuleLayer, Decoder
from torchcaps.models import Network

EFFECT_IMAGES = 6
"""Generated digits of a class from which the effect of a pose's numbers is measured."""

EFFECT_STEPS = torch.linspace(-0.1, 0.1, 5)
"""Changes small enough that the drawing stays a digit; multiplied like the sliders' range."""

NOTABLE = {
    "x": 0.5,
    "y": 0.5,
    "rotation": 6.0,
    "width": 1.0,
    "height": 1.0,
    "skew": 0.1,
    "thickness": 0.25,
}
"""A change of each quantity that one sees: pixels, degrees, or x per y."""

WORDS = {
    "x": ("moves left", "moves right"),
    "y": ("moves up", "moves down"),
    "rotation": ("turns right", "turns left"),
    "width": ("narrower", "wider"),
    "height": ("shorter", "taller"),
    "skew": ("leans left", "leans right"),
    "thickness": ("thinner", "thicker"),
}
"""How a quantity falls and rises."""


class Explored:
    """A network with the answers that the page shows.

    Args:
        network: a trained network with capsule layers that knows its preprocessing.
    """

    def __init__(self, network: Network) -> None:
        if network.predicts == "numbers":
            raise UsageError(f"{network.name} predicts numbers, and the page shows classes only")
        self.network = network.eval()
        self.traced = Traced(network)
        self.input_shape: tuple[int, ...] = self.traced.input_shape
        self.n_pixels = int(torch.tensor(self.input_shape).prod())
        self._layers = [m for m in network.modules() if isinstance(m, CapsuleLayer)]
        self.first_layer = self._layers[0]
        self._can_draw = any(isinstance(module, Decoder) for module in network.modules())
        self._drawing = Drawing(network) if self._can_draw else None
        self.effects = cache(self._effects)
        with torch.no_grad():
            rows, columns, types = self.traced.describe()["layers"][0]["below"]
        self.grid = (rows, columns)
        self.n_children: int = rows * columns * types

    def describe(self) -> dict[str, Any]:
        """Return what the page must know before it shows an image, as `json` can store it."""
        described = self.traced.describe()
        poses = described["outputs"].get("poses", [0, 0])
        with torch.no_grad():
            seen = self.traced.prepared(self.traced.example())
        cut = [(a - b) / 2 for a, b in zip(self.input_shape[1:], seen.shape[2:], strict=True)]
        fields = receptive_fields(self.network, seen, self.grid)
        return {
            **described,
            "classes": self.describe_classes(),
            "objects": self.network.n_objects,
            "parameters": self.network.n_parameters,
            "can_draw": self._can_draw,
            "softmax": self._is_unbounded(),
            "pose_step": step_scale(self.network, poses[1]),
            "fields": [
                {"start": axis.start + offset, "step": axis.step}
                for axis, offset in zip(fields, cut, strict=True)
            ],
            "n_children": self.n_children,
        }

    def look(self, pixels: Sequence[int], off: Sequence[int] = ()) -> dict[str, Tensor]:
        """Return the outputs of :class:`Traced` for one image, without the batch's axis.

        Args:
            pixels: 0 to 255, channels first, rows before columns.
            off: numbers of the primary capsules that are set to zero.
        """
        image = torch.tensor(pixels, dtype=torch.uint8).reshape(1, *self.input_shape)
        images = image.to(self.traced.example()) / 255
        keep = torch.ones(1, self.n_children, device=images.device)
        keep[0, list(off)] = 0
        with torch.no_grad(), only_children(self.first_layer, keep):
            outputs = self.traced(images)
        return {name: one[0] for name, one in outputs.items() if is_shown(name)}

    def draw(self, poses: Tensor, kind: int) -> Tensor:
        """Return the image ``[c h w]`` that the decoder draws from poses ``[n e]`` for a class."""
        if self._drawing is None:
            raise UsageError("this network has no decoder and draws nothing: choose another")
        shape = self._drawing.example()[0].shape[1:]
        if poses.shape != shape:
            raise UsageError(f"poses must be {list(shape)} numbers, not {list(poses.shape)}")
        with torch.no_grad():
            image: Tensor = self._drawing(poses[None], torch.tensor([kind]))[0]
        return image

    def _effects(self, kind: int) -> tuple[str, ...]:
        """Return in words what each number of a class's pose does to the drawing.

        Measured on generated digits; empty where the network draws no digits of this size.
        """
        if not self._can_draw or self.input_shape[0] != 1 or self.network.n_classes != 10:
            return ()
        images = _digits(kind, self.input_shape[1])
        classes = torch.full((len(images),), kind)
        steps = EFFECT_STEPS * step_scale(self.network, self.traced.output_shapes()["poses"][2])
        effects = dimension_effects(perturbation(self.network, images, classes, steps=steps))
        pairs = zip(effects.slope.tolist(), effects.correlation.tolist(), strict=True)
        return tuple(_in_words(slope, correlation) for slope, correlation in pairs)

    def describe_classes(self) -> list[str]:
        """Return the names of the classes by label."""
        names = self.network.class_names
        return [str(name) for name in (range(self.network.n_classes) if names is None else names)]

    def _is_unbounded(self) -> bool:
        """Return whether scores are logits, of which the page shows the softmax."""
        if self._layers[-1].routing.scores_by == "logit":
            return True
        with torch.no_grad():
            noise = torch.rand(4, *self.input_shape, generator=torch.Generator().manual_seed(0))
            scores = self.traced(noise.to(self.traced.example()))["scores"]
        return bool((scores < 0).any() or (scores > 1.001).any())


def is_shown(output: str) -> bool:
    """Return whether the page shows this output of :class:`Traced`."""
    return not output.endswith(".poses")


@contextmanager
def only_children(layer: nn.Module, keep: Tensor) -> Iterator[None]:
    """Multiply the children of a layer by ``keep`` ``[b i]`` while the context lasts."""

    def mask(_: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        children: Capsules | Routed = arguments[0]
        shape = children.poses.shape[:-1]
        present = children.activations
        return Capsules(
            children.poses * keep.reshape(*shape, 1),
            None if present is None else present * keep.reshape(shape),
        ), *arguments[1:]

    handle = layer.register_forward_pre_hook(mask)
    try:
        yield
    finally:
        handle.remove()


@cache
def _digits(kind: int, side: int) -> Tensor:
    """Return generated digits of one class ``[b 1 side side]`` in 0 to 1."""
    source = load("strokes", "test")
    batch = Batches(source, 40 * EFFECT_IMAGES, seed=0)
    images, labels = batch.batch(batch.order(0)[: 40 * EFFECT_IMAGES])[:2]
    digits = images[labels == kind][:EFFECT_IMAGES]
    margin = (side - digits.shape[-1]) // 2
    return nn.functional.pad(digits, (margin,) * 4)


def _in_words(slope: Sequence[float], correlation: Sequence[float]) -> str:
    """Say what a number does when its slider goes from left to right."""
    sizes = {
        name: abs(change) / NOTABLE[name] if abs(linear) > 0.3 else 0.0
        for name, change, linear in zip(SHAPE, slope, correlation, strict=True)
    }
    best = sorted(sizes, key=lambda name: -sizes[name])[:2]
    words = [WORDS[name][slope[SHAPE.index(name)] > 0] for name in best if sizes[name] >= 1]
    return ", ".join(words) or "details of the strokes"
