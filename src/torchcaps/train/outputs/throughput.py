"""Training throughput."""

import time

import torch


class Throughput:
    """Images per second of the training steps alone; the clock runs only during steps."""

    def __init__(self) -> None:
        self.images = 0
        self._paused_seconds = 0.0
        self._since: float | None = None
        self._is_warm = False

    def resume(self, images: int, seconds: float) -> None:
        """Continue the count of a run that was stopped."""
        self.images, self._paused_seconds = images, seconds

    def count(self, images: int, device: torch.device) -> None:
        """Count a step; the first of a process, which compiles and records, does not count."""
        if self._is_warm:
            self.images += images
            return
        self._is_warm = True
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        self._since = time.perf_counter()

    def start(self) -> None:
        """Start the clock."""
        if self._since is None:
            self._since = time.perf_counter()

    def pause(self) -> None:
        """Stop the clock."""
        self._paused_seconds, self._since = self.seconds, None

    @property
    def seconds(self) -> float:
        """Seconds of training so far."""
        running = 0.0 if self._since is None else time.perf_counter() - self._since
        return self._paused_seconds + running

    @property
    def per_second(self) -> float:
        """Images per second so far."""
        return self.images / max(self.seconds, 1e-9)
