"""The three files of onnxruntime-web that a saved page needs."""

import shutil
import subprocess
import tempfile
from importlib.resources import files
from pathlib import Path

from torchcaps.errors import MissingFileError, TorchcapsError

NAMES = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
INSTALL = ("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
REMEDY = "install Node.js, or name a folder with the files of onnxruntime-web with --runtime"


def find_runtime(folder: Path | None = None) -> dict[str, bytes]:
    """Return the files by name: from a folder, or from npm at the version of the lock file."""
    if folder is not None:
        return _read(folder)
    if shutil.which("npm") is None:
        raise TorchcapsError(f"a saved page needs onnxruntime-web, which npm fetches: {REMEDY}")
    with tempfile.TemporaryDirectory() as place:
        for name in ("package.json", "package-lock.json"):
            source = files("torchcaps.explorer.saved") / name
            Path(place, name).write_bytes(source.read_bytes())
        done = subprocess.run(INSTALL, cwd=place, capture_output=True, check=False)
        if done.returncode:
            raise TorchcapsError(f"npm could not fetch onnxruntime-web: go online, or {REMEDY}")
        return _read(Path(place, "node_modules/onnxruntime-web/dist"))


def _read(folder: Path) -> dict[str, bytes]:
    missing = [name for name in NAMES if not (folder / name).is_file()]
    if missing:
        raise MissingFileError(
            f"{folder} lacks {', '.join(missing)}: name the folder dist of onnxruntime-web"
        )
    return {name: (folder / name).read_bytes() for name in NAMES}
