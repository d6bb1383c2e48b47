"""Importing torchcaps is quick, quiet and needs nothing but torch."""

import ast
import subprocess
import sys
import textwrap
from pathlib import Path

WATCH = """
import sys, torch
import numpy, typing, dataclasses
seen = []
def audit(event, args):
    if event in ("socket.connect", "socket.bind", "socket.getaddrinfo", "subprocess.Popen",
                 "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec"):
        seen.append(event)
    if event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+"):
        if not str(args[0]).endswith(".pyc") and "__pycache__" not in str(args[0]):
            seen.append((event, args[0]))
sys.addaudithook(audit)
"""


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_opens_no_socket_starts_no_process_and_writes_no_file() -> None:
    assert run(WATCH + "import torchcaps\nprint(seen)").strip() == "[]"


def test_the_watch_sees_what_it_should() -> None:
    code = WATCH + "import subprocess; subprocess.run(['true'])\nprint(seen)"
    assert "subprocess.Popen" in run(code)


def test_import_needs_no_optional_package() -> None:
    code = """
        import sys
        optional = ("matplotlib", "pooch", "tensorboard", "torchmetrics", "huggingface_hub",
                    "scipy", "torchvision", "timm", "typer", "rich", "safetensors", "triton", "PIL")
        for name in optional:
            sys.modules[name] = None
        import torchcaps
        print([name for name in optional if sys.modules.get(name) is not None])
    """
    assert run(code).strip() == "[]"


def test_import_adds_less_than_a_third_of_a_second() -> None:
    code = """
        import time, torch
        start = time.process_time()  # not the time that others take from it
        import torchcaps
        print(time.process_time() - start)
    """
    assert min(float(run(code)) for _ in range(3)) < 0.3


def reexports(path: str) -> set[str]:
    """Return the names that an ``__init__.py`` imports as themselves."""
    tree = ast.parse(Path(path).read_text())
    imports = [
        alias for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
    public = [a for a in imports if not (a.asname or "").startswith("_") and a.name != "*"]
    assert all(alias.asname == alias.name for alias in public)
    return {alias.name for alias in public}


def test_the_public_names_are_those_that_the_package_reexports() -> None:
    import torchcaps
    from torchcaps import routing

    of_routings = reexports(routing.__file__) | {"ROUTINGS"}
    assert torchcaps.__all__ == sorted(reexports(torchcaps.__file__) | of_routings)
    for name, make in routing.ROUTINGS.items():
        assert getattr(make, "__name__", "") in torchcaps.__all__, name
