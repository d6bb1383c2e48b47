"""Settings of a recipe: what an override changes, and what it refuses."""

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from torchcaps.recipes import RECIPES
from torchcaps.recipes.base import RANGES, SETTABLE


def test_an_override_changes_what_it_names_and_remembers_it() -> None:
    recipe = RECIPES["sabour2017/mnist"]
    changed = recipe.override(epochs=5, lr=1, precision="float32")
    assert (changed.epochs, changed.lr, changed.precision) == (5, 1.0, "float32")
    assert changed.changed == {"epochs": 5, "lr": 1.0, "precision": "float32"}
    again = changed.override(clip=2.0)
    assert set(again.changed) == {"epochs", "lr", "precision", "clip"}
    assert recipe.changed == {}
    assert recipe.override(epochs=recipe.epochs).changed == {}
    assert recipe.parse(["epochs=5", "compile=true", "iterations=2"]).changed == {
        "epochs": 5,
        "compile": True,
        "iterations": 2,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epochs", "'epochs' must be key=value, such as epochs=5"),
        ("epcohs=5", "a recipe has no setting 'epcohs': did you mean 'epochs'?"),
        ("=5", "a recipe has no setting ''"),
        ("loss=margin", "a recipe has no setting 'loss'"),
        ("epochs=5.5", "epochs must be a whole number, not '5.5'"),
        ("epochs=0", "epochs must be between 1 and 1e\\+06, not 0"),
        ("lr=-1", "lr must be between 0 and 1e\\+06, not -1"),
        ("lr=0", "lr must be above 0, not 0"),
        ("lr=nan", "lr must be a finite number, not nan"),
        ("clip=inf", "clip must be a finite number, not inf"),
        ("compile=maybe", "compile must be true or false, not 'maybe'"),
        ("precision=float8", "precision must be one of auto, float32, bfloat16, not 'float8'"),
        ("label_smoothing=1", "label_smoothing must be between 0 and 0.999, not 1"),
    ],
)
def test_a_wrong_setting_gets_one_sentence(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        RECIPES["sabour2017/mnist"].parse([text])


numbers = st.one_of(st.integers(), st.floats()).map(str)


@given(st.sampled_from(sorted(SETTABLE)), st.one_of(st.text(), numbers))
@settings(deadline=None, max_examples=300)
def test_any_text_gives_a_recipe_or_one_sentence(key: str, value: str) -> None:
    recipe = RECIPES["yang2021/mnist-l1"]
    changed, said = recipe, f"{key} must be "
    try:
        changed = recipe.parse([f"{key}={value}"])
    except ValueError as error:
        said = str(error)
    assert said.startswith(f"{key} must be ")
    assert "\n" not in said
    after: Any = getattr(changed, key)
    assert changed.changed in ({}, {key: after})
    if changed.changed:
        low, high = RANGES.get(key, (0, 1))
        assert SETTABLE[key] is str or low <= after <= high
        assert type(after) is SETTABLE[key]


@given(st.text(max_size=30))
@settings(deadline=None, max_examples=300)
def test_any_text_at_all_is_refused_in_one_sentence_or_understood(text: str) -> None:
    recipe = RECIPES["sabour2017/mnist"]
    if text.partition("=")[0] in SETTABLE:
        return
    with pytest.raises(ValueError, match=r"must be key=value|has no setting") as caught:
        recipe.parse([text])
    assert len(str(caught.value).splitlines()) == 1


@given(st.sampled_from(sorted(SETTABLE)), st.integers(0, 2), st.characters())
@settings(deadline=None)
def test_a_slip_of_the_finger_is_answered_with_a_setting(key: str, at: int, slip: str) -> None:
    wrong = key[:at] + slip + key[at:]
    if wrong in SETTABLE or "=" in wrong:
        return
    with pytest.raises(ValueError, match="did you mean '") as caught:
        RECIPES["sabour2017/mnist"].parse([f"{wrong}=1"])
    assert str(caught.value).rstrip("?").split("'")[-2] in SETTABLE
