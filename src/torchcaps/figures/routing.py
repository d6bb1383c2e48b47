"""Pictures of routing: convergence, entropy, use, maps and parse trees."""

from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.analysis import (
    CapsuleUse,
    LayerConvergence,
    LayerEntropy,
    ParseTree,
    RoutingMap,
    Walk,
)
from torchcaps.figures.style import (
    PALETTE,
    SEQUENTIAL,
    TEXT,
    as_rgb,
    bars,
    blank,
    class_name,
    colored,
    lines,
    name_axes,
    show_tiles,
    tiled,
)


def draw_walk(walk: Walk, *, classes: Sequence[str] = ()) -> Figure:
    """Draw the image, its primary capsules, the couplings of one of them, and the scores."""
    figure, axes = blank(12.0, 3.0, columns=4)
    axes[0].imshow(tiled(walk.image[None, None], gap=0))
    name_axes(axes[0], "column (pixels)", "row (pixels)", "1. pixels")
    shown = axes[1].imshow(walk.primary.cpu().numpy(), SEQUENTIAL)
    axes[1].locator_params(integer=True)  # a small grid has no half positions
    name_axes(axes[1], "column", "row", "2. primary capsules")
    bar = figure.colorbar(shown, ax=axes[1], shrink=0.8)
    bar.set_label("presence, all types", fontsize=TEXT)
    names = [class_name(n, classes) for n in range(len(walk.scores))]
    few = names if len(names) <= 12 else [""] * len(names)
    steps = len(walk.couplings)
    series = [(f"iteration {n + 1}", row.tolist()) for n, row in enumerate(walk.couplings)]
    picked = [0, steps - 1] if steps > 3 else range(steps)
    bars(axes[2], few, [series[n] for n in picked], "class", "coupling")
    row, column, kind = walk.child
    axes[2].set_title(f"3. child {kind} at {row},{column} decides", fontsize=TEXT)
    bars(axes[3], few, [("score", walk.scores.tolist())], "class", "score")
    winner = class_name(walk.prediction, classes)
    axes[3].set_title(f"4. class capsules: {winner}", fontsize=TEXT)
    return figure


def draw_convergence(layers: Sequence[LayerConvergence]) -> Figure:
    """Draw the mean changes by iteration, on a logarithmic scale (Sabour 2017, Fig. A.1)."""
    figure, axes = blank(11.0, 3.2, columns=3)
    by_layer = [(one.layer, (one.changes, one.couplings, one.poses)) for one in layers]
    kinds = ("a logit", "a coupling", "an entry of a pose")
    for column, (axis, kind) in enumerate(zip(axes, kinds, strict=True)):
        curves = [(name, range(1, len(all_[0]) + 1), all_[column]) for name, all_ in by_layer]
        lines(axis, curves, "routing iteration", f"mean |change of {kind}|")
        axis.set_yscale("log")
        axis.set_xticks(curves[0][1])
    return figure


def draw_entropy(layers: Sequence[LayerEntropy]) -> Figure:
    """Draw the entropy of the couplings relative to that of uniform ones."""
    figure, (axis,) = blank(5.0, 3.2)
    curves = [
        (
            f"{one.layer} (over {'children' if one.competes_over == 'children' else 'parents'}, "
            f"log n = {one.limit:.2f})",
            range(1, len(one.entropies) + 1),
            [entropy / max(one.limit, 1e-12) for entropy in one.entropies],
        )
        for one in layers
    ]
    lines(axis, curves, "routing iteration", "entropy / log n")
    axis.set_xticks(range(1, max(len(one.entropies) for one in layers) + 1))
    axis.set_ylim(0, 1.05)
    axis.legend(fontsize=TEXT - 2)
    return figure


def draw_use(layers: Sequence[CapsuleUse]) -> Figure:
    """Draw the shares of dead and saturated capsules of each layer, and the mean presences."""
    figure, (left, right) = blank(8.5, 3.2, columns=2)
    series = [
        ("dead", [one.dead for one in layers]),
        ("saturated", [one.saturated for one in layers]),
    ]
    bars(left, [one.layer for one in layers], series, "layer", "share of its capsules")
    left.set_ylim(0, 1.05)
    curves = []
    for one in layers:
        ordered = one.mean.sort(descending=True).values.tolist()
        places = [n / max(1, len(ordered) - 1) for n in range(len(ordered))]
        curves.append((f"{one.layer} ({len(ordered)})", places, ordered))
    lines(right, curves, "capsules, the most present first (share)", "mean presence / largest")
    return figure


