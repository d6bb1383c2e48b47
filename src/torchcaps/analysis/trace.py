"""Votes, couplings and strengths of every capsule layer of a network, recorded by hooks.

The hooks see any network built from this package's capsule layers, a user's own included, and
change nothing in it.

Axes beside the usual ones: p positions of a sliding layer (1 for the others), s slots, the children
one position sees.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from torchcaps.analysis.outputs import evaluating
from torchcaps.capsules import Capsules, Output, Routed
from torchcaps.errors import InputError
from torchcaps.functional import lengths
from torchcaps.layers import CapsuleLayer, ClassCapsules, ConvCapsules, ConvTransformCapsules
from torchcaps.models import AttentionCapsNet, Network
from torchcaps.routing.base import Routing
from torchcaps.tensors import windows
from torchcaps.votes import Votes

Grid = tuple[int, int, int]
"""Height, width and types; capsules in a row are a grid of 1x1."""


class Call(NamedTuple):
    """One call of one capsule layer.

    ``children`` are those of the layer; ``arguments`` are the children, votes and parents that its
    routing got, positions folded into the batch.
    """

    name: str
    layer: CapsuleLayer
    children: Capsules
    arguments: tuple[Capsules, Votes | Tensor, Tensor | None]
    routed: Routed


@dataclass(frozen=True, eq=False)
class LayerTrace:
    """One capsule layer as it processes some images.

    Attributes:
        name: name of the layer's module.
        routing: name of its routing.
        competes_over: the axis over which its couplings sum to one.
        competition: "window" if they do at every position, "image" if those of a child do over all
            positions that see it (EM routing in a convolution).
        below: grid of the children.
        above: grid of the parents.
        couplings: ``[b p i j]`` of every iteration.
        logits: ``[b p i j]`` behind each iteration's couplings: b of dynamic routing. For EM and
            inverted attention they are the logarithm of the couplings less its mean over the
            parents of a position, which is all that a softmax sees. Empty for routings that do not
            iterate.
        strength: ``[b p s j]``: how much slot s gave to parent j in the last iteration, the
            length of its vote times its coupling and its activation; negative couplings give 0.
        child: ``[p s]``, the child in each slot, counted over ``below``; -1 is padding.
        present_below: ``[b n]``, activations of the children, or lengths where they have none.
        present: ``[b m]``, activations of the parents.
        poses: ``[b p j e]`` of the parents after every iteration.
        activations: ``[b p j]`` of the parents after every iteration.
    """

    name: str
    routing: str
    competes_over: str
    competition: str
    below: Grid
    above: Grid
    couplings: tuple[Tensor, ...]
    logits: tuple[Tensor, ...]
    strength: Tensor
    child: Tensor
    present_below: Tensor
    present: Tensor
    poses: tuple[Tensor, ...]
    activations: tuple[Tensor, ...]


def record(network: Network, images: Tensor) -> tuple[Output, list[Call]]:
    """Return the network's output, and every call of a capsule layer on the way to it."""
    calls: list[Call] = []
    routed: list[tuple[Capsules, Votes | Tensor, Tensor | None]] = []
    handles: list[RemovableHandle] = []

    def at_layer(name: str, layer: CapsuleLayer) -> None:
        def keep(_: nn.Module, inputs: tuple[object, ...], result: object) -> None:
            children = inputs[0]
            if isinstance(children, Capsules | Routed) and isinstance(result, Routed):
                below = Capsules(children.poses, children.activations)
                calls.append(Call(name, layer, below, routed.pop(), result))

        handles.append(layer.register_forward_hook(keep))

    def at_routing(_: nn.Module, inputs: tuple[object, ...], result: object) -> None:
        children, votes, parents = (*inputs, None)[:3]
        assert isinstance(children, Capsules)
        assert isinstance(votes, Votes | Tensor)
        assert parents is None or isinstance(parents, Tensor)
        routed.append((children, votes, parents))

    for name, module in network.named_modules():
        if isinstance(module, CapsuleLayer):
            at_layer(name.removeprefix("network."), module)  # behind its transforms
        if isinstance(module, Routing):
            handles.append(module.register_forward_hook(at_routing))
    try:
        with evaluating(network):
            output: Output = network(images, couplings=True)
    finally:
        for handle in handles:
            handle.remove()
    return output, calls


def trace(
    network: Network, images: Tensor, *, iterations: int | None = None
) -> tuple[LayerTrace, ...]:
    """Return every capsule layer, from the first to the last, as it processes the images.

    Args:
        network: with at least one capsule layer.
        images: ``[b c h w]``; a few dozen, as every vote is cast.
        iterations: how many routing iterations to show; None shows those the network was built
            with. Where layers iterate on their own, the layer below stays as it was built; where
            all iterate at once (Tsai 2020), all take so many.
    """
    return trace_output(network, images, iterations=iterations)[1]


def trace_output(
    network: Network, images: Tensor, *, iterations: int | None = None
) -> tuple[Output, tuple[LayerTrace, ...]]:
    """Return the network's output together with :func:`trace` of its layers."""
    networks = [m for m in network.modules() if isinstance(m, AttentionCapsNet)]
    with ExitStack() as stack:
        for module in networks:
            if iterations is not None and module.takes_parents:
                stack.callback(setattr, module, "iterations", module.iterations)
                module.iterations = iterations
        output, calls = record(network, images)
    if not calls:
        raise InputError(f"{network.name or type(network).__name__} has no capsule layers")
    names = dict.fromkeys(call.name for call in calls)
    by_layer = [[call for call in calls if call.name == name] for name in names]
    with evaluating(network):
        return output, tuple(_layer(group, iterations) for group in by_layer)


