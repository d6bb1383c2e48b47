"""NVIDIA MPS: without it, processes that share a GPU take turns on it."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torchcaps.errors import UsageError

PROGRAM = "nvidia-cuda-mps-control"
START_S = 30.0
QUIT_S = 30.0
"""Time that the daemon gets to quit; it goes on quitting after that."""

GUARD = 'cat > /dev/null; echo quit | "$1"; rm -rf "$2"'
"""Waits for the end of its input, which also comes when the process that writes it is killed."""


@contextmanager
def mps_daemon(*, wanted: bool = True) -> Iterator[dict[str, str]]:
    """Run a daemon of NVIDIA MPS, and yield the environment of the processes that use it.

    The daemon has folders of its own, so it disturbs no other. It quits at the end of the block,
    and also when this process is killed.

    Args:
        wanted: whether to run it; otherwise the environment is empty.
    """
    if not wanted:
        yield {}
        return
    program = shutil.which(PROGRAM)
    if program is None:
        raise UsageError(
            f"--mps needs the program {PROGRAM} of the NVIDIA driver, which is not on the PATH: "
            "install it, or leave out --mps"
        )
    folder = Path(tempfile.mkdtemp(prefix="torchcaps-mps-"))
    environment = {}
    for name in ("pipe", "log"):
        (folder / name).mkdir()
        environment[f"CUDA_MPS_{name.upper()}_DIRECTORY"] = str(folder / name)
    # the daemon would number the GPUs anew, and its clients do so already
    hidden = {"CUDA_VISIBLE_DEVICES"}
    everything = {key: value for key, value in os.environ.items() if key not in hidden}
    guard = subprocess.Popen(
        ["sh", "-c", GUARD, "sh", program, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**everything, **environment},
    )
    try:
        _start(program, folder / "start.log", {**everything, **environment})
        yield environment
    finally:
        _quit(guard)


def _start(program: str, log: Path, environment: dict[str, str]) -> None:
    """Start the daemon, which goes on in the background."""
    # a file and no pipe, which the daemon would keep open
    with log.open("wb") as file:
        try:
            code = subprocess.run(
                [program, "-d"],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment,
                timeout=START_S,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            code = None
        except OSError as error:
            raise UsageError(f"{program} cannot be run: {error.strerror}") from None
    if code != 0:
        lines = log.read_text(errors="replace").split("\n")
        reason = next((line.strip() for line in reversed(lines) if line.strip()), "")
        end = f"no answer in {START_S:g} s" if code is None else f"code {code}"
        raise UsageError(
            f"the daemon of NVIDIA MPS did not start ({reason or end}): leave out --mps"
        )


def _quit(guard: "subprocess.Popen[bytes]") -> None:
    """Let the guard quit the daemon and remove its folders."""
    try:
        guard.communicate(timeout=QUIT_S)
    except subprocess.TimeoutExpired:
        # it goes on by itself
        return
