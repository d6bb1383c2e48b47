"""Wrong command lines for every command, and the files they name."""

from pathlib import Path

import torch
from PIL import Image
from safetensors.torch import save_file

from helpers.runs.folders import write_run

__all__ = ["COMMANDS", "write_files"]

NET, RUN, PNG = "demo/mnist-dynamic", "run", "good.png"
TRAIN = "train demo/strokes-dynamic"
FILE_NAMES = (
    "missing.png", "empty.png", "text.png", "cut.png", "folder.png", "bomb.png", "no-suffix",
)  # fmt: skip
RUN_NAMES = (
    "missing", "empty-folder", "empty.safetensors", "text.safetensors", "cut.safetensors",
    "foreign.safetensors", "listed", "broken", "no-weights", "text.txt",
)  # fmt: skip
DATA_NAMES = ("missing", "empty-folder", "one-class", "no-images", "text.txt", "mixed-bad")
SETTINGS = (
    "epochs", "epochs=", "epochs=0", "epochs=-1", "epochs=1.5", "epochs=many", "epochs=nan", "lr=",
    "lr=0", "lr=-1", "lr=inf", "batch_size=0", "batch_size=1e9", "nonsense=3", "network=em",
    "precision=float8", "limit=-5", "=3", "hold_out=maybe", "resize=1", "average=2", "epochs=5=5",
    "test_draws=0", "optimizer=Magic",
)  # fmt: skip

COMMANDS: list[str] = [
    "nonsense", "--nonsense", "trian demo/strokes-dynamic", "env extra", "data nonsense",
    "list --nonsense", "list extra another", "list nothing-like-it", "list [",
    "results --csv --json",
    f"predict {NET} {PNG} --device mps", f"predict {NET} /dev/null", f"predict '' {PNG}",
    "results --results /dev/null", "campaign empty-folder", f"{TRAIN} --out good.png/x",
    f"{TRAIN} --set epochs=99999999999999999999", f"{TRAIN} --from good.png",
    "demo nonsense", "demo dynamic nonsense", "demo --steps 0", "demo --steps many",
    "demo --seed -1", "demo dynamic --out text.txt --steps 1",
    "train", "train nonsense", "train demo/strokes-dynamc", "train ''", "train ../../etc/passwd",
    "train missing.py:recipe", "train broken.py:recipe", "train text.txt:recipe",
    "train recipe.py:missing", "train recipe.py", "train recipe.py:number",
    "train raising.py:recipe",
    *(f"{TRAIN} --set {setting}" for setting in SETTINGS),
    *(f"{TRAIN} --data {name}" for name in DATA_NAMES),
    f"{TRAIN} --seed -1", f"{TRAIN} --seed 1e3", f"{TRAIN} --seed 99999999999",
    f"{TRAIN} --seeds 0",
    f"{TRAIN} --device gpu", f"{TRAIN} --device cuda:99", f"{TRAIN} --device cpu:x",
    f"{TRAIN} --device ''", f"{TRAIN} --out text.txt", f"{TRAIN} --resume", f"{TRAIN} extra",
    f"{TRAIN} --save-every -1", f"{TRAIN} --set limit=32 --results folder.png --out new",
    f"{TRAIN} --set limit=32 --results text.txt --out other",
    "train sabour2017/mnist --data-dir bad-mnist", f"train --set epochs=1 {TRAIN} twice",
    "evaluate", *(f"evaluate {name}" for name in RUN_NAMES),
    *(f"evaluate {RUN} --data {name}" for name in DATA_NAMES),
    f"evaluate {RUN} --split nonsense", f"evaluate {RUN} --draws 0", f"evaluate {RUN} --draws 3",
    f"evaluate {RUN} --device gpu", f"evaluate {RUN} --recipe nonsense",
    f"evaluate {RUN} sabour2017/multimnist-modern", f"evaluate {NET} --data-dir bad-mnist",
    "evaluate demo/nonsense",
    "predict", f"predict {NET}", *(f"predict {NET} {name}" for name in FILE_NAMES),
    *(f"predict {name} {PNG}" for name in RUN_NAMES),
    f"predict {NET} {PNG} --top 0", f"predict {NET} {PNG} --top 11", f"predict {NET} {PNG} --top x",
    f"predict {NET} {PNG} --device gpu", f"predict {NET} {PNG} --save-poses poses.txt",
    f"predict {NET} {PNG} --save-poses missing/poses.npz", f"predict {NET} empty-folder",
    "figures", *(f"figures {name}" for name in RUN_NAMES[:5]), f"figures {RUN} --only nonsense",
    f"figures {RUN} --samples 3", f"figures {RUN} --out text.txt", f"figures {RUN} --device gpu",
    "results --results missing.csv", "results --results text.txt", "results --results cut.csv",
    "results --add missing", "results --add empty-folder", "results --add text.txt",
    "results --add cut.csv", "results extra-word another",
    "ship", "ship missing", "ship empty-folder", f"ship {RUN} --store int4 --into shipped",
    f"ship {RUN} --into text.txt", f"ship {RUN} --device gpu --into shipped", "ship text.txt",
    "bench nonsense", "bench --repeats 0", "bench --repeats few",
    "campaign", "campaign missing.txt", "campaign text.txt --device cpu",
    "campaign empty.safetensors --device cpu", "campaign list.txt --minutes 0 --device cpu",
    "campaign list.txt --parallel 0 --device cpu", "campaign list.txt --device gpu",
    "export", *(f"export {name}" for name in RUN_NAMES[:5]), f"export {RUN} --to onx",
    f"export {RUN} --out missing/net.onnx", f"export {RUN} --out net.txt",
    f"export {RUN} --out folder.png", f"export {RUN} --to pt2 --int8",
    f"export {RUN} --iterations 0 --trace",
    "explore missing --no-browser", "explore empty-folder --no-browser",
    "explore text.safetensors --no-browser", "explore --port 99999", "explore --port home",
    f"train {NET} --from missing --data one-class", f"train {NET} --from text.txt",
    f"train {NET} --from empty-folder", f"train {NET} --from demo/mnist-em",
    "data info", "data info nonsense", "data show nonsense", "data show mnist --data-dir bad-mnist",
    "data show strokes --count 0", "data show strokes --out missing/sheet.png",
]  # fmt: skip
"""Command lines, relative to the folder of :func:`write_files`."""


