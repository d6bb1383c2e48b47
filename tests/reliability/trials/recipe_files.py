"""Recipe files of users: only a named one runs, and a broken one gets a sentence and the line."""

import contextlib
import json
import random
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import torchcaps as tc
from helpers.commands import invoke, one_sentence
from helpers.registry import copy_recipe, restored_zoo
from helpers.runs.training import quick
from torchcaps.errors import TorchcapsError
from torchcaps.models.weights.pretrained import shipped
from torchcaps.recipes import get
from torchcaps.train.checkpoint.encoding import dump_json, dump_tensors
from torchcaps.train.checkpoint.manifest import write_manifest

MARK = "ran"
CODE = ("evil.py:recipe", "evil:recipe", "./evil.py", "evil", "os.system", "__import__('evil')")
ERRORS = ("1 / 0", "{}['a']", "[][1]", "int('x')", "open('no/file')", "raise SystemExit(3)")
SMALL = {"limit": 32, "test_limit": 20, "batch_size": 16, "epochs": 1}


def trials(first: int, count: int) -> Iterator[str]:
    """Each kind of file in turn, beside a file that must not run."""
    for number in range(first, first + count):
        rng = random.Random(f"recipe file {number}")
        kind = list(KINDS)[number % len(KINDS)]
        with (
            tempfile.TemporaryDirectory(prefix="torchcaps-recipe-") as name,
            contextlib.chdir(name),
            restored_zoo(),
        ):
            folder = Path(name).resolve()
            (folder / "evil.py").write_text(f"open({str(folder / MARK)!r}, 'w').close()\n")
            try:
                KINDS[kind](folder, rng)
                assert not (folder / MARK).exists(), "a file that was not named ran"
                yield ""
            except Exception as error:
                yield f"recipe file {number}, {kind}: {error!r}"[:500]


def good(folder: Path, rng: random.Random) -> None:
    """A recipe in a file trains."""
    copy_recipe(folder)
    name = rng.choice(("recipe", "wider"))
    settings = [part for key, value in SMALL.items() for part in ("--set", f"{key}={value}")]
    options = ("--device", "cpu", "--no-tensorboard", "--out", "run", "--results", "rows.csv")
    result = invoke("train", f"./my_recipe.py:{name}", *options, *settings)
    assert result.exit_code == 0, result.output
    assert (folder / "run/weights.safetensors").is_file()


def broken(folder: Path, rng: random.Random) -> None:
    """The message about an error in a file names its line and its kind."""
    lines = [f"value_{n} = {n}" for n in range(rng.randrange(40))]
    at = rng.randrange(len(lines) + 1)
    lines.insert(at, rng.choice(ERRORS))
    told = train_refused(folder, "\n".join(lines), "recipe")
    assert f"line {at + 1}: " in told, told


def not_python(folder: Path, rng: random.Random) -> None:
    """The message about a file that is not Python names the line."""
    at = rng.randrange(20)
    wrong = rng.choice(("x = (", "def f(:", "  indented = 1", "epochs: = 3", "'open"))
    told = train_refused(folder, "\n".join(["x = 1"] * at + [wrong]), "recipe")
    assert f"line {at + 1}: " in told, told
    assert "Error" in told, told


def no_recipe(folder: Path, rng: random.Random) -> None:
    """A file whose recipe is none, or is not there, is refused."""
    value = rng.choice(("1", "None", "'sabour2017/mnist'", "{'epochs': 3}", "print", "lambda: 3"))
    name = rng.choice(("recipe", "recpe", "", "__doc__"))
    told = train_refused(folder, f"recipe = {value}", name)
    assert "bad.py" in told, told


def train_refused(folder: Path, source: str, name: str) -> str:
    (folder / "bad.py").write_text(source + "\n")
    told = one_sentence(invoke("train", f"bad.py:{name}", "--out", "run"), 2)
    assert not (folder / "run").exists(), "a run was started"
    return told


