"""Scalars and images for TensorBoard, where it is installed."""

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from torchcaps.data import Batches
from torchcaps.models import Network
from torchcaps.results import CurvePoint, RoutingPoint
from torchcaps.train.images import Sources

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class Board:
    """A writer of TensorBoard events; does nothing where tensorboard is not installed.

    Args:
        folder: the folder of the events.
        on: whether to write at all.
        step: the last step whose events stay; later ones of an earlier start are dropped.
    """

    def __init__(self, folder: Path, *, on: bool, step: int) -> None:
        self.writer: SummaryWriter | None = None
        if not on:
            return
        try:
            from torch.utils import tensorboard
        except Exception:  # not installed, or not importable beside this build of torch
            return
        self.writer = tensorboard.SummaryWriter(str(folder), purge_step=step + 1 if step else None)

    def epoch(self, point: CurvePoint, routing: RoutingPoint | None = None) -> None:
        """Write the numbers of an epoch, and those of its routing."""
        if self.writer is None:
            return
        for key in ("loss", "train", "validation", "test", "lr", "images_per_s", "peak_mib"):
            if (value := getattr(point, key)) is not None:
                self.writer.add_scalar(key, value, point.step)
        if routing is None:
            return
        if routing.changed is not None:
            self.writer.add_scalar("routing/changed", routing.changed, point.step)
        for layer in routing.layers:
            for key in ("entropy_share", "mean", "std", "dead", "saturated"):
                if (value := getattr(layer, key)) is not None:
                    self.writer.add_scalar(f"routing/{layer.layer}/{key}", value, point.step)

    def images(self, network: Network, sources: Sources, step: int) -> None:
        """Write a row of test images above a row of their reconstructions."""
        test = sources.test
        if self.writer is None or test is None:
            return
        indices = torch.arange(min(8, len(test)), device=next(network.parameters()).device)
        inputs = Batches(test, 8, transforms=sources.test_transforms).batch(indices).images
        with torch.no_grad():
            reconstructions = network(inputs).reconstruction
        shown = inputs.float()
        shown = (shown - shown.min()) / (shown.max() - shown.min()).clamp_min(1e-6)
        if reconstructions is not None:
            made = reconstructions.float()
            made = made.amax(dim=1) if made.dim() == 5 else made
            shown = torch.cat([shown, made])
        if shown.shape[1] not in (1, 3):
            shown = shown[:, :1]
        rows = [torch.cat(list(part), dim=-1) for part in shown.split(8)]
        self.writer.add_image("images and reconstructions", torch.cat(rows, dim=-2), step)

    def close(self) -> None:
        """Write what is left, and close the files."""
        if self.writer is not None:
            self.writer.close()
