"""The package as its users get it: built, and installed in an environment of its own."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

__all__ = ["ROOT", "build", "install", "run_away"]

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 600


def build(kind: str, folder: Path) -> Path:
    """Build a wheel or an sdist of this tree, without the network, and return its path."""
    command = [sys.executable, "-m", "build", "-q", "--no-isolation", f"--{kind}", "--outdir"]
    _run([*command, str(folder), str(ROOT)], cwd=folder)
    (path,) = folder.iterdir()
    return path


def install(wheel: Path, folder: Path) -> Path:
    """Install a wheel in a new environment, and return its folder of commands.

    The dependencies are those of the tests' own environment.
    """
    _run([sys.executable, "-m", "venv", "--without-pip", str(folder)], cwd=folder.parent)
    commands = folder / "bin"
    pip = [sys.executable, "-m", "pip", "--python", str(commands / "python")]
    _run([*pip, "install", "-q", "--no-deps", "--no-index", str(wheel)], cwd=folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    dependencies = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (packages / "dependencies.pth").write_text("\n".join(sorted(dependencies)))
    return commands


def run_away(command: Sequence[object], folder: Path) -> str:
    """Run a command in a folder away from the clone, and return what it prints."""
    return _run([str(word) for word in command], cwd=folder)


def _run(command: list[str], cwd: Path) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {"COLUMNS": "200", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout
