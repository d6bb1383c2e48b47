"""From a class capsule back down to the image: routing maps and parse trees.

The share of a slot in a parent is its strength over the sum of all strengths for that parent.
Shares multiply from layer to layer, so the relevance of all primary capsules for one class sums to
one. Connections that bypass a routing (the residual ones of Choi 2019) are not followed.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from torchcaps.analysis.outputs import evaluating
from torchcaps.analysis.subjects import Prepared
from torchcaps.analysis.trace import LayerTrace, trace
from torchcaps.models import Network


@dataclass(frozen=True, eq=False)
class RoutingMap:
    """Relevance of the image positions for a class capsule.

    Attributes:
        classes: ``[b]``, one class for each image.
        relevance: ``[b h w]``, share of each position of the primary grid; sums to one.
        pixels: ``[b height width]``, the same interpolated between the centers of the receptive
            fields, with maximum 1.
    """

    classes: Tensor
    relevance: Tensor
    pixels: Tensor


class Node(NamedTuple):
    """A capsule of a parse tree.

    Attributes:
        level: 0 for the class capsule, 1 for the layer below it.
        position: row and column on its layer's grid.
        kind: its type at that position; the class for a class capsule.
        relevance: its share in the class capsule, along this branch.
        share: its share in its parent.
        coupling: largest coupling to its parent among its slots; 1 for the root.
        present: its activation or length.
        parent: index of its parent's node; -1 for the root.
        pixel: row and column of the image for a primary capsule, else None.
    """

    level: int
    position: tuple[int, int]
    kind: int
    relevance: float
    share: float
    coupling: float
    present: float
    parent: int
    pixel: tuple[float, float] | None


class ParseTree(NamedTuple):
    """The strongest branches under the class capsules of one image, roots first.

    ``layers`` names the levels from the class capsules down to the primary capsules.
    """

    nodes: tuple[Node, ...]
    layers: tuple[str, ...]


class Axis(NamedTuple):
    """Centers of the receptive fields along one side of the image."""

    start: float
    step: float


def routing_map(network: Network, images: Tensor, classes: Tensor) -> RoutingMap:
    """Follow the class capsules of ``classes`` ``[b]`` down to the image."""
    layers = trace(network, images)
    b = len(images)
    relevance = images.new_zeros(b, _count(layers[-1].above))
    relevance[torch.arange(b, device=images.device), classes] = 1
    for layer in reversed(layers):
        relevance = _down(layer, relevance)
    below = layers[0].below
    grid = relevance.reshape(b, *below).sum(dim=-1)
    rows, columns = receptive_fields(network, images[:1], below[:2])
    return RoutingMap(classes, grid, _on_image(grid, rows, columns, images.shape[-2:]))


def parse_tree(
    network: Network, image: Tensor, *, classes: tuple[int, ...] | None = None, branches: int = 3
) -> ParseTree:
    """Follow the strongest children of each capsule down to the primary capsules.

    Args:
        network: a network with capsules.
        image: ``[1 c h w]``.
        classes: roots of the tree; None takes the class with the highest score.
        branches: children of each capsule; three times as many on the last level.
    """
    if len(image) != 1:
        raise ValueError(f"a parse tree is of one image [1 c h w], not {list(image.shape)}")
    layers = trace(network, image)
    if classes is None:
        with evaluating(network):
            classes = (int(network(image).scores.argmax()),)
    rows, columns = receptive_fields(network, image, layers[0].below[:2])
    nodes = [
        Node(0, (0, 0), kind, 1.0, 1.0, 1.0, float(layers[-1].present[0, kind]), -1, None)
        for kind in classes
    ]
    first = 0
    for level, layer in enumerate(reversed(layers), start=1):
        last_level = level == len(layers)
        stop = len(nodes)
        for parent in range(first, stop):
            for node in _children(layer, nodes[parent], branches * (3 if last_level else 1)):
                y, x = node.position
                center = rows.start + rows.step * y, columns.start + columns.step * x
                pixel = center if last_level else None
                nodes.append(node._replace(level=level, parent=parent, pixel=pixel))
        first = stop
    return ParseTree(tuple(nodes), (*(layer.name for layer in reversed(layers)), "primary"))


def _children(layer: LayerTrace, parent: Node, count: int) -> list[Node]:
    """Return the children with the largest shares in one parent of image 0."""
    h, w, _ = layer.above
    y, x = parent.position
    cell = y * w + x if h * w > 1 else 0
    strength = layer.strength[0, cell, :, parent.kind]
    child = layer.child[cell]
    total = strength.new_zeros(_count(layer.below)).index_add(
        0, child.clamp_min(0), torch.where(child >= 0, strength, 0)
    )
    shares = total / total.sum().clamp_min(1e-30)
    nodes = []
    for index in shares.topk(min(count, len(shares))).indices.tolist():
        share = float(shares[index])
        if share <= 0:
            continue
        slots = (child == index).nonzero()[:, 0]
        couplings = layer.couplings[-1][0, cell]
        # the slots of a convolutional transform are (i k): k of them share a coupling
        rows = slots * len(couplings) // len(child)
        types = layer.below[2]
        position = index // types // layer.below[1], index // types % layer.below[1]
        nodes.append(
            Node(
                0,
                position,
                index % types,
                share * parent.relevance,
                share,
                float(couplings[rows, parent.kind].max()),
                float(layer.present_below[0, index]),
                0,
                None,
            )
        )
    return nodes


def _down(layer: LayerTrace, relevance: Tensor) -> Tensor:
    """Return the relevance of the children ``[b n]``, from that of the parents ``[b m]``."""
    b, p, s, j = layer.strength.shape
    strength = torch.where((layer.child >= 0)[None, :, :, None], layer.strength, 0)
    shares = strength / strength.sum(dim=2, keepdim=True).clamp_min(1e-30)
    slots = torch.einsum("bpsj,bpj->bps", shares, relevance.reshape(b, p, j))
    index = layer.child.clamp_min(0).reshape(1, p * s).expand(b, -1)
    below = relevance.new_zeros(b, _count(layer.below))
    return below.scatter_add(1, index, slots.reshape(b, p * s))


def _count(grid: tuple[int, int, int]) -> int:
    return grid[0] * grid[1] * grid[2]


def receptive_fields(network: Network, image: Tensor, grid: tuple[int, int]) -> tuple[Axis, Axis]:
    """Return the centers of the receptive fields of a grid of features, in pixels.

    Convolutions and poolings are identified by the sizes of their input and output: maps of one
    size share one grid, so shortcuts of residual blocks change nothing. The grid starts where
    `CenterCrop` cuts the image.
    """
    height, width = _size(network.prepare(image) if isinstance(network, Prepared) else image)
    top, left = (image.shape[-2] - height) // 2, (image.shape[-1] - width) // 2
    known: dict[tuple[int, int], tuple[Axis, Axis]] = {
        (height, width): (Axis(top, 1.0), Axis(left, 1.0))
    }

    def follow(module: nn.Module, inputs: tuple[Tensor, ...], result: Tensor) -> None:
        before, after = _size(inputs[0]), _size(result)
        if before not in known or after in known:
            return
        assert isinstance(module, nn.Conv2d | nn.MaxPool2d | nn.AvgPool2d)
        axes = [
            _step(axis, _side(module.kernel_size, n), _side(module.stride, n), _pad(module, n))
            for n, axis in enumerate(known[before])
        ]
        known[after] = (axes[0], axes[1])

    kinds = (nn.Conv2d, nn.MaxPool2d, nn.AvgPool2d)
    handles = [m.register_forward_hook(follow) for m in network.modules() if isinstance(m, kinds)]
    try:
        with evaluating(network):
            network(image)
    finally:
        for handle in handles:
            handle.remove()
    if grid in known:
        return known[grid]
    return (
        Axis(top + (height / grid[0] - 1) / 2, height / grid[0]),
        Axis(left + (width / grid[1] - 1) / 2, width / grid[1]),
    )


def _size(features: Tensor) -> tuple[int, int]:
    return features.shape[-2], features.shape[-1]


def _side(value: int | tuple[int, ...], side: int) -> int:
    return value if isinstance(value, int) else value[side]


def _pad(module: nn.Conv2d | nn.MaxPool2d | nn.AvgPool2d, side: int) -> int:
    if isinstance(module.padding, str):
        return (_side(module.kernel_size, side) - 1) // 2 if module.padding == "same" else 0
    return _side(module.padding, side)


def _step(axis: Axis, kernel: int, stride: int, padding: int) -> Axis:
    return Axis(axis.start + axis.step * ((kernel - 1) / 2 - padding), axis.step * stride)


def _on_image(grid: Tensor, rows: Axis, columns: Axis, size: tuple[int, ...]) -> Tensor:
    """Interpolate ``[b h w]`` between the centers; zero beyond half a step around them."""
    h, w = grid.shape[1:]
    y = (torch.arange(size[0], device=grid.device) - rows.start) / rows.step
    x = (torch.arange(size[1], device=grid.device) - columns.start) / columns.step
    y, x = ((2 * y + 1) / h - 1).to(grid.dtype), ((2 * x + 1) / w - 1).to(grid.dtype)
    places = torch.stack(torch.meshgrid(x, y, indexing="xy"), -1)
    places = places.expand(len(grid), *places.shape)
    pixels = functional.grid_sample(grid[:, None], places, align_corners=False)[:, 0]
    return pixels / pixels.amax(dim=(1, 2), keepdim=True).clamp_min(1e-30)
