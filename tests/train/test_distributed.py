"""Several processes on one machine: the same losses as one, and nothing written twice."""

import json
from pathlib import Path

import pytest

from helpers.processes import run_python

SETTINGS = ["limit=384", "batch_size=64", "epochs=2", "test_limit=200"]


def command(recipe: str, out: Path, *extra: str) -> list[str]:
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    record = str(out.parent / f"{out.name}.csv")
    return [
        *("-m", "torchcaps", "train", recipe, "--out", str(out), "--results", record),
        *("--device", "cpu", "--no-tensorboard", *settings, *extra),
    ]


STATISTICS = """
import gc
import sys
from pathlib import Path
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torchcaps.recipes import get
from torchcaps.train import train
from torchcaps.train.run import Run

def look(self, network, source, *how):
    found = [float(buffer.double().sum()) for buffer in network.buffers()]
    Path(sys.argv[1], f"rank{self.process.rank}").write_text(repr(found))
    return 0.0

def destroy(*given, whole=dist.destroy_process_group):
    assert not any(type(thing) is DistributedDataParallel for thing in gc.get_objects())
    whole(*given)

Run._score = look
dist.destroy_process_group = destroy
recipe = get("demo/strokes-attention").variant("normed", network="choi2019/mnist", limit=16)
recipe = recipe.override(batch_size=8, average=float(sys.argv[2]))
train(recipe, out=Path(sys.argv[1], "run"), device="cpu", tensorboard=False)
"""


@pytest.mark.parametrize("average", ["0", "0.9"])
def test_every_process_scores_the_network_that_is_saved(average: str, tmp_path: Path) -> None:
    script = tmp_path / "look.py"
    script.write_text(STATISTICS)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run_python(*torchrun, str(script), str(tmp_path), average)
    seen = [(tmp_path / f"rank{rank}").read_text() for rank in range(2)]
    assert len(json.loads(seen[0])) >= 6
    assert seen[0] == seen[1]


@pytest.mark.parametrize("recipe", ["demo/strokes-dynamic", "demo/strokes-discriminative"])
def test_two_processes_equal_one(recipe: str, tmp_path: Path) -> None:
    run_python(*command(recipe, tmp_path / "one"))
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    for _ in range(2):  # the second time it is finished
        run_python(*torchrun, *command(recipe, tmp_path / "two"))
    losses, scores = [], []
    for name in ("one", "two"):
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        losses.append([row["loss"] for row in rows])
        result = json.loads((tmp_path / name / "result.json").read_text())
        scores.append(result["test"])
        assert len((tmp_path / f"{name}.csv").read_text().splitlines()) == 2
    assert len(losses[0]) == 2
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert scores[1] == pytest.approx(scores[0], abs=1.0)


def test_a_decoder_that_is_not_trained_stops_no_process(tmp_path: Path) -> None:
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    idle = ["--set", "reconstruction_weight=0", "--seeds", "2"]
    run_python(*torchrun, *command("demo/strokes-dynamic", tmp_path / "run", *idle))
    assert (tmp_path / "run/seed1/weights.safetensors").is_file()