def draw_routing_map(
    images: Tensor,
    maps: Sequence[tuple[str, RoutingMap]],
    *,
    classes: Sequence[str] = (),
) -> Figure:
    """Draw the relevance of the image positions, one row for each choice of class."""
    shown = as_rgb(images).cpu()
    rows, names = [shown], ["input"]
    for name, routing_map in maps:
        bright = 0.35 * shown + 0.65 * colored(routing_map.pixels)
        rows.append(bright)
        names.append(name)
    numbers = zip(*(routing_map.classes.tolist() for _, routing_map in maps), strict=True)
    columns = [", ".join(class_name(n, classes) for n in some) for some in numbers]
    figure, (axis,) = blank(max(4.0, 0.95 * len(columns) + 1.6), 0.95 * len(rows) + 0.9)
    show_tiles(
        axis, torch.stack(rows), names, columns, "classes: best, runner-up", "contributions to"
    )
    return figure


def draw_parse_tree(
    tree: ParseTree, image: Tensor, *, classes: Sequence[str] = (), limit: int = 100
) -> Figure:
    """Draw the strongest branches below the class capsules, and their ends in the image.

    Args:
        tree: tree of one image.
        image: ``[1 c h w]``.
        classes: names of the classes.
        limit: largest number of nodes per level; the most relevant ones are drawn.
    """
    figure, (left, right) = blank(9.5, 1.8 + 0.9 * len(tree.layers), columns=2)
    _draw_branches(left, tree, _place(tree, _most_relevant(tree, limit)), classes)
    h, w = image.shape[-2:]
    right.imshow(tiled(image[None], gap=0), extent=(-0.5, w - 0.5, h - 0.5, -0.5))
    leaves = [node for node in tree.nodes if node.pixel is not None]
    rows, columns = zip(*(node.pixel for node in leaves if node.pixel), strict=True)
    right.scatter(
        columns,
        rows,
        s=[30 + 1500 * node.relevance for node in leaves],
        facecolors="none",
        edgecolors=PALETTE[1],
        linewidths=1.5,
    )
    name_axes(right, "column (pixels)", "row (pixels)", "primary capsules at the tree's leaves")
    return figure


def _draw_branches(
    axis: Axes, tree: ParseTree, places: dict[int, tuple[float, float]], classes: Sequence[str]
) -> None:
    """Draw nodes and branches, with names if there are at most 40 nodes."""
    nodes = [tree.nodes[index] for index in places]
    branches = [
        (node, [places[node.parent], point])
        for node, point in zip(nodes, places.values(), strict=True)
        if node.parent in places
    ]
    widths = [0.4 + 5 * node.share**0.5 for node, _ in branches]
    edges = [edge for _, edge in branches]
    axis.add_collection(LineCollection(edges, linewidths=widths, colors=PALETTE[0], alpha=0.45))
    xs, ys = zip(*places.values(), strict=True)
    areas = [20 + 500 * node.relevance for node in nodes]
    colors = [PALETTE[5] if node.level == 0 else PALETTE[0] for node in nodes]
    axis.scatter(xs, ys, s=areas, c=colors, zorder=3)
    named = len(places) <= 40
    for node, point in zip(nodes, places.values(), strict=True):
        options: dict[str, Any] = {"textcoords": "offset points"}
        if node.level == 0:
            axis.annotate(f"class {class_name(node.kind, classes)}", point, (8, 4), **options)
        elif named:
            name = f"{node.kind}@{node.position[0]},{node.position[1]}"
            options |= {"fontsize": TEXT - 4, "ha": "center"}
            axis.annotate(name, point, (0, -12), **options)
    axis.set_yticks([-n for n in range(len(tree.layers))], tree.layers)
    axis.set_ylim(-len(tree.layers) + 0.5, 0.5)
    axis.set_xticks([])
    kinds = "capsules, type@row,column" if named else "capsules"
    name_axes(axis, f"{kinds}; area = relevance, line = share", "layer")


def _most_relevant(tree: ParseTree, limit: int) -> set[int]:
    """Return the most relevant nodes of each level whose parents are among them."""
    chosen: set[int] = set()
    for level in range(len(tree.layers)):
        nodes = [n for n, node in enumerate(tree.nodes) if node.level == level]
        nodes = [n for n in nodes if level == 0 or tree.nodes[n].parent in chosen]
        chosen |= set(sorted(nodes, key=lambda n: -tree.nodes[n].relevance)[:limit])
    return chosen


def _place(tree: ParseTree, chosen: set[int]) -> dict[int, tuple[float, float]]:
    """Place leaves side by side and every parent above the middle of its children."""
    children: dict[int, list[int]] = {}
    for index in sorted(chosen):
        children.setdefault(tree.nodes[index].parent, []).append(index)
    places: dict[int, tuple[float, float]] = {}
    free = 0.0

    def place(index: int) -> float:
        nonlocal free
        below = [place(child) for child in children.get(index, [])]
        if below:
            x = sum(below) / len(below)
        else:
            x, free = free, free + 1
        places[index] = (x, -float(tree.nodes[index].level))
        return x

    for root in children.get(-1, []):
        place(root)
    return places
