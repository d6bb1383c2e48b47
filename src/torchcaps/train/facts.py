"""What a result must say about where it comes from: code, machine, versions."""

import hashlib
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from torchcaps.models import Network
from torchcaps.recipes import Recipe
from torchcaps.train.process import Process

__all__ = ["HOW", "commit", "date", "environment", "hardware", "peak_mib", "result_row", "revision"]

HOW = ("compile", "channels_last")
"""Settings that change how fast a step is, and nothing of what it computes but its rounding."""


def commit() -> tuple[str, bool]:
    """The commit of this source tree, and whether files differ from it or it is unknown.

    A file ``COMMIT`` at the root of the tree names it where a copy travels without its history.
    """
    root = Path(__file__).resolve().parents[3]
    try:
        return (root / "COMMIT").read_text().strip()[:40], False
    except (OSError, UnicodeDecodeError):
        pass
    try:
        name = _git(root, "rev-parse", "--short=12", "HEAD")
        where = ("src", ":!src/torchcaps/weights")  # a run does not read what earlier ones wrote
        return name, bool(_git(root, "status", "--porcelain", "--", *where))
    except (OSError, subprocess.SubprocessError):
        return "unknown", True


def revision() -> str:
    """The commit in one word."""
    name, dirty = commit()
    return f"{name}-dirty" if dirty and name != "unknown" else name


def _git(root: Path, *arguments: str) -> str:
    if not (root / ".git").exists():
        raise FileNotFoundError("no repository")
    done = subprocess.run(
        ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=10, check=True
    )
    return done.stdout.strip()


def date() -> str:
    """Now, in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def hardware(device: torch.device) -> str:
    """The GPU's name, or how many threads of which processor."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{torch.get_num_threads()} CPU threads ({_processor()})"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def peak_mib(device: torch.device) -> int:
    """The most memory used so far: of the GPU by tensors, of the CPU by the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) >> 20
    if sys.platform == "win32":
        return 0
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used >> (20 if sys.platform == "darwin" else 10)


def result_row(
    recipe: Recipe,
    network: Network,
    process: Process,
    *,
    seed: int,
    own: Path | None,
    test: float | None,
    validation: float | None,
    seconds: float,
    images_per_s: float,
    weights: Path,
) -> dict[str, Any]:
    """The row of a finished run; ``modified`` says what makes it no published row."""
    name, dirty = commit()
    changed = [f"{key}={value}" for key, value in recipe.changed.items() if key not in HOW]
    if own is not None:
        changed.append(f"data={own}")
    return {
        "recipe": recipe.name,
        "seed": seed,
        "test": test,
        "validation": validation,
        # a number on other images, or of several networks together, is not this one's
        "paper": recipe.published.value if own is None and recipe.ensemble == 1 else None,
        "parameters": network.n_parameters,
        "epochs": recipe.epochs,
        "seconds": seconds,
        "images_per_s": images_per_s,
        "peak_mib": peak_mib(process.device),
        "modified": " ".join(changed),
        "dirty": dirty,
        "commit": name,
        "gpu": f"{process.world} x " * (process.world > 1) + hardware(process.device),
        "torch": torch.__version__,
        "date": date(),
        "weights_sha256": hashlib.sha256(weights.read_bytes()).hexdigest(),
    }


def environment() -> dict[str, Any]:
    """What a bug report needs."""
    from torchcaps import __version__
    from torchcaps.data import data_folder

    name, dirty = commit()
    versions = {}
    for package in ("numpy", "safetensors", "typer", "triton", "matplotlib", "tensorboard"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "torchcaps": __version__,
        "commit": f"{name} with changes" if dirty else name,
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "none",
        "gpus": ", ".join(gpus) or "none",
        **versions,
        "data folder": str(data_folder(None)),
    }