def run_that_names_code(folder: Path, rng: random.Random) -> None:
    """A run folder whose files name code runs none, whatever reads it."""
    run = folder / "run"
    run.mkdir()
    for name, content in trained_run().items():
        (run / name).write_bytes(content)
    path = run / rng.choice(("run.json", "result.json"))
    record = json.loads(path.read_text())
    keys = [key for key, value in record.items() if isinstance(value, str)]
    for key in {"recipe", rng.choice(keys)}:
        record[key] = rng.choice(CODE)
    path.write_text(json.dumps(record))
    read_by_commands(run, rng)


def weights_that_name_code(folder: Path, rng: random.Random) -> None:
    """A weight file whose header names code runs none."""
    source = shipped()["demo/mnist-dynamic"]
    with safe_open(source, framework="pt") as file:
        header = json.loads(file.metadata()["torchcaps"])
    header.pop("data_sha256")
    place = rng.choice(("network", "recipe", "steps", "classes"))
    if place == "recipe":
        header["trained"]["recipe"] = rng.choice(CODE)
    elif place == "steps":
        header["preprocessing"]["steps"] = [{"name": rng.choice(CODE)}]
    elif place == "classes":
        header["classes"] = [rng.choice(CODE)] * 10
    else:
        header["network"] = rng.choice(CODE)
    path = folder / "weights.safetensors"
    save_file(load_file(source), path, {"torchcaps": json.dumps(header)})
    read_by_commands(path, rng)


def checkpoint_that_names_code(folder: Path, rng: random.Random) -> None:
    """A checkpoint whose state names code runs none when its run goes on."""
    recipe = get("demo/strokes-dynamic").override(**SMALL)
    quick(recipe, out=folder / "run", save_every=0.0)
    (newest,) = sorted((folder / "run/checkpoints").glob("step-*"))[-1:]
    for name in ("result.json", "weights.safetensors"):
        (folder / "run" / name).unlink()
    state = json.loads((newest / "state.json").read_bytes())
    texts = [key for key, value in state.items() if isinstance(value, str)]
    state[rng.choice([*texts, "recipe", "loss", "class"])] = rng.choice(CODE)
    model = rng.random() < 0.5
    files = {path.name: path.read_bytes() for path in newest.iterdir()}
    files["state.json"] = dump_json(state)
    if model:
        files["model.safetensors"] = dump_tensors({rng.choice(CODE): torch.zeros(2)})
    step = json.loads(files.pop("manifest.json"))["step"]
    files["manifest.json"] = write_manifest(step, files)
    for name, content in files.items():
        (newest / name).write_bytes(content)
    with contextlib.suppress(TorchcapsError):
        quick(recipe, out=folder / "run")


def read_by_commands(path: Path, rng: random.Random) -> None:
    """Read a path by two commands; each ends well, or with one sentence."""
    Image.new("L", (28, 28)).save("blank.png")
    commands = {
        "predict": ("predict", path, "blank.png"),
        "export": ("export", path, "--out", "net.pt2"),
        "fine-tune": ("train", "demo/strokes-dynamic", "--from", path, "--out", "tuned"),
    }
    settings = [part for key, value in SMALL.items() for part in ("--set", f"{key}={value}")]
    for name in rng.sample(sorted(commands), 2):
        result = invoke(*commands[name], *(settings if name == "fine-tune" else ()))
        if result.exit_code:
            one_sentence(result, result.exit_code)
    with contextlib.suppress(TorchcapsError):
        tc.load(path / "weights.safetensors" if path.is_dir() else path)


@cache
def trained_run() -> dict[str, bytes]:
    """A finished run of a recipe of the package: its files by name."""
    with tempfile.TemporaryDirectory(prefix="torchcaps-run-") as name:
        quick(get("demo/strokes-dynamic").override(**SMALL), out=Path(name) / "run")
        return {p.name: p.read_bytes() for p in (Path(name) / "run").iterdir() if p.is_file()}


KINDS: dict[str, Callable[[Path, random.Random], None]] = {
    "broken": broken,
    "weights that name code": weights_that_name_code,
    "not Python": not_python,
    "run that names code": run_that_names_code,
    "no recipe": no_recipe,
    "good": good,
    "checkpoint that names code": checkpoint_that_names_code,
}