def write_files(folder: Path) -> None:
    """Write the files and folders that the commands and calls name."""
    write_run(folder / RUN)
    write_run(folder / "no-weights")
    (folder / "no-weights/weights.safetensors").unlink()
    for name in ("empty-folder", "folder.png", "one-class/a", "no-images/a", "no-images/b"):
        (folder / name).mkdir(parents=True)
    Image.new("L", (28, 28), 30).save(folder / PNG)
    png = (folder / PNG).read_bytes()
    for name in ("one-class/a/0.png", "mixed-bad/a/0.png", "mixed-bad/b/0.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(png)
    (folder / "mixed-bad/b/1.png").write_bytes(b"not an image")
    (folder / "no-images/a/notes.txt").write_text("no image")
    files = {
        "empty.png": b"", "text.png": b"hello", "cut.png": png[: len(png) // 2], "no-suffix": b"\0",
        "bomb.png": png[:16] + (60_000).to_bytes(4, "big") * 2 + png[24:],
        "empty.safetensors": b"", "text.safetensors": b"hello world", "text.txt": b"hello\nworld\n",
        "cut.safetensors": (folder / RUN / "weights.safetensors").read_bytes()[:5000],
        "cut.csv": b"recipe,seed\ndemo/strokes-dynamic", "broken.py": b"def (",
        "recipe.py": b"number = 3",
        "raising.py": b"raise RuntimeError('no')", "list.txt": b"demo/strokes-dynamic\n",
    }  # fmt: skip
    for name, content in files.items():
        (folder / name).write_bytes(content)
    save_file({"x": torch.zeros(2)}, folder / "foreign.safetensors")
    for name, text in (("listed", "[]"), ("broken", "{")):
        (folder / name).mkdir()
        for file in ("run.json", "result.json"):
            (folder / name / file).write_text(text)
        (folder / name / "weights.safetensors").write_bytes(b"x")
    (folder / "bad-mnist/MNIST/raw").mkdir(parents=True)
    for part in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (folder / f"bad-mnist/MNIST/raw/{part}-ubyte").write_bytes(b"\0\0\x08\x03 cut short")
