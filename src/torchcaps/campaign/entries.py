"""The list of a campaign: one recipe per line, with its seeds and settings."""

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torchcaps.errors import InputError, TorchcapsError, UsageError
from torchcaps.recipes import Recipe
from torchcaps.recipes.tools.loading import find_recipe
from torchcaps.train.options import check_seed
from torchcaps.train.outputs.folder import SPEED_SETTINGS, default_folder

SEEDS = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")
MAX_SEEDS = 1000
FLAGS = ("watch-test", "deterministic")
"""Options of ``torchcaps train`` that a line may ask for with ``=yes``."""

HEADING = re.compile(r"# (\d+\. .+)")
"""A comment that starts a section, such as ``# 3. MultiMNIST``."""


@dataclass(frozen=True)
class Entry:
    """One run of a campaign.

    Attributes:
        recipe: the recipe with its changed settings.
        source: the recipe as the list names it, such as a name or ``my_recipe.py:recipe``.
        seed: the seed.
        settings: changed settings as ``key=value`` texts.
        flags: options of ``torchcaps train``, such as ``watch-test``.
    """

    recipe: Recipe
    source: str
    seed: int = 0
    settings: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The run as one line, such as ``sabour2017/mnist seed 1 epochs=5``."""
        return " ".join((f"{self.recipe.name} seed {self.seed}", *self.settings))

    def folder(self, runs: Path) -> Path:
        """Return the run folder; runs with changed settings have folders of their own."""
        changes = [text for text in self.settings if text.partition("=")[0] not in SPEED_SETTINGS]
        words = [re.sub(r"[^\w.=-]", "-", text) for text in sorted(changes)]
        folder = runs / default_folder(self.recipe.name, self.seed).relative_to("runs")
        return folder.with_name("-".join((folder.name, *words)))


def read_list(path: str | Path) -> list[Entry]:
    """Return the runs of a list, in order.

    Each line names a recipe, then optional words: ``seeds=0-2,5``, settings such as ``epochs=5``,
    ``watch-test=yes`` and ``deterministic=yes``. A ``#`` starts a comment.
    """
    entries = [entry for section in read_sections(path).values() for entry in section]
    if not entries:
        raise InputError(f"the list {path} names no recipe: write one per line")
    names = Counter(entry.name for entry in entries)
    if twice := sorted(name for name, count in names.items() if count > 1):
        raise UsageError(f"{path} names {twice[0]} twice: remove one of the lines")
    return entries


def read_sections(path: str | Path) -> dict[str, list[Entry]]:
    """Return the runs of a list by section; lines before the first heading are in section ""."""
    sections: dict[str, list[Entry]] = {"": []}
    section = ""
    for number, line in enumerate(_read_lines(path), 1):
        if heading := HEADING.fullmatch(line):
            section = heading[1]
            sections.setdefault(section, [])
        try:
            sections[section] += parse_line(line)
        except (TorchcapsError, ValueError) as error:
            raise UsageError(f"{path}, line {number}: {error}") from None
    return sections


def _read_lines(path: str | Path) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise InputError(f"the list {path} cannot be read: {reason}") from None


def parse_line(line: str) -> Iterator[Entry]:
    """Yield the runs of one line."""
    words = shlex.split(line, comments=True)
    if not words:
        return
    source, seeds, settings, flags = words[0], [0], [], []
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if key == "seeds":
            seeds = parse_seeds(value)
        elif key in FLAGS:
            if (equals, value) != ("=", "yes"):
                raise UsageError(f"{word!r} must be {key}=yes, or left out")
            flags.append(key)
        else:
            settings.append(word)
    recipe = find_recipe(source).parse(settings)
    for seed in seeds:
        yield Entry(recipe, source, seed, tuple(settings), tuple(flags))


def parse_seeds(text: str) -> list[int]:
    """Return the seeds of a text such as ``0-2,5``."""
    if not SEEDS.fullmatch(text):
        raise UsageError(f"seeds={text} must be numbers and ranges, such as seeds=0-2,5")
    seeds: dict[int, None] = {}
    for part in text.split(","):
        low, _, high = part.partition("-")
        first, last = int(low), int(high or low)
        check_seed(last)
        if not 0 <= last - first < MAX_SEEDS:
            raise UsageError(f"seeds={text} must count up, at most {MAX_SEEDS} seeds in a range")
        seeds.update(dict.fromkeys(range(first, last + 1)))
    return list(seeds)
