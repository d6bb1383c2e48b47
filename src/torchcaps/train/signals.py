"""Ctrl-C and SIGTERM end a run after a complete step."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from torchcaps.errors import TorchcapsError


class InterruptedRunError(TorchcapsError, RuntimeError):
    """The run was asked to stop and has saved a checkpoint."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code


class Stop:
    """A signal handler that remembers the signal; its ``signal`` is 0 until there is one."""

    def __init__(self) -> None:
        self.signal = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Remember the signal; a second one has its usual effect."""
        self.signal = number
        signal.signal(
            number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        )


@contextmanager
def catch_signals() -> Iterator[Stop]:
    """Catch Ctrl-C and SIGTERM in the main thread; other threads cannot."""
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