def _layer(calls: Sequence[Call], iterations: int | None) -> LayerTrace:
    last = calls[-1]
    routing = last.layer.routing
    below, above = _grid(last.children.poses), _grid(last.routed.poses)
    steps = _iterations(calls, iterations)
    couplings, logits = _couplings(last, steps)
    strength, child = _strength(last, below)
    children, parents = last.children, last.routed
    present = lengths(children.poses) if children.activations is None else children.activations
    return LayerTrace(
        name=last.name,
        routing=type(routing).__name__,
        competes_over=routing.competes_over,
        competition=last.layer.competition if isinstance(last.layer, ConvCapsules) else "window",
        below=below,
        above=above,
        couplings=tuple(one.detach() for one in couplings),
        logits=tuple(one.detach() for one in logits),
        strength=strength,
        child=child,
        present_below=present.flatten(1),
        present=parents.activations.flatten(1),
        poses=tuple(_parents(step.poses, last, 2).detach() for step in steps),
        activations=tuple(_parents(step.activations, last, 1).detach() for step in steps),
    )


def _grid(poses: Tensor) -> Grid:
    if poses.dim() == 3:
        return 1, 1, poses.shape[1]
    return poses.shape[1], poses.shape[2], poses.shape[3]


def _by_position(tensor: Tensor, call: Call) -> Tensor:
    """Return a result of a routing, ``[(b p) i j]``, with positions apart: ``[b p i j]``."""
    b = call.children.poses.shape[0]
    if isinstance(call.layer, ClassCapsules) and call.layer.local:
        return tensor.reshape(b, 1, -1, tensor.shape[-1])
    return tensor.reshape(b, -1, *tensor.shape[1:])


def _parents(tensor: Tensor, call: Call, axes: int) -> Tensor:
    """Return a result for parents, whose own axes are the last ones, as ``[b p ...]``."""
    b, parent_axes = call.children.poses.shape[0], tensor.shape[-axes:]
    by_position = tensor.reshape(b, -1, *parent_axes)
    if isinstance(call.layer, ClassCapsules) and call.layer.local:
        return by_position.mean(dim=1, keepdim=True)
    return by_position


def _iterations(calls: Sequence[Call], iterations: int | None) -> Sequence[Routed]:
    """Return the result of every iteration; couplings have one axis before children at most."""
    last = calls[-1]
    routing = last.layer.routing
    if routing.iterations is None:
        return [last.routed]
    if len(calls) > 1:
        routed = [call.routed for call in calls]
        return [step._replace(couplings=_folded(step.couplings)) for step in routed]
    return _replay(routing, last, iterations or routing.iterations)


def _couplings(
    last: Call, steps: Sequence[Routed]
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return couplings and logits of every iteration."""
    routing, b = last.layer.routing, last.children.poses.shape[0]
    _, votes, _ = last.arguments
    if routing.iterations is None:
        return (last.routed.couplings.reshape(b, -1, *last.routed.couplings.shape[-2:]),), ()
    logits = routing.logits(votes, steps)
    couplings = tuple(_by_position(step.couplings, last) for step in steps)
    return couplings, tuple(_by_position(one, last) for one in logits)


def _folded(couplings: Tensor) -> Tensor:
    """Return couplings ``[... i j]`` with all positions folded into the batch."""
    return couplings.flatten(0, -3)


def _replay(routing: Routing, call: Call, iterations: int) -> list[Routed]:
    """Return what routing gives after 1, 2, ... iterations: each is a prefix of the next."""
    with ExitStack() as stack:
        stack.callback(setattr, routing, "iterations", routing.iterations)
        steps: list[Routed] = []
        for count in range(1, iterations + 1):
            routing.iterations = count
            steps.append(routing(*call.arguments))
    return steps


def _strength(call: Call, below: Grid) -> tuple[Tensor, Tensor]:
    """Return each slot's contribution ``[b p s j]``, and the child in each slot ``[p s]``."""
    layer, b = call.layer, call.children.poses.shape[0]
    children, votes, _ = call.arguments
    numbers = torch.arange(1, below[0] * below[1] * below[2] + 1, device=call.routed.poses.device)
    if isinstance(layer, ConvTransformCapsules):
        grid = windows(numbers.reshape(1, *below), layer.kernel_size, layer.stride, layer.padding)
        child = grid.transpose(3, 4).flatten(3).flatten(0, 2) - 1  # [p (i k)]
        parts = _partial_votes(layer.votes(call.children), layer)
        couplings = call.routed.couplings.reshape(b, -1, *call.routed.couplings.shape[-2:])
        couplings = couplings.clamp_min(0)
        amounts = couplings[..., None] * _by_position(parts.flatten(2), call).unflatten(
            3, parts.shape[2:]
        )
        return amounts.transpose(3, 4).flatten(2, 3), child
    if isinstance(layer, ConvCapsules):
        grid = windows(numbers.reshape(1, *below), layer.kernel_size, layer.stride, layer.padding)
        child = grid.flatten(3).flatten(0, 2) - 1
    else:
        child = numbers[None] - 1
    couplings = call.routed.couplings
    i, j = votes.shape[1:3]
    folded = call.routed._replace(couplings=couplings.reshape(-1, i, j))
    return _by_position(layer.routing.contributions(children, votes, folded), call), child


def _partial_votes(votes: Votes, layer: ConvTransformCapsules) -> Tensor:
    """Return the lengths ``[(b p) i j k]`` of what each window offset adds to a vote."""
    area = layer.kernel_size[0] * layer.kernel_size[1]
    poses = votes.poses.unflatten(2, (area, layer.d_child))
    weight = votes.weight.unflatten(2, (area, layer.d_child))
    return lengths(torch.einsum("bikd,ijkde->bijke", poses, weight))
