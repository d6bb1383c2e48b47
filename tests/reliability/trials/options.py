"""What a user may write after ``train`` and ``--set``: right values taken, wrong ones refused."""

import random
import string
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from torchcaps.recipes import RECIPES, get
from torchcaps.recipes.base import RANGES

WHOLE = (
    "iterations",
    "resize",
    "epochs",
    "batch_size",
    "coefficient_every",
    "limit",
    "test_limit",
    "test_draws",
    "norm_batch",
)
FRACTION = ("label_smoothing", "average")
REAL = ("lr", "weight_decay", "warmup", "clip", "coefficient_lr", "reconstruction_weight")
TRUTH = ("decay_all", "hold_out", "channels_last", "compile")
KEYS = (*WHOLE, *FRACTION, *REAL, *TRUTH, "precision")
NAME = "demo/strokes-dynamic"
HOSTILE = ("__import__('os')", "$(true)", "../..", "a\nb", "\x00", "💊", "''", "[1]", "{}", "None")


def trials(first: int, count: int) -> Iterator[str]:
    """Each kind of right and wrong writing in turn, to the recipe and to the command."""
    with tempfile.TemporaryDirectory(prefix="torchcaps-options-") as name:
        for number in range(first, first + count):
            rng = random.Random(f"option {number}")
            kind = list(KINDS)[number % len(KINDS)]
            try:
                KINDS[kind](rng, Path(name) / "run")
                yield ""
            except (AssertionError, pytest.fail.Exception) as error:
                yield f"option {number}, {kind}: {error}"
            except Exception as error:
                yield f"option {number}, {kind}: {type(error).__name__} {error}"


def right(rng: random.Random, out: Path) -> None:
    key = rng.choice(KEYS)
    value: bool | int | float | str
    if key in WHOLE:
        value = rng.choice((1, 2, 7, 64, 100))
    elif key in FRACTION:
        value = rng.choice((0.0, 0.25, 0.99))
    elif key in REAL:
        value = rng.choice((1e-5, 0.1, 3.0))
    elif key in TRUTH:
        value = rng.random() < 0.5
    else:
        value = rng.choice(("auto", "float32", "bfloat16"))
    written = str(value).lower() if isinstance(value, bool) else str(value)
    changed = get(NAME).parse([f"{key}={written}"])
    found = getattr(changed, key)
    assert (found, type(found)) == (value, type(value)), f"{key}={written} became {found!r}"
    kept = {k: v for k, v in changed.settings().items() if k != key}
    assert kept == {k: v for k, v in get(NAME).settings().items() if k != key}
    assert (key in changed.changed) == (value != getattr(get(NAME), key))


def wrong_type(rng: random.Random, out: Path) -> None:
    key = rng.choice(KEYS)
    words: tuple[str, ...] = ("", "many", "1,5", "0x10", "1.5.2", *HOSTILE)
    if key in WHOLE:
        words = (*words, "1.5", "1e3", "true", "nan")
    elif key in TRUTH:
        words = (*words, "2", "maybe", "1.0", "-1")
    elif key == "precision":
        words = (*words, "float16", "FLOAT32", "32")
    else:
        words = (*words, "nan", "inf", "-inf", "true")
    refused(f"{key}={rng.choice(words)}", key, out)


def wrong_range(rng: random.Random, out: Path) -> None:
    key = rng.choice((*WHOLE, *FRACTION, *REAL))
    values = ["-1", "-0.001", "-1e30", "1e400"]
    if key in WHOLE:
        values = ["-1", "-1000000", str(10**12), str(10**40)]
        if RANGES[key][0] > 0:
            values.append("0")
    elif key in FRACTION:
        values += ["1", "1.0", "2", "1e9"]
    elif key == "lr":
        values += ["0", "0.0", "-0.0", "1e7"]
    refused(f"{key}={rng.choice(values)}", key, out)


def misspelt_key(rng: random.Random, out: Path) -> None:
    key = rng.choice([key for key in KEYS if len(key) > 3])
    written = key
    while written in KEYS:
        written = misspelt(key, rng)
    refused(f"{written}=1", key, out)


def misspelt_recipe(rng: random.Random, out: Path) -> None:
    name = rng.choice(list(RECIPES))
    written = name
    while written in RECIPES:
        written = misspelt(name, rng)
    said = command([written, "--out", str(out)], out)
    assert "did you mean" in said, f"no name is offered for {written!r}: {said}"


def no_setting(rng: random.Random, out: Path) -> None:
    letters = string.ascii_letters + string.digits + " _-./:é\n"
    written = "".join(rng.choices(letters, k=rng.randint(0, 12)))
    if rng.random() < 0.5:
        written = f"{written}={rng.choice(HOSTILE)}"
    refused(f"no {written}", "", out)


def odd_option(rng: random.Random, out: Path) -> None:
    wrong = (
        ("--seed", "-1"),
        ("--seed", "one"),
        ("--seeds", "0"),
        ("--device", "tpu"),
        ("--device", "cuda:99"),
        ("--save-every", "-1"),
        ("--save-every", "soon"),
        ("--epochs", "3"),
        ("--resume",),
        ("--set",),
        ("another", "word"),
    )
    command([NAME, "--out", str(out), *rng.choice(wrong)], out, lines=12)


def misspelt(word: str, rng: random.Random) -> str:
    """The word with one letter gone, doubled, exchanged or swapped."""
    at = rng.randrange(len(word) - 1)
    letter = rng.choice(string.ascii_lowercase)
    return rng.choice(
        (
            word[:at] + word[at + 1 :],
            word[:at] + word[at] + word[at:],
            word[:at] + letter + word[at + 1 :],
            word[:at] + word[at + 1] + word[at] + word[at + 2 :],
        )
    )


def refused(written: str, key: str, out: Path) -> None:
    """Assert that a setting is refused with a sentence, by the recipe and by the command."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        get(NAME).parse([written])
    message = str(caught.value)
    assert key in message, f"{key} is not named for {written!r}: {message}"
    assert "\n" not in message, f"more than a sentence: {message}"
    assert len(message) < 450, f"a long message: {message}"
    if "\x00" not in written:
        said = command([NAME, "--out", str(out), "--set", written], out)
        assert message in said, f"the command says {said!r}"


def command(words: list[str], out: Path, *, lines: int = 1) -> str:
    """Assert that the command refuses its words with exit code 2; what it says."""
    from torchcaps.cli import app

    done = CliRunner().invoke(app, ["train", *words])
    said = done.output
    assert done.exit_code == 2, f"exit code {done.exit_code} for {words}: {said} {done.exception!r}"
    assert "Traceback" not in said, said
    assert len(said.strip().splitlines()) <= lines, f"more than {lines} lines: {said}"
    assert not (out / "checkpoints").exists(), "it was trained"
    return said


KINDS: dict[str, Callable[[random.Random, Path], None]] = {
    "right value": right,
    "wrong type": wrong_type,
    "wrong range": wrong_range,
    "misspelt key": misspelt_key,
    "misspelt recipe": misspelt_recipe,
    "no setting": no_setting,
    "odd option": odd_option,
}
