"""Pictures that compare several runs in one plot."""

from collections.abc import Mapping, Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from torchcaps.analysis import (
    AccuracyCurve,
    AdversarialCurve,
    Alignment,
    Equivariance,
    TrainingCurve,
    comparable,
    cost_by_iterations,
)
from torchcaps.errors import InputError
from torchcaps.figures.style import PALETTE, TEXT, bars, blank, legend, lines, name_axes
from torchcaps.results import RoutingPoint, SpeedRow


def draw_alignment(runs: Mapping[str, Alignment]) -> Figure:
    """Draw the alignment ratios of six transformations and both random baselines (Table 3)."""
    first = next(iter(runs.values()))
    figure, (axis,) = blank(max(7.0, 5 + len(runs)), 3.8)
    series = [(name, result.mean.tolist()) for name, result in runs.items()]
    bars(axis, first.directions, series, "transformation", "alignment ratio")
    for number, d in enumerate(sorted({result.dimension for result in runs.values()})):
        mean, std = next(result.random for result in runs.values() if result.dimension == d)
        axis.axhline(
            mean,
            color="black",
            ls=("-", "--", ":")[number % 3],
            lw=1.2,
            label=f"random vectors in {d} dimensions, computed: {mean:.3f} +- {std:.3f}",
        )
    mean, std = first.paper_random
    axis.axhline(
        mean,
        color=PALETTE[5],
        ls="-.",
        lw=1.2,
        label=f"random vectors, as Choi 2019 prints: {mean:.3f} +- {std:.3f}",
    )
    axis.set_ylim(0, 1.35)
    axis.legend(fontsize=TEXT - 2, loc="upper center", ncols=2)
    return figure


def draw_cosines(runs: Mapping[str, Alignment]) -> Figure:
    """Draw the cosines of the align vectors of opposite transformations (Fig. 4)."""
    names = ("rotation", "x", "y")
    figure, axes = blank(10.0, 3.0, columns=3)
    for axis, name, row in zip(axes, names, range(3), strict=True):
        for number, (run, result) in enumerate(runs.items()):
            axis.hist(
                result.cosines[row].tolist(),
                bins=40,
                range=(-1, 1),
                histtype="step",
                lw=1.4,
                color=PALETTE[number % len(PALETTE)],
                label=run,
                ls=("-", "--", ":")[number % 3],
            )
        name_axes(axis, f"cosine, {name}+ against {name}-", "images")
        axis.grid(alpha=0.3)
        legend(axis, len(runs))
    return figure


def draw_equivariance(runs: Mapping[str, Equivariance]) -> Figure:
    """Draw R^2 of each factor of a pose change predicted from the capsule change."""
    first = next(iter(runs.values()))
    figure, (axis,) = blank(max(7.0, 5 + len(runs)), 3.4)
    series = [
        (f"{name} ({result.dimension} numbers)", result.r2.clamp_min(-0.2).tolist())
        for name, result in runs.items()
    ]
    bars(axis, first.factors, series, "factor of the pose", "R$^2$ on unseen pairs")
    axis.axhline(0, color="black", lw=0.8)
    axis.set_ylim(-0.22, 1.05)
    return figure


