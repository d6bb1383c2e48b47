"""What the package index, its workflows and those who cite the package are told."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import torchcaps as tc

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
PUBLIC = Path(__file__).with_name("public_names.txt")


def workflow(name: str) -> dict[str, Any]:
    text = (ROOT / f".github/workflows/{name}.yml").read_text()
    parsed: dict[str, Any] = yaml.safe_load(text)
    return parsed


@pytest.fixture(scope="module")
def metadata() -> dict[str, Any]:
    """The metadata that a build gives to the package index."""
    command = [sys.executable, "-m", "hatchling", "metadata"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    parsed: dict[str, Any] = json.loads(done.stdout)
    return parsed


def test_public_names_leave_only_after_a_deprecation() -> None:
    pinned = PUBLIC.read_text().split()
    assert pinned == sorted(pinned)
    gone, new = set(pinned) - set(tc.__all__), set(tc.__all__) - set(pinned)
    assert not gone, f"{sorted(gone)} were public: deprecate them first, see docs/versions.md"
    assert not new, f"add {sorted(new)} to tests/{PUBLIC.name}, and a line to the changelog"


def test_readme_on_the_index_has_no_relative_links(metadata: dict[str, Any]) -> None:
    text = metadata["readme"]["text"]
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(targets) > 10
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []
    images = re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", text)
    own = "https://raw.githubusercontent.com/torchcaps/torchcaps/main/"
    assert images
    for image in images:
        assert image.startswith(own), image
        assert (ROOT / image.removeprefix(own)).is_file(), image
    pages = "https://github.com/torchcaps/torchcaps/blob/main/"
    for target in targets:
        if target.startswith(pages):
            assert (ROOT / target.removeprefix(pages).partition("#")[0]).exists(), target


def test_the_tested_versions_of_python_are_declared(metadata: dict[str, Any]) -> None:
    declared = {
        entry.rpartition(" ")[2] for entry in metadata["classifiers"] if "Python :: 3." in entry
    }
    tested = workflow("test")["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert set(tested) <= declared
    assert f">={min(declared, key=lambda v: int(v[2:]))}" == metadata["requires-python"]


def test_the_citation_is_valid_and_of_this_version() -> None:
    file = ROOT / "CITATION.cff"
    code = "import cffconvert.cli.cli as c; c.cli()"
    command = [sys.executable, "-W", "ignore", "-c", code, "--validate", "-i", file.name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    version = str(yaml.safe_load(file.read_text())["version"])
    assert tc.__version__.partition(".dev")[0] == version


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_pin_their_actions_and_may_only_read(path: Path) -> None:
    text = path.read_text()
    actions = re.findall(r"uses: (.+)", text)
    assert actions
    for action in actions:
        assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+(\.\d+)*", action), action
    assert workflow(path.stem)["permissions"] == {"contents": "read"}
    granted = {
        (path.stem, name, scope)
        for name, job in workflow(path.stem)["jobs"].items()
        for scope, level in job.get("permissions", {}).items()
        if level == "write"
    }
    assert granted <= {
        ("docs", "deploy", "pages"),
        ("docs", "deploy", "id-token"),
        ("release", "publish", "id-token"),
    }


def test_a_release_is_tried_as_a_wheel_before_it_is_published() -> None:
    jobs = workflow("release")["jobs"]
    assert jobs["publish"]["needs"] == "try"
    assert jobs["publish"]["environment"]["name"] == "pypi"
    assert jobs["try"]["needs"] == "build"
    steps = jobs["try"]["steps"]
    assert not any("checkout" in step.get("uses", "") for step in steps)
    commands = [step.get("run", "") for step in steps]
    assert commands.index("torchcaps demo") > commands.index("python -m pip install dist/*.whl")
