"""Several processes on one machine: the same losses as one, and nothing written twice."""

import json
from pathlib import Path

import pytest

from helpers.commands import invoke
from helpers.processes import run_python
from torchcaps.train.checkpoint.files import checkpoints

DDP = ("demo/strokes-dynamic", "demo/strokes-discriminative")
SETTINGS = ["limit=384", "batch_size=64", "epochs=2", "test_limit=200"]
STOPPED = ["limit=24", "batch_size=8", "epochs=2", "test_limit=250"]


def command(recipe: str, out: Path, *extra: str, settings: list[str] = SETTINGS) -> list[str]:
    words = [word for setting in settings for word in ("--set", setting)]
    record = str(out.parent / f"{out.name}.csv")
    return [
        *("train", recipe, "--out", str(out), "--results", record),
        *("--device", "cpu", "--no-tensorboard", *words, *extra),
    ]


SESSION = """
import gc
import json
import os
import signal
import sys
from pathlib import Path

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from torchcaps.cli import app
from torchcaps.recipes import get
from torchcaps.train import TrainOptions, train
from torchcaps.train.evaluation import evaluator, score as scoring

out, rank = Path(sys.argv[1]), os.environ["RANK"]
commands = json.loads((out / "commands.json").read_text())


def execute(words):
    try:
        app(words)
    except SystemExit as end:
        return end.code


def destroy(*options):
    assert not any(type(thing) is DistributedDataParallel for thing in gc.get_objects())
    whole(*options)


def stop(*batch):
    if rank == "1":
        os.kill(os.getpid(), signal.SIGTERM)
    return sums_of(*batch)


def look(network, source, **settings):
    (out / f"statistics{average}-rank{rank}").write_text(
        repr([float(buffer.double().sum()) for buffer in network.buffers()])
    )
    return scoring.Score(0, len(source))


whole, score = dist.destroy_process_group, evaluator.score
sums_of = scoring.sums_of
dist.destroy_process_group, evaluator.score = destroy, look
recipe = get("demo/strokes-attention").variant("normed", network="choi2019/mnist", limit=16)
for average in ("0", "0.9"):
    varied = recipe.override(batch_size=8, average=float(average))
    train(varied, TrainOptions(out=out / f"statistics{average}", device="cpu", tensorboard=False))
dist.destroy_process_group, evaluator.score = whole, score
codes = {name: execute(words) for name, words in commands.items() if name != "stopped"}
scoring.sums_of = stop
codes["stopped"] = execute(commands["stopped"])
(out / f"codes-rank{rank}.json").write_text(json.dumps(codes))
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all runs of two processes, which torchrun starts once."""
    out = tmp_path_factory.mktemp("two")
    commands = {f"{n}-{recipe}": command(recipe, out / recipe) for n in "12" for recipe in DDP}
    idle = ["--set", "reconstruction_weight=0", "--seeds", "2"]
    commands["idle"] = command("demo/strokes-dynamic", out / "idle", *idle)
    stopped = command("demo/strokes-inverted-attention", out / "stopped", settings=STOPPED)
    commands["stopped"] = stopped
    (out / "commands.json").write_text(json.dumps(commands))
    (out / "session.py").write_text(SESSION)
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    run_python(*torchrun, str(out / "session.py"), str(out))
    for rank in "01":
        codes = json.loads((out / f"codes-rank{rank}.json").read_text())
        assert codes.pop("stopped") == 143
        assert codes == dict.fromkeys(codes, 0)
    return out


@pytest.mark.parametrize("average", ["0", "0.9"])
def test_every_process_scores_the_network_that_is_saved(average: str, session: Path) -> None:
    seen = [(session / f"statistics{average}-rank{rank}").read_text() for rank in range(2)]
    assert len(json.loads(seen[0])) >= 6
    assert seen[0] == seen[1]


@pytest.mark.parametrize("recipe", DDP)
def test_two_processes_equal_one(recipe: str, session: Path, tmp_path: Path) -> None:
    """The session ran the command twice, and the second time it was finished."""
    assert invoke(*command(recipe, tmp_path / "one")).exit_code == 0
    losses, scores = [], []
    for out in (tmp_path / "one", session / recipe):
        lines = (out / "metrics.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        losses.append([row["loss"] for row in rows])
        result = json.loads((out / "result.json").read_text())
        scores.append(result["test"])
        assert len(out.with_name(f"{out.name}.csv").read_text().splitlines()) == 2
    assert len(losses[0]) == 2
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert scores[1] == pytest.approx(scores[0], abs=1.0)


def test_a_decoder_that_is_not_trained_stops_no_process(session: Path) -> None:
    assert (session / "idle/seed1/weights.safetensors").is_file()


def test_processes_stop_together_while_images_are_scored(session: Path) -> None:
    """One of the two was asked to stop; a single process goes on from their checkpoint."""
    run = session / "stopped"
    assert [path.name for path in checkpoints(run / "checkpoints")] == ["step-00000003"]
    assert not (run / "metrics.jsonl").exists()
    recipe = "demo/strokes-inverted-attention"
    assert invoke(*command(recipe, run, settings=STOPPED)).exit_code == 0
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 2
