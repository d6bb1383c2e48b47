"""Pictures of routing: convergence, entropy, use, maps and parse trees."""

from collections.abc import Sequence

import torch
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.analysis import (
    CapsuleUse,
    LayerConvergence,
    LayerEntropy,
    Node,
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

__all__ = [
    "draw_convergence",
    "draw_entropy",
    "draw_parse_tree",
    "draw_routing_map",
    "draw_use",
    "draw_walk",
]


def draw_walk(found: Walk, *, classes: Sequence[str] = ()) -> Figure:
    """Pixels, primary capsules, the couplings of one of them, scores."""
    figure, axes = blank(12.0, 3.0, columns=4)
    axes[0].imshow(tiled(found.image[None, None], gap=0))
    name_axes(axes[0], "column (pixels)", "row (pixels)", "1. pixels")
    shown = axes[1].imshow(found.primary.cpu().numpy(), SEQUENTIAL)
    axes[1].locator_params(integer=True)  # a small grid has no half positions
    name_axes(axes[1], "column", "row", "2. primary capsules")
    bar = figure.colorbar(shown, ax=axes[1], shrink=0.8)
    bar.set_label("presence, all types", fontsize=TEXT)
    names = [class_name(n, classes) for n in range(len(found.scores))]
    few = names if len(names) <= 12 else [""] * len(names)
    steps = len(found.couplings)
    series = [(f"iteration {n + 1}", row.tolist()) for n, row in enumerate(found.couplings)]
    picked = [0, steps - 1] if steps > 3 else range(steps)
    bars(axes[2], few, [series[n] for n in picked], "class", "coupling")
    row, column, kind = found.child
    axes[2].set_title(f"3. child {kind} at {row},{column} decides", fontsize=TEXT)
    bars(axes[3], few, [("score", found.scores.tolist())], "class", "score")
    said = class_name(found.prediction, classes)
    axes[3].set_title(f"4. class capsules: {said}", fontsize=TEXT)
    return figure


def draw_convergence(layers: Sequence[LayerConvergence]) -> Figure:
    """Mean change of the logits by each iteration, on a logarithmic scale (Sabour Fig. A.1)."""
    figure, (axis,) = blank(5.0, 3.2)
    curves = [(one.layer, range(1, len(one.changes) + 1), one.changes) for one in layers]
    lines(axis, curves, "routing iteration", "mean |change of a logit|")
    axis.set_yscale("log")
    axis.set_xticks(curves[0][1])
    return figure


def draw_entropy(layers: Sequence[LayerEntropy]) -> Figure:
    """Entropy of the couplings, as a share of that of uniform ones."""
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
    """Dead and saturated capsules of each layer, and how present the others are."""
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
    """Which positions of the image feed a class capsule, one row for each choice of class."""
    shown = as_rgb(images).cpu()
    rows, names = [shown], ["input"]
    for name, found in maps:
        bright = 0.35 * shown + 0.65 * colored(found.pixels)
        rows.append(bright)
        names.append(name)
    numbers = zip(*(found.classes.tolist() for _, found in maps), strict=True)
    columns = [", ".join(class_name(n, classes) for n in some) for some in numbers]
    figure, (axis,) = blank(max(4.0, 0.95 * len(columns) + 1.6), 0.95 * len(rows) + 0.9)
    show_tiles(axis, torch.stack(rows), names, columns, "class of each row", "fed to")
    return figure


def draw_parse_tree(
    tree: ParseTree, image: Tensor, *, classes: Sequence[str] = (), most: int = 100
) -> Figure:
    """The strongest branches from the class capsule down, and where in the image they end.

    Args:
        tree: of one image.
        image: ``[1 c h w]``.
        classes: names.
        most: nodes of a level that are drawn, the most relevant ones.
    """
    figure, (left, right) = blank(9.5, 1.8 + 0.9 * len(tree.layers), columns=2)
    kept = _most_relevant(tree, most)
    places = _places(tree, kept)
    edges, widths = [], []
    for index, place in places.items():
        node = tree.nodes[index]
        if node.parent in places:
            edges.append([places[node.parent], place])
            widths.append(0.4 + 5 * node.share**0.5)
    left.add_collection(LineCollection(edges, linewidths=widths, colors=PALETTE[0], alpha=0.45))
    xs, ys = zip(*places.values(), strict=True)
    shown = [tree.nodes[index] for index in places]
    areas = [20 + 500 * node.relevance for node in shown]
    left.scatter(xs, ys, s=areas, c=[_color(node) for node in shown], zorder=3)
    for node, place in zip(shown, places.values(), strict=True):
        if node.level == 0:
            name = f"class {class_name(node.kind, classes)}"
            left.annotate(name, place, xytext=(8, 4), textcoords="offset points")
        elif len(places) <= 40:
            name = f"{node.kind}@{node.position[0]},{node.position[1]}"
            left.annotate(
                name,
                place,
                fontsize=TEXT - 4,
                ha="center",
                xytext=(0, -12),
                textcoords="offset points",
            )
    left.set_yticks([-n for n in range(len(tree.layers))], tree.layers)
    left.set_ylim(-len(tree.layers) + 0.5, 0.5)
    left.set_xticks([])
    named = "capsules, type@row,column; " if len(places) <= 40 else "capsules; "
    name_axes(left, f"{named}area = relevance, line = share", "layer")
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


def _color(node: Node) -> str:
    return PALETTE[5] if node.level == 0 else PALETTE[0]


def _most_relevant(tree: ParseTree, most: int) -> set[int]:
    kept: set[int] = set()
    for level in range(len(tree.layers)):
        own = [n for n, node in enumerate(tree.nodes) if node.level == level]
        own = [n for n in own if level == 0 or tree.nodes[n].parent in kept]
        kept |= set(sorted(own, key=lambda n: -tree.nodes[n].relevance)[:most])
    return kept


def _places(tree: ParseTree, kept: set[int]) -> dict[int, tuple[float, float]]:
    """Leaves side by side, every parent over the middle of its children."""
    children: dict[int, list[int]] = {}
    for index in sorted(kept):
        children.setdefault(tree.nodes[index].parent, []).append(index)
    places: dict[int, tuple[float, float]] = {}
    free = 0.0

    def put(index: int) -> float:
        nonlocal free
        below = [put(child) for child in children.get(index, [])]
        if below:
            x = sum(below) / len(below)
        else:
            x, free = free, free + 1
        places[index] = (x, -float(tree.nodes[index].level))
        return x

    for root in children.get(-1, []):
        put(root)
    return places
