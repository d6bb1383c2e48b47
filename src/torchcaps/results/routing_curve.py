"""What routing did by epoch: one record per epoch, within the lines of ``metrics.jsonl``."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from torchcaps.results.typed_row import TypedRow

UNIFORM = 0.9995
"""Share of the largest entropy from which couplings count as uniform."""

ALIKE = 0.1
"""Activations count as alike if nine tenths of them lie within this share of their mean."""


@dataclass(frozen=True, kw_only=True)
class LayerRouting(TypedRow):
    """The couplings and activations of one capsule layer, over a fixed batch of images.

    Attributes:
        layer: name of the layer's module.
        entropy: mean entropy of the couplings in nats; None where nothing competes.
        uniform_entropy: entropy of uniform couplings in nats.
        mean: mean activation of the parents.
        std: standard deviation of the activations.
        low: their 5th percentile.
        high: their 95th percentile.
        dead: share of the parents that never exceed 1 % of the layer's largest activation.
        saturated: share of the parents that always exceed 99 % of it.
        pose_changes: mean absolute change of an entry of a parent's pose from each routing
            iteration to the next; empty where routing does not iterate.
    """

    TITLE: ClassVar[str] = "the routing of a layer"

    layer: str
    entropy: float | None = None
    uniform_entropy: float | None = None
    mean: float
    std: float
    low: float
    high: float
    dead: float
    saturated: float
    pose_changes: tuple[float, ...] = ()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build a layer's record from plain data, also without the changes of poses."""
        changes = tuple(float(change) for change in values.get("pose_changes", ()))
        return super().from_dict({**values, "pose_changes": changes})

    @property
    def entropy_share(self) -> float | None:
        """Entropy relative to uniform couplings (1 is uniform, 0 a choice of one competitor)."""
        if self.entropy is None or not self.uniform_entropy:
            return None
        return self.entropy / self.uniform_entropy


@dataclass(frozen=True)
class RoutingPoint:
    """The routing of a network after an epoch.

    Attributes:
        epoch: number of the epoch, from 1.
        images: number of images it was measured on.
        changed: percentage of predictions that change under uniform couplings; None where no
            layer's couplings can be uniform.
        layers: the capsule layers, in the order in which they run.
    """

    epoch: int
    images: int
    changed: float | None
    layers: tuple[LayerRouting, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain data, ready for JSON; the epoch is that of its line."""
        layers = [layer.to_dict() for layer in self.layers]
        return {"images": self.images, "changed": self.changed, "layers": layers}

    @classmethod
    def from_line(cls, line: str) -> Self | None:
        """Parse a line of ``metrics.jsonl``; None if it holds no routing."""
        try:
            values = json.loads(line)
            record: Mapping[str, Any] = values["routing"]
            layers = tuple(LayerRouting.from_dict(layer) for layer in record["layers"])
            changed = record["changed"]
            return cls(
                int(values["epoch"]),
                int(record["images"]),
                None if changed is None else float(changed),
                layers,
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None


def describe_routing(points: list[RoutingPoint]) -> list[str]:
    """Say in plain words whether routing decided anything in a run."""
    if not points:
        return []
    last = points[-1]
    sentences = []
    for number, layer in enumerate(last.layers, start=1):
        if (share := layer.entropy_share) is not None:
            shares = [
                other.entropy_share
                for point in points
                for other in point.layers
                if other.layer == layer.layer
            ]
            verb = "are not uniform"
            if share >= UNIFORM:
                always = all(one is None or one >= UNIFORM for one in shares)
                verb = "stayed uniform" if always else "became uniform"
            sentences.append(
                f"couplings of layer {number} {verb}: "
                f"entropy {layer.entropy:.4f} of {layer.uniform_entropy:.4f}"
            )
        if layer.high - layer.low < ALIKE * max(abs(layer.mean), 1e-9):
            sentences.append(
                f"activations of layer {number} hardly differ: {layer.mean:.3f} ± {layer.std:.3f}"
            )
    if last.changed is not None:
        sentences.append(
            f"uniform couplings change {last.changed:.1f} % of {last.images} predictions"
        )
    return sentences
