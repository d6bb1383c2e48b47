"""``torchcaps predict``: classify image files with a trained network."""

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchcaps.cli.shared import Device, Json, OwnRecipe, load_own
from torchcaps.errors import TorchcapsError, UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from torchcaps.inference import Prediction
    from torchcaps.models import Network

INVERTED = (
    "look inverted (the training images of the network had a dark background and these have a "
    "bright one, or the other way round)"
)


def predict(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN_OR_NAME", help="A run folder, a weight file or a recipe's name."
        ),
    ],
    images: Annotated[list[Path], typer.Argument(help="Image files.", metavar="IMAGE...")],
    top: Annotated[
        int | None,
        typer.Option(min=1, help="Classes per image; default 1, or 2 for two objects."),
    ] = None,
    as_json: Json = False,
    save_poses: Annotated[
        Path | None, typer.Option(help="Write poses and scores to this .npz file.")
    ] = None,
    invert: Annotated[
        bool, typer.Option("--invert", help="Invert the brightness, as for ink on white paper.")
    ] = False,
    device: Device = "auto",
    recipe: OwnRecipe = None,
) -> None:
    """Classify image files with a trained network, or print the numbers that it predicts."""
    from torchcaps.inference import classify
    from torchcaps.train.evaluation.trained import find_trained, load_trained
    from torchcaps.train.process import choose_device

    if save_poses is not None and save_poses.suffix != ".npz":
        raise UsageError(f"{save_poses} must end in .npz")
    load_own(recipe)
    network = load_trained(find_trained(run), device=choose_device(device))
    if network.predicts == "numbers" and top is not None:
        raise UsageError(f"{run} predicts numbers and no classes: leave out --top")
    paths, pixels = _read(network, images)
    if not paths:
        raise typer.Exit(1)
    if invert:
        pixels = 255 - pixels
    _warn_of_inverted(network, pixels, invert)
    are_numbers = network.predicts == "numbers"
    predictions = [] if are_numbers else classify(network, pixels, top=top)
    if save_poses is not None:
        _write_poses(network, pixels, paths, save_poses)
    if are_numbers:
        _print_numbers(network, pixels, paths, as_json)
    else:
        _print_predictions(paths, predictions, as_json)
    if len(paths) < len(images):
        raise typer.Exit(1)


def _print_predictions(
    paths: Sequence[Path], predictions: "Sequence[Prediction]", as_json: bool
) -> None:
    pairs = list(zip(paths, predictions, strict=True))
    if as_json:
        rows = [{"image": str(path), **prediction._asdict()} for path, prediction in pairs]
        typer.echo(json.dumps(rows, indent=2))
        return
    for path, prediction in pairs:
        scored = zip(prediction.classes, prediction.scores, strict=True)
        typer.echo(f"{path}: " + ", ".join(f"{name} ({score:.3f})" for name, score in scored))


def _print_numbers(
    network: "Network", pixels: "Tensor", paths: Sequence[Path], as_json: bool
) -> None:
    """Print the predicted numbers of each image with their names."""
    from torchcaps.inference import compute_scores

    names = network.class_names or tuple(map(str, range(network.n_classes)))
    scores = compute_scores(network, network.preprocess(pixels)).tolist()
    rows = [
        {"image": str(path), "numbers": dict(zip(names, row, strict=True))}
        for path, row in zip(paths, scores, strict=True)
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    for path, row in zip(paths, scores, strict=True):
        named = zip(names, row, strict=True)
        typer.echo(f"{path}: " + ", ".join(f"{name} {number:.3f}" for name, number in named))


def _read(network: "Network", images: Sequence[Path]) -> "tuple[list[Path], Tensor]":
    """Return the files that are images, and their pixels in the network's size as uint8.

    Every other file gets one sentence.
    """
    import torch

    from torchcaps.preprocessing.images import as_batch

    preprocessing = network.known_preprocessing()
    paths, parts = [], []
    for path in images:
        try:
            parts.append(as_batch(path, preprocessing.channels, preprocessing.size))
            paths.append(path)
        except TorchcapsError as error:
            typer.echo(str(error), err=True)
    return paths, torch.cat(parts) if parts else torch.empty(0)


def _warn_of_inverted(network: "Network", pixels: "Tensor", invert: bool) -> None:
    """Say in one sentence if images look like negatives of the training images."""
    from torchcaps.preprocessing import looks_inverted

    background = network.known_preprocessing().background
    count = sum(looks_inverted(image[None], background) for image in pixels)
    if count:
        remedy = "leave out --invert" if invert else "try --invert"
        typer.echo(f"{count} of {len(pixels)} images {INVERTED}: {remedy}", err=True)


def _write_poses(network: "Network", pixels: "Tensor", paths: Sequence[Path], target: Path) -> None:
    """Write poses ``[n j e]``, scores ``[n j]`` and the files' names as NumPy arrays."""
    import numpy as np
    import torch

    from torchcaps.storage import write_bytes

    poses, scores = [], []
    with torch.no_grad():
        for part in pixels.split(100):
            output = network(network.preprocess(part))
            if output.capsules is None:
                raise UsageError(f"{network.name} has no capsules and so no poses")
            poses.append(output.capsules.poses.cpu())
            scores.append(output.scores.cpu())
    buffer = io.BytesIO()
    np.savez(
        buffer,
        poses=torch.cat(poses).numpy(),
        scores=torch.cat(scores).numpy(),
        images=np.array([str(path) for path in paths]),
        classes=np.array(network.class_names or range(network.n_classes)),
    )
    write_bytes(target, buffer.getvalue())
