"""Pictures made of images: reconstructions, perturbations, segmentations."""

from collections.abc import Sequence

import torch
from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.analysis import (
    DimensionEffects,
    Perturbation,
    PoseCorrelation,
    Reconstructions,
    Segmentation,
)
from torchcaps.figures.style import as_rgb, blank, class_name, heat, show_tiles

ORANGE, BLUE = (0.90, 0.62, 0.0), (0.0, 0.45, 0.70)


def draw_reconstructions(
    shown: Reconstructions, *, right: int = 6, wrong: int = 4, classes: Sequence[str] = ()
) -> Figure:
    """Draw inputs and reconstructions from label and prediction, failures last (Fig. 3)."""
    good = (shown.predictions == shown.labels).nonzero()[:, 0][:right]
    bad = (shown.predictions != shown.labels).nonzero()[:, 0][:wrong]
    picked = shown.take(torch.cat([good, bad]))
    rows = torch.stack([picked.images, picked.from_label, picked.from_prediction])
    pairs = zip(picked.labels.tolist(), picked.predictions.tolist(), strict=True)
    columns = [f"{class_name(a, classes)}\n{class_name(b, classes)}" for a, b in pairs]
    failures = f"; on the right, {len(bad)} misclassified" if len(bad) else ""
    error = f"mean squared error per pixel: {float(shown.error_label.mean()):.4f} from the label"
    figure, (axis,) = blank(max(4.5, 0.85 * len(columns) + 1.5), 3.6, title=error)
    show_tiles(
        axis,
        rows,
        ("input", "from label", "from\nprediction"),
        columns,
        f"label (above), prediction (below){failures}",
        "",
    )
    return figure


def draw_perturbation(moved: Perturbation, *, sample: int = 0) -> Figure:
    """Draw the decodings of every moved dimension of one capsule (Fig. 4)."""
    drawings = moved.drawings[sample]
    d = drawings.shape[0]
    steps = [f"{step:+.2f}" for step in moved.steps.tolist()]
    title = f"class {int(moved.classes[sample])}: each row moves one dimension of its capsule"
    figure, (axis,) = blank(5.6, 1.2 + 0.42 * d, title=title)
    show_tiles(
        axis,
        drawings,
        [str(n) for n in range(d)],
        steps,
        "added to the dimension",
        "dimension of the capsule",
    )
    return figure


def draw_effects(effects: DimensionEffects) -> Figure:
    """Draw the effects of moving each dimension as a table of correlations."""
    d = len(effects.correlation)
    figure, (axis,) = blank(6.0, 1.6 + 0.25 * d, title="what each dimension does to the drawing")
    heat(
        figure,
        axis,
        effects.correlation,
        [str(n) for n in range(d)],
        effects.factors,
        "measured on the drawing",
        "dimension of the capsule",
        "correlation with the step",
    )
    return figure


def draw_pose_correlation(result: PoseCorrelation, *, kind: int) -> Figure:
    """Draw correlations with the true pose: of one class, and the largest of each class."""
    n, d = result.correlation.shape[:2]
    best = result.correlation.abs().nan_to_num(nan=-1).amax(dim=1)
    best = torch.where(best < 0, torch.nan, best)
    figure, (left, right) = blank(10.5, 1.8 + 0.25 * max(n, d), columns=2)
    heat(
        figure,
        left,
        result.correlation[kind],
        [str(one) for one in range(d)],
        result.factors,
        "true pose",
        f"dimension of the capsule of class {kind}",
        "correlation",
    )
    heat(
        figure,
        right,
        best,
        [str(one) for one in range(n)],
        result.factors,
        "true pose",
        "class",
        "largest |correlation| of any dimension",
        limit=None,
    )
    return figure


def two_colors(pairs: Tensor) -> Tensor:
    """Mix two gray images ``[b 2 c h w]`` in orange and blue: ``[b 3 h w]``."""
    first, second = pairs.detach().float().mean(dim=2).clamp(0, 1).unbind(dim=1)
    colors = torch.tensor([ORANGE, BLUE], device=pairs.device)
    mixed = first[:, None] * colors[0, :, None, None] + second[:, None] * colors[1, :, None, None]
    return mixed.clamp(0, 1)


def draw_segmentation(
    shown: Sequence[tuple[str, Segmentation]], targets: Tensor, *, columns: int = 8
) -> Figure:
    """Draw overlapping objects in two colors, one row for each choice of classes (Fig. 5).

    Args:
        shown: (choice, result), such as ("labels", ...).
        targets: ``[b 2 c h w]``, the true objects.
        columns: number of images.
    """
    first = shown[0][1]
    count = min(columns, len(first.images))
    tiles = [as_rgb(first.images[:count]), two_colors(targets[:count])]
    names = ["input", "true digits"]
    for name, result in shown:
        tiles.append(two_colors(result.drawings[:count]))
        names.append(f"from {name}{'*' if name == 'absent' else ''}\n{_score(name, result)}")
    pairs = zip(first.labels[:count].tolist(), first.predictions[:count].tolist(), strict=True)
    labels = [f"L {a},{b}\nP {c},{d}" for (a, b), (c, d) in pairs]
    star = next((result.chosen for name, result in shown if name == "absent"), None)
    if star is not None:
        starred = zip(labels, star[:count].tolist(), strict=True)
        labels = [f"{label}\n* {a},{b}" for label, (a, b) in starred]
    figure, (axis,) = blank(1.0 * count + 1.8, 0.9 * len(tiles) + 1.0)
    show_tiles(
        axis, torch.stack(tiles), names, labels, "L labels, P predictions, * decoded", "decoded"
    )
    return figure


def _score(name: str, result: Segmentation) -> str:
    if name == "absent":
        return f"ink of the absent {float(result.ink[:, 1].mean()):.2f}"
    return f"IoU {float(result.iou.mean()):.3f}"
