"""Ctrl-C and SIGTERM end a run after its step, not in the middle of one."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from torchcaps.errors import TorchcapsError

__all__ = ["InterruptedRunError", "Stop", "listening"]


class InterruptedRunError(TorchcapsError, RuntimeError):
    """The run was asked to stop, and has saved."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code


class Stop:
    """Whether the run was asked to stop; 0 or the number of the signal."""

    def __init__(self) -> None:
        self.signal = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Note the signal; a second one does what it usually does."""
        self.signal = number
        signal.signal(
            number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        )


@contextmanager
def listening() -> Iterator[Stop]:
    """Note signals instead of dying of them, where this is the main thread."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
