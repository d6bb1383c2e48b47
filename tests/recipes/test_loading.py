"""Recipes in files of users: run only when named, and refused in one sentence with the line."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import torchcaps as tc
from helpers.registry import copy_recipe, restored_zoo
from torchcaps.recipes import RECIPES, get
from torchcaps.recipes.tools.loading import find_recipe, load_recipe


@pytest.fixture(autouse=True)
def _restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    with restored_zoo():
        yield


def test_a_recipe_and_a_function_that_returns_one_are_loaded(tmp_path: Path) -> None:
    copy_recipe(tmp_path)
    recipe = load_recipe("./my_recipe.py:recipe")
    assert (recipe.name, recipe.network, recipe.batch_size) == ("me/strokes", "me/tiny", 32)
    assert type(tc.build(recipe.network)).__name__ == "TinyNet"
    assert load_recipe(f"{tmp_path}/my_recipe.py:wider").batch_size == 64
    assert find_recipe("my_recipe.py:recipe") is recipe
    assert find_recipe("sabour2017/mnist") is RECIPES["sabour2017/mnist"]


def test_a_file_runs_once_and_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "count.py"
    path.write_text("with open('log', 'a') as log:\n    log.write('x')\n")
    for _ in range(2):
        with pytest.raises(ValueError, match="has no 'recipe'"):
            load_recipe("count.py:recipe")
    assert Path("log").read_text() == "x"
    path.write_text(
        path.read_text() + "from torchcaps.recipes import get\nr = get('choi2019/mnist')\n"
    )
    assert load_recipe("count.py:r").name == "choi2019/mnist"
    assert Path("log").read_text() == "xx"


def test_nothing_but_a_file_that_is_named_runs(tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text("open('ran', 'w')\n")
    for name in ("evil.py:recipe", "evil:recipe", "evil", "./evil.py"):
        with pytest.raises(ValueError, match="there is no recipe"):
            get(name)
        with pytest.raises(ValueError, match="there is no network"):
            tc.build(name)
    assert not Path("ran").exists()


def test_modules_beside_the_file_can_be_imported_while_it_runs(tmp_path: Path) -> None:
    (tmp_path / "parts_of_mine.py").write_text("EPOCHS = 7\n")
    (tmp_path / "uses.py").write_text(
        "from parts_of_mine import EPOCHS\nfrom torchcaps.recipes import get\n"
        "recipe = get('sabour2017/mnist').override(epochs=EPOCHS)\n"
    )
    recipe = load_recipe("uses.py:recipe")
    assert recipe.changed == {"epochs": 7}
    with pytest.raises(ModuleNotFoundError):
        __import__("parts_of_mine_too")


@pytest.mark.parametrize(
    ("source", "name", "sentence"),
    [
        ("x = 1\ny = 1 / 0\n", "x", r"bad\.py, line 2: ZeroDivisionError: division by zero"),
        ("x = (\n", "x", r"bad\.py, line 1: SyntaxError: '\(' was never closed"),
        ("import no_such_module\n", "x", r"bad\.py, line 1: ModuleNotFoundError: No module named"),
        ("\nraise SystemExit(3)\n", "x", r"bad\.py, line 2: SystemExit: 3"),
        ("\n\nraise OSError('a\\nb')\n", "x", r"bad\.py, line 3: OSError: a b"),
        ("x\x00 = 1\n", "x", r"bad\.py.*: (SyntaxError|ValueError): source code"),
        ("recipe = 1\n", "recpe", r"bad\.py has no 'recpe': did you mean 'recipe'\?"),
        ("recipe = 1\n", "recipe", r"bad\.py:recipe is a int: it must be a torchcaps\.recipes\."),
        ("def make():\n    return {}['a']\n", "make", r"bad\.py, line 2: KeyError: 'a'"),
        ("def make():\n    return None\n", "make", r"bad\.py:make is a NoneType: it must be a"),
        ("\ndef make(a):\n    pass\n", "make", r"bad\.py, line 2: TypeError: make\(\) missing 1"),
        ("recipe = 1\n", "", r"bad\.py has no ''"),
        (
            "from torchcaps.recipes import get\nrecipe = get('choi2019/mnist').override(\n"
            "    epochs=0)\n",
            "recipe",
            r"bad\.py, line 2: UsageError: epochs must be between 1 and",
        ),
        (
            "from torchcaps.recipes import get\nrecipe = get('choi2019/mnist').variant('../x')\n",
            "recipe",
            r"bad\.py:recipe is named '\.\./x': a name is words of letters",
        ),
        (
            "from torchcaps.recipes import get\n"
            "recipe = get('choi2019/mnist').variant('sabour2017/mnist')\n",
            "recipe",
            r"bad\.py:recipe is named 'sabour2017/mnist' as a recipe of the package is, and diff",
        ),
    ],
)  # fmt: skip
def test_a_file_that_gives_no_recipe_is_refused(
    source: str, name: str, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "bad.py").write_text(source)
    with pytest.raises(ValueError, match=sentence) as caught:
        load_recipe(f"bad.py:{name}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("no.py:recipe", "the recipe file no.py cannot be read: No such file"),
        ("folder.py:recipe", "the recipe file folder.py cannot be read: Is a directory"),
        ("no.py", "no.py must name a recipe in a file: my_recipe.py:recipe"),
        ("recipe", "recipe must name a recipe in a file: my_recipe.py:recipe"),
    ],
)
def test_a_file_that_is_not_there_is_named(text: str, sentence: str) -> None:
    Path("folder.py").mkdir()
    with pytest.raises(ValueError, match=sentence):
        load_recipe(text)
