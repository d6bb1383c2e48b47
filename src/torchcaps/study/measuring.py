"""The row of a trained network: its accuracy, robustness, couplings and equivariance; its speed."""

import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from torchcaps import provenance
from torchcaps.analysis import (
    CORRUPTIONS,
    Subject,
    adversarial,
    equivariance,
    open_subject,
    robustness,
    segment,
)
from torchcaps.bench import Measured, Setting, measure
from torchcaps.data import Batch, find, load
from torchcaps.data.description import DIGITS
from torchcaps.errors import InputError
from torchcaps.layers import Decoder
from torchcaps.models import load as load_network
from torchcaps.models.parts.heads import D_CLASS, compared_parameters
from torchcaps.recipes.study import TRANSFORMED
from torchcaps.results import ComparisonRow
from torchcaps.study.plan import StudyRun
from torchcaps.train.evaluation.diagnostics import diagnose_routing
from torchcaps.train.evaluation.score import score
from torchcaps.train.images import First
from torchcaps.train.outputs.folder import RunFolder
from torchcaps.train.process import Process

EPSILONS = (0.0, 0.02, 0.05)
"""Largest changes of a pixel under attack."""

FASTEST = 0.1
"""Share of the timed steps that count: other programs can only slow a step down."""


def measure_run(
    run: StudyRun, runs: Path, *, device: torch.device, data_dir: Path | None = None
) -> ComparisonRow:
    """Measure all but the speed of the network of a finished run.

    Args:
        run: the run.
        runs: the folder of all run folders.
        device: device of the measurements.
        data_dir: the data folder.
    """
    folder = RunFolder(run.entry.folder(runs))
    result = folder.row()
    if result is None or result.test is None:
        raise InputError(f"{folder.path} holds no finished run: train it first")
    recipe = run.entry.recipe
    subject = open_subject(folder.path, recipe=recipe, data_dir=data_dir, device=device)
    batch = subject.batch(run.study.probed)
    commit, dirty = provenance.commit()
    measured = {
        **_robustness(run, subject, batch),
        **_routing(subject, batch),
        "affine": _affine(run, subject, data_dir),
        "equivariance": _equivariance(run, subject),
        "iou": _overlap(subject, batch),
    }
    return ComparisonRow(
        study=run.study.name,
        dataset=run.dataset,
        head=run.head,
        seed=run.entry.seed,
        parameters=compared_parameters(load_network(folder.weights)),
        images=recipe.limit or find(recipe.dataset).counts["train"],
        epochs=result.epochs,
        batch_size=recipe.batch_size,
        test=result.test,
        **measured,
        train_images_per_s=None,
        peak_mib=None,
        latency_ms=None,
        commit=result.commit,
        measured_commit=commit,
        dirty=dirty or result.dirty,
        gpu=provenance.hardware(device),
        torch=torch.__version__,
        date=provenance.date(),
    )


def _robustness(run: StudyRun, subject: Subject, batch: Batch) -> dict[str, Any]:
    """Return the accuracy by level of every corruption and attack."""
    network, images, labels, rule = subject.network, batch.images, batch.labels, subject.measure
    curves: dict[str, Any] = {}
    for name in CORRUPTIONS:
        curve = robustness(network, images, labels, name, measure=rule)
        curves[name] = _by_level(curve.levels, curve.accuracy)
    few = run.study.attacked
    attack = adversarial(network, images[:few], labels[:few], epsilons=EPSILONS, measure=rule)
    return {
        **curves,
        "fgsm": _by_level(attack.epsilons, attack.fgsm),
        "pgd": _by_level(attack.epsilons, attack.pgd),
        "masked": 100 * attack.masked,
    }


def _by_level(levels: tuple[float, ...], shares: tuple[float, ...]) -> dict[str, float]:
    """Return percentages by level."""
    return {f"{at:g}": round(100 * share, 4) for at, share in zip(levels, shares, strict=True)}


def _routing(subject: Subject, batch: Batch) -> dict[str, Any]:
    """Return the relative entropy of the couplings, and what uniform couplings change."""
    point = diagnose_routing(
        subject.network, batch.images, epoch=0, measure=subject.measure or "top1"
    )
    if point is None:
        return {"entropy": None, "changed": None}
    shares = [layer.entropy_share for layer in point.layers]
    known = [share for share in shares if share is not None]
    return {"entropy": sum(known) / len(known) if known else None, "changed": point.changed}


def _affine(run: StudyRun, subject: Subject, data_dir: Path | None) -> float | None:
    """Return the accuracy on transformed test images, as many as the test set has."""
    if run.dataset not in TRANSFORMED:
        return None
    recipe = run.entry.recipe
    device = next(subject.network.parameters()).device
    source = load(TRANSFORMED[run.dataset], "test", root=data_dir).to(device)
    return score(
        subject.network,
        First(source, recipe.test_limit or len(source)),
        measure=recipe.measure,
        n_classes=subject.network.n_classes,
        process=Process(device),
    ).percent


def _equivariance(run: StudyRun, subject: Subject) -> float | None:
    """Return the mean R^2 over classes and factors of pose for a network of digits."""
    if find(run.entry.recipe.dataset).classes != DIGITS:
        return None
    result = equivariance(subject.network, pairs=run.study.pairs, components=D_CLASS)
    return float(result.r2.mean())


def _overlap(subject: Subject, batch: Batch) -> float | None:
    """Return the mean intersection over union of the two drawn objects and the true ones."""
    draws = any(isinstance(module, Decoder) for module in subject.network.modules())
    if batch.targets is None or not draws:
        return None
    return float(segment(subject.network, batch.images, batch.labels, batch.targets).iou.mean())


def measure_speed(row: ComparisonRow, run: StudyRun, *, device: torch.device) -> ComparisonRow:
    """Return a row with training throughput and memory, and the latency of one image.

    A GPU replays CUDA graphs, as training does. One CPU thread is timed by its processor time,
    which other programs slow down little.
    """
    on_gpu = device.type == "cuda"
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter

    def timed(mode: str, batch: int) -> Measured:
        setting = Setting(
            run.entry.source,
            "fused+graph" if on_gpu else "torch",
            batch,
            mode,
            dtype="bfloat16" if on_gpu else "float32",
        )
        return measure(setting, device=device, repeats=run.study.steps, clock=clock)

    size = run.entry.recipe.batch_size
    with torch.cuda.device(device) if on_gpu else nullcontext():
        training, inference = timed("train", size), timed("inference", 1)
    return replace(
        row,
        train_images_per_s=size / training.quantile(FASTEST),
        peak_mib=training.peak_mib if on_gpu else None,
        latency_ms=1000 * inference.quantile(FASTEST),
    )