def draw_robustness(runs: Mapping[str, Sequence[AccuracyCurve]]) -> Figure:
    """Draw the accuracy under each corruption, one panel each."""
    kinds = [curve.what for curve in next(iter(runs.values()))]
    columns = min(4, len(kinds))
    rows = -(-len(kinds) // columns)
    figure, axes = blank(2.9 * columns, 2.7 * rows, rows=rows, columns=columns)
    spare = axes[len(kinds) :]
    for number, (axis, kind) in enumerate(zip(axes, kinds, strict=False)):
        curves = []
        for name, result in runs.items():
            curve = result[number]
            curves.append((name, curve.levels, curve.accuracy))
            error = [(p * (1 - p) / curve.count) ** 0.5 for p in curve.accuracy]
            low, high = (
                [p + s * e for p, e in zip(curve.accuracy, error, strict=True)] for s in (-1, 1)
            )
            color = PALETTE[(len(curves) - 1) % len(PALETTE)]
            axis.fill_between(curve.levels, low, high, color=color, alpha=0.15, lw=0)
        label = f"{kind} ({next(iter(runs.values()))[number].unit})"
        lines(axis, curves, label, "accuracy", explained=not spare)
        axis.set_ylim(0, 1.02)
    for unused in spare:
        unused.remove()
    if spare and len(runs) > 1:
        handles, names = axes[0].get_legend_handles_labels()
        middle = (1 - 0.5 / columns, 0.5 / rows)
        figure.legend(handles, names, fontsize=TEXT - 1, loc="center", bbox_to_anchor=middle)
    return figure


def draw_adversarial(runs: Mapping[str, AdversarialCurve]) -> Figure:
    """Draw the accuracy under FGSM and PGD."""
    first = next(iter(runs.values()))
    figure, (left, right) = blank(8.5, 3.2, columns=2)
    for axis, attack in ((left, "fgsm"), (right, "pgd")):
        curves = []
        for name, result in runs.items():
            masked = f", {result.masked:.0%} without gradient" if result.masked else ""
            values = result.fgsm if attack == "fgsm" else result.pgd
            curves.append((f"{name}{masked}", result.epsilons, values))
        steps = "one step" if attack == "fgsm" else f"{first.steps} steps"
        lines(axis, curves, f"epsilon (of pixels in 0..1), {attack.upper()}, {steps}", "accuracy")
        axis.set_ylim(0, 1.02)
    return figure


def draw_training(runs: Sequence[TrainingCurve]) -> Figure:
    """Draw loss and accuracy by epoch."""
    titles = [
        ("loss", "training loss"),
        ("train", "training accuracy (%)"),
        ("validation", "validation accuracy (%)"),
        ("test", "test accuracy (%)"),
    ]
    panels = [(key, name) for key, name in titles if any(key in run.values for run in runs)]
    if not panels:
        raise InputError("these runs have written neither a loss nor an accuracy")
    figure, axes = blank(4.2 * len(panels), 3.2, columns=len(panels))
    for axis, (key, name) in zip(axes, panels, strict=True):
        curves = [(run.name, run.epochs, run.values[key]) for run in runs if key in run.values]
        lines(axis, curves, "epoch", name)
    return figure


def draw_routing_by_epoch(points: Sequence[RoutingPoint]) -> Figure:
    """Draw couplings, activations, idle capsules and the effect of uniform couplings by epoch."""
    figure, axes = blank(10.0, 6.4, rows=2, columns=2)
    left, middle, idle, right = axes
    entropies = []
    for number, last in enumerate(points[-1].layers):
        name = f"layer {number + 1}, {last.layer}"
        color = PALETTE[number % len(PALETTE)]
        records = [(p.epoch, x) for p in points for x in p.layers if x.layer == last.layer]
        epochs = [epoch for epoch, _ in records]
        shares = [(e, x.entropy_share) for e, x in records if x.entropy_share is not None]
        if shares:
            entropies.append((name, [e for e, _ in shares], [share for _, share in shares]))
        middle.plot(epochs, [x.mean for _, x in records], color=color, lw=1.4, label=name)
        low, high = [x.low for _, x in records], [x.high for _, x in records]
        middle.fill_between(epochs, low, high, color=color, alpha=0.15, lw=0)
        idle.plot(epochs, [x.dead for _, x in records], color=color, lw=1.4, label=f"{name}, dead")
        saturated = [x.saturated for _, x in records]
        idle.plot(epochs, saturated, color=color, lw=1.4, ls="--", label=f"{name}, saturated")
    lines(left, entropies, "epoch", "entropy, as a share of uniform")
    name_axes(middle, "epoch", "activations: mean, 5 to 95 %")
    middle.grid(alpha=0.3)
    legend(middle, len(points[-1].layers))
    name_axes(idle, "epoch", "share of the capsules")
    idle.set_ylim(-0.03, 1.03)
    idle.grid(alpha=0.3)
    legend(idle, 2 * len(points[-1].layers))
    changed = [(p.epoch, p.changed) for p in points if p.changed is not None]
    series = [("", [e for e, _ in changed], [share for _, share in changed])] if changed else []
    lines(right, series, "epoch", "predictions changed (%)", explained=False)
    for axis in axes:
        axis.locator_params(axis="x", integer=True)
    return figure


def draw_cost(rows: Sequence[SpeedRow]) -> Figure:
    """Draw time and memory by iterations, time per batch and time of 100 training steps."""
    figure, axes = blank(11.0, 7.0, rows=2, columns=2)
    curves = cost_by_iterations(rows) or cost_by_iterations(rows, mode="train")
    mode = curves[0].mode if curves else "inference"
    named = [(f"{one.case}, {one.implementation}, {one.batch}", one) for one in curves][:8]
    for axis, what, label in (
        (axes[0], "batch_ms", f"{mode}, ms a batch"),
        (axes[1], "peak_mib", f"{mode}, peak memory (MiB)"),
    ):
        lines(
            axis,
            [(name, one.iterations, getattr(one, what)) for name, one in named],
            "routing iterations",
            label,
        )
        axis.locator_params(axis="x", integer=True)
        axis.set_title("network, implementation, batch", fontsize=TEXT - 1)
        if not named:
            axis.text(
                0.5,
                0.5,
                "no case was measured at several numbers of iterations",
                transform=axis.transAxes,
                ha="center",
                fontsize=TEXT - 1,
            )
    _cases(axes[2], rows, "inference", "batch_ms", "ms a batch")
    _cases(axes[3], rows, "train", "seconds_per_100_steps", "seconds of 100 steps")
    return figure


def _cases(axis: Axes, rows: Sequence[SpeedRow], mode: str, what: str, label: str) -> None:
    """Draw one number per network and implementation, the latest of comparable rows."""
    rows = comparable(rows, mode=mode)
    cases = list(dict.fromkeys(row.case for row in rows))[:12]
    series = []
    for kind in dict.fromkeys(row.implementation for row in rows):
        by_case = {row.case: row for row in rows if row.implementation == kind}
        values = [getattr(by_case[case], what) if case in by_case else torch.nan for case in cases]
        series.append((kind, values))
    bars(axis, cases, series, "network", f"{mode}, {label}")
    if rows:
        setting = " ".join(filter(None, (f"batch {rows[0].batch}", rows[0].dtype, rows[0].shape)))
        axis.set_title(f"{setting}, {rows[0].gpu}", fontsize=TEXT - 1)
    axis.set_xticks(range(len(cases)), cases, rotation=25, ha="right", fontsize=TEXT - 2)
    axis.set_yscale("log")
