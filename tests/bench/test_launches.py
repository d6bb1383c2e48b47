"""The number of kernels that an eager step launches does not grow unnoticed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from torchcaps.kernels.gate import HAS_TRITON

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(
    not HAS_TRITON, reason="Triton, whose launches are counted, is not installed"
)


@pytest.mark.parametrize(
    ("case", "options", "most"),
    [
        ("sabour2017/mnist", (), 142),
        ("sabour2017/mnist", ("--step", "recipe"), 161),
        ("sabour2017/mnist", ("--mode", "inference"), 58),
        ("tsai2020/cifar10-resnet", (), 303),
    ],
)
def test_an_eager_step_launches_no_more_kernels_than_recorded(
    case: str, options: tuple[str, ...], most: int
) -> None:
    command = [sys.executable, "benchmarks/launches.py", case, *options, "--list"]
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path}
    text = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert re.search(r"^ +\d+  attend_kernel$", text, re.MULTILINE)
    counted = re.search(r": (\d+) launches\n", text)
    assert counted is not None
    assert most - 5 <= int(counted[1]) <= most, text
