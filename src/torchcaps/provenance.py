"""The origin of a result: the code's commit, the machine, the versions, the time."""

import hashlib
import os
import platform
import subprocess
import sys
from base64 import urlsafe_b64encode
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

GIT_TIMEOUT_S = 10
PACKAGES = ("numpy", "safetensors", "typer", "triton", "matplotlib", "tensorboard")


def commit() -> tuple[str, bool]:
    """Return the commit of the running code, and whether the code differs from it.

    Without a repository, a file ``COMMIT`` at the root of a source tree names the commit. An
    installed package has its version in place of a commit, and differs from it if a module was
    edited after the installation. All else is unknown, and counts as different.
    """
    root = _root()
    try:
        return (root / "COMMIT").read_text().strip()[:40], False
    except (OSError, UnicodeDecodeError):
        pass
    if not (root / ".git").exists():
        package = _installed_package()
        return (package.version, _is_edited(package)) if package else ("unknown", True)
    try:
        name = _git(root, "rev-parse", "--short=12", "HEAD")
        # training does not read the weights that earlier runs left
        sources = ("src", ":!src/torchcaps/weights")
        return name, bool(_git(root, "status", "--porcelain", "--", *sources))
    except (OSError, subprocess.SubprocessError):
        return "unknown", True


def revision() -> str:
    """Return the commit as one word, marked where the code differs from it."""
    name, dirty = commit()
    return f"{name}-dirty" if dirty and name != "unknown" else name


def is_source_tree() -> bool:
    """Return whether this code runs from a source tree, not from an installed package."""
    return (_root() / "pyproject.toml").is_file()


def _root() -> Path:
    return Path(__file__).resolve().parents[2]


def _installed_package() -> metadata.Distribution | None:
    """Return the installed distribution that this file belongs to, if there is one."""
    try:
        package = metadata.distribution("torchcaps")
    except metadata.PackageNotFoundError:
        return None
    installed = Path(str(package.locate_file("torchcaps/provenance.py")))
    return package if installed.resolve() == Path(__file__).resolve() else None


def _is_edited(package: metadata.Distribution) -> bool:
    """Return whether a module of an installed package differs from what was installed."""
    for file in package.files or []:
        if file.suffix != ".py" or file.hash is None:
            continue
        try:
            digest = hashlib.new(file.hash.mode, Path(str(file.locate())).read_bytes()).digest()
        except OSError:
            return True
        if urlsafe_b64encode(digest).rstrip(b"=").decode() != file.hash.value:
            return True
    return False


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), *arguments],
        capture_output=True,
        text=True,
        timeout=GIT_TIMEOUT_S,
        check=True,
    )
    return done.stdout.strip()


def date() -> str:
    """Return the time in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def hardware(device: torch.device) -> str:
    """Return the name of the GPU, or the number of threads and the processor."""
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
    """Return the peak memory in MiB: of tensors on a GPU, of the process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) >> 20
    if sys.platform == "win32":
        return 0
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used >> (20 if sys.platform == "darwin" else 10)


def environment() -> dict[str, Any]:
    """Return the facts about code, machine and versions that a bug report needs."""
    name, dirty = commit()
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "commit": f"{name} with changes" if dirty else name,
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "none",
        "gpus": ", ".join(gpus) or "none",
        **{package: _version(package) for package in PACKAGES},
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
