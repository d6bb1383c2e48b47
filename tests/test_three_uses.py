"""Three uses from end to end, run from the source tree; test_installed plays them from a wheel."""

from pathlib import Path

import pytest

from helpers.commands import invoke
from helpers.registry import copy_recipe, restored_zoo
from helpers.three_uses import play


def torchcaps(*words: str | Path) -> str:
    result = invoke(*words)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_student_an_engineer_and_a_researcher_reach_their_goals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = copy_recipe(tmp_path)
    with restored_zoo():
        play(torchcaps, tmp_path, recipe, files=12, epochs=4, other=f"{recipe}:wider")
