"""Importing the data package does nothing but define it."""

import subprocess
import sys

SCRIPT = """
import sys
import torch, torch.utils.data, numpy, torch.nn.functional
before = set(sys.modules)
seen = []

def watch(event, arguments):
    if event.startswith(("socket.", "subprocess.", "os.exec", "os.fork", "os.mkdir", "os.rename")):
        seen.append(event)
    if event == "open" and any(letter in str(arguments[1]) for letter in "wax+"):
        if not str(arguments[0]).endswith(".pyc") and "__pycache__" not in str(arguments[0]):
            seen.append(f"{event} {arguments[:2]}")

sys.addaudithook(watch)
import torchcaps.data
print(seen)
heavy = {"pooch", "PIL", "filelock", "rich", "requests", "scipy"}
print(sorted(heavy & (set(sys.modules) - before)))
"""


def test_import_opens_no_socket_starts_no_process_and_writes_no_file() -> None:
    done = subprocess.run(
        [sys.executable, "-B", "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["[]", "[]"]
