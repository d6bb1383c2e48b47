"""The code behind a result is named: by its commit, or by the version of an installed package."""

import hashlib
import shutil
import subprocess
from base64 import urlsafe_b64encode
from importlib import metadata
from pathlib import Path

import pytest
import torch

from torchcaps import provenance


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source tree that the code seems to run from."""
    file = tmp_path / "src" / "torchcaps" / "provenance.py"
    file.parent.mkdir(parents=True)
    shutil.copy(provenance.__file__, file)
    monkeypatch.setattr(provenance, "__file__", str(file))
    return tmp_path


def git(tree: Path, *words: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", str(tree), *who, *words], check=True, capture_output=True)


def test_a_repository_is_named_by_its_commit_and_says_what_differs(tree: Path) -> None:
    git(tree, "init", "-q")
    git(tree, "add", ".")
    git(tree, "commit", "-qm", "first")
    name, dirty = provenance.commit()
    assert (len(name), dirty) == (12, False)
    assert provenance.revision() == name
    (tree / "src/torchcaps/weights").mkdir()
    (tree / "src/torchcaps/weights/x.safetensors").touch()
    (tree / "notes.txt").touch()
    assert provenance.commit() == (name, False)
    (tree / "src/torchcaps/new.py").touch()
    assert provenance.revision() == f"{name}-dirty"


def test_a_copy_without_history_is_unknown_or_says_its_commit(tree: Path) -> None:
    assert provenance.commit() == ("unknown", True)
    assert provenance.revision() == "unknown"
    (tree / "COMMIT").write_text("0123456789ab\n")
    assert provenance.commit() == ("0123456789ab", False)


def test_an_installed_package_has_its_version(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tree / "src"
    facts = installed / "torchcaps-1.2.dist-info" / "METADATA"
    facts.parent.mkdir()
    facts.write_text("Metadata-Version: 2.1\nName: torchcaps\nVersion: 1.2\n")
    package = metadata.PathDistribution(facts.parent)
    monkeypatch.setattr(metadata, "distribution", lambda name: package)
    assert provenance.commit() == ("1.2", False)
    monkeypatch.setattr(provenance, "__file__", str(tree / "elsewhere" / "a" / "provenance.py"))
    assert provenance.commit() == ("unknown", True)


def test_an_installed_package_that_was_edited_differs(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = tree / "src" / "torchcaps-1.2.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: torchcaps\nVersion: 1.2\n")
    file = tree / "src/torchcaps/provenance.py"
    digest = urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest()).rstrip(b"=").decode()
    (facts / "RECORD").write_text(f"torchcaps/provenance.py,sha256={digest},1\n")
    monkeypatch.setattr(metadata, "distribution", lambda name: metadata.PathDistribution(facts))
    assert provenance.commit() == ("1.2", False)
    file.write_text(file.read_text() + "\n")
    assert provenance.commit() == ("1.2", True)
    file.unlink()
    assert provenance.commit() == ("1.2", True)


def test_the_machine_is_described() -> None:
    facts = provenance.environment()
    assert facts["torch"] == torch.__version__
    assert "CPU threads" in provenance.hardware(torch.device("cpu"))
    assert provenance.peak_mib(torch.device("cpu")) > 0
