"""The process that measures networks: reads a run per line, and answers each with one line."""

import json
import os
import sys
import traceback
from pathlib import Path

import torch

from torchcaps.errors import TorchcapsError
from torchcaps.study.measuring import measure_run
from torchcaps.study.plan import StudyRun
from torchcaps.train.process import choose_device


def serve(device_name: str, runs: str, data_dir: str) -> None:
    """Measure the runs that the standard input names, until it ends.

    Args:
        device_name: device of the measurements.
        runs: the folder of all run folders.
        data_dir: the data folder; empty for the default.
    """
    device = choose_device(device_name)
    if device.type == "cuda":
        torch.cuda.set_device(device.index or 0)
        # the processes share the cores, and the work is on the GPU
        torch.set_num_threads(1)
    with os.fdopen(os.dup(1), "w") as answers:
        # what libraries print belongs in the log
        os.dup2(2, 1)
        for line in sys.stdin:
            answer = _answer(line, device, Path(runs), Path(data_dir) if data_dir else None)
            answers.write(f"{json.dumps(answer)}\n")
            answers.flush()


def _answer(
    line: str, device: torch.device, runs: Path, data_dir: Path | None
) -> dict[str, object]:
    """Return the row of a run, or the problem that prevents it."""
    try:
        run = StudyRun.from_json(line)
        return {"row": measure_run(run, runs, device=device, data_dir=data_dir).to_dict()}
    except Exception as error:
        traceback.print_exc()
        return {"problem": describe_error(error)}


def describe_error(error: Exception) -> str:
    """Return an error in one line, with its type where it was not meant for users."""
    text = " ".join(str(error).splitlines()[:1])
    return str(error) if isinstance(error, TorchcapsError) else f"{type(error).__name__}: {text}"
