"""A user's routing, network and recipe in a file of their own, from training to evaluation."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

import torchcaps as tc
from helpers.commands import invoke, one_sentence
from helpers.registry import copy_recipe, restored_zoo
from helpers.repetitions import mark_slow_except

FAST = ["--device", "cpu", "--no-tensorboard"]

# the run is asked to stop in its seventh step, once
INTERRUPTED = """
import dataclasses, signal
from pathlib import Path


def stopping(scores, targets, *, step, share, smoothing):
    if Path("stop").exists() and step == 6:
        Path("stop").unlink()
        signal.raise_signal(signal.SIGTERM)
    return margin(scores, targets, step=step, share=share, smoothing=smoothing)


recipe = dataclasses.replace(recipe, loss=stopping)
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    with restored_zoo():
        yield


def fresh_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process that has registered nothing."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return subprocess.run(
        [sys.executable, "-m", "torchcaps", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )


def test_a_recipe_of_a_user_trains_resumes_and_is_scored(tmp_path: Path) -> None:
    copy_recipe(tmp_path, more=INTERRUPTED)
    words = ["train", "./my_recipe.py:recipe", *FAST]
    assert invoke(*words, "--out", "whole").exit_code == 0
    Path("stop").touch()
    assert invoke(*words).exit_code == 143
    resumed = invoke(*words)
    assert resumed.exit_code == 0, resumed.output
    assert "resumed at step 7 of 20" in resumed.stdout
    run = Path("runs/me/strokes/seed0")
    row = json.loads((run / "result.json").read_text())
    assert (row["recipe"], row["changes"]) == ("me/strokes", {})
    weights = [folder / "weights.safetensors" for folder in (run, Path("whole"))]
    hashes = {hashlib.sha256(path.read_bytes()).hexdigest() for path in weights}
    assert len(hashes) == 1
    assert "me/strokes" in Path("results/accuracy.csv").read_text()
    assert invoke("results").exit_code == 0
    network = tc.load(run / "weights.safetensors")
    assert (network.name, type(network).__name__) == ("me/tiny", "TinyNet")
    scored = fresh_process("evaluate", str(run), "--recipe", "./my_recipe.py:recipe", "--json")
    assert scored.returncode == 0, scored.stderr
    assert json.loads(scored.stdout)[str(run)]["images"] == 100


def test_a_run_of_a_user_s_recipe_needs_its_file_again(tmp_path: Path) -> None:
    copy_recipe(tmp_path)
    settings = ["--set", "epochs=1", "--set", "hold_out=false", "--out", "run"]
    assert invoke("train", "my_recipe.py:wider", *FAST, *settings).exit_code == 0
    written = [path for path in Path("run").rglob("*") if path.is_file()]
    naming = {path.name for path in written if b"my_recipe" in path.read_bytes()}
    assert naming <= {"result.json"}  # its record of the command that was typed
    said = one_sentence(invoke("evaluate", "run"), 2)
    assert said.startswith("run was trained with the recipe 'me/strokes-wide', which is not in the")
    assert "--recipe my_recipe.py:recipe" in said
    words = ("evaluate", "run", "--recipe", "my_recipe.py:wider")
    assert "run: " in invoke(*words).stdout
    said = one_sentence(invoke(*words, "--split", "validation"), 2)
    assert "no validation images" in said  # as its own settings say
    said = fresh_process("evaluate", "run", "--recipe", "demo/strokes-em").stderr
    assert "call torchcaps.register_network('me/tiny', ...) first" in said
    assert "Traceback" not in said


LATER = {
    "predict": ("predict", "run", "image.png", "--device", "cpu"),
    "figures": ("figures", "run", "--only", "use", "--samples", "20", "--device", "cpu"),
    "export": ("export", "run", "--out", "net.pt2"),
    "explore": ("explore", "run", "--save", "page.html", "--runtime", "."),
}


@pytest.mark.parametrize("command", mark_slow_except(LATER, "predict"))
def test_commands_take_the_network_of_a_user_s_file(command: str, tmp_path: Path) -> None:
    copy_recipe(tmp_path)
    assert invoke("train", "my_recipe.py:recipe", *FAST, "--out", "run").exit_code == 0
    Image.new("L", (28, 28), 90).save("image.png")
    done = fresh_process(*LATER[command], "--recipe", "my_recipe.py:recipe")
    if command == "explore":  # it knows the network, and misses the runtime
        assert "onnxruntime-web" in done.stderr
        assert "register_network" not in done.stderr
    else:
        assert done.returncode == 0, done.stderr


def test_several_seeds_of_a_user_s_recipe_are_an_ensemble(tmp_path: Path) -> None:
    copy_recipe(tmp_path, more="recipe = recipe.variant('me/both', ensemble=2, epochs=1)\n")
    result = invoke("train", "my_recipe.py:recipe", *FAST, "--seeds", "2")
    assert result.exit_code == 0, result.output
    assert "ensemble of 2" in result.stdout
    assert Path("runs/me/both/seed1/weights.safetensors").is_file()


@pytest.mark.parametrize("command", [["train"], ["evaluate", "run", "--recipe"]])
def test_a_wrong_recipe_file_is_answered_with_2(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("x = 1\nraise RuntimeError('no')\n")
    said = one_sentence(invoke(*command, "./bad.py:recipe"), 2)
    assert said == f"{tmp_path.resolve()}/bad.py, line 2: RuntimeError: no"
    assert "cannot be read" in one_sentence(invoke(*command, "no.py:recipe"), 2)
    assert "must name a recipe" in one_sentence(invoke(*command, "bad.py"), 2)


def test_an_unknown_network_of_a_user_s_recipe_is_answered_with_2(tmp_path: Path) -> None:
    copy_recipe(tmp_path, more="recipe = recipe.variant('me/x', network='me/tinny')\n")
    said = one_sentence(invoke("train", "my_recipe.py:recipe", *FAST), 2)
    assert said == "there is no network 'me/tinny': did you mean 'me/tiny'?"
