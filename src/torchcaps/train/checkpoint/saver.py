"""Checkpoints written by a background thread while training goes on."""

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchcaps.train.checkpoint.files import prune, save_checkpoint


class Saver:
    """A background writer of one checkpoint at a time.

    Args:
        folder: the folder of the checkpoints.
        keep: number of newest checkpoints to keep beside the best.
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
        """Copy the tensors and start writing them.

        Waits for the save before it, and raises that save's error.
        """
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
        """Return whether the last checkpoint is still being written."""
        return self.pending is not None and not self.pending.done()

    def wait(self) -> None:
        """Wait until the last checkpoint is on the disk."""
        if self.pending is not None:
            pending, self.pending = self.pending, None
            pending.result()

    def close(self) -> None:
        """Wait for the last checkpoint and end the thread."""
        try:
            self.wait()
        finally:
            self.worker.shutdown()


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name: tensor.detach().to("cpu", copy=True, non_blocking=True)
        for name, tensor in tensors.items()
    }
