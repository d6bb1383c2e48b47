"""Checkpoints written beside the training, by a thread that has copies of everything."""

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchcaps.train.checkpoint.files import prune, save_checkpoint

__all__ = ["Saver"]


class Saver:
    """Saves one checkpoint at a time; a second waits for the first.

    Args:
        folder: where checkpoints go.
        keep: how many of the newest stay, beside the best.
    """

    def __init__(self, folder: Path, *, keep: int = 2) -> None:
        self.folder = folder
        self.keep = keep
        self.worker = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self.pending: Future[None] | None = None

    def save(
        self,
        step: int,
        *,
        model: Mapping[str, Tensor],
        optim: Mapping[str, Tensor],
        state: Mapping[str, Any],
        best: int | None,
    ) -> None:
        """Copy the tensors and write them meanwhile; raises what the save before it raised."""
        self.wait()
        copies = [_copies(model), _copies(optim)]
        if torch.cuda.is_available():
            torch.cuda.current_stream().synchronize()

        def write() -> None:
            save_checkpoint(self.folder, step, model=copies[0], optim=copies[1], state=state)
            prune(self.folder, keep=self.keep, best=best)

        self.pending = self.worker.submit(write)

    @property
    def busy(self) -> bool:
        """Whether the last checkpoint is still being written."""
        return self.pending is not None and not self.pending.done()

    def wait(self) -> None:
        """Until the last checkpoint is on the disk."""
        if self.pending is not None:
            pending, self.pending = self.pending, None
            pending.result()

    def close(self) -> None:
        """Finish what is being written."""
        try:
            self.wait()
        finally:
            self.worker.shutdown()


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name: tensor.detach().to("cpu", copy=True, non_blocking=True)
        for name, tensor in tensors.items()
    }
