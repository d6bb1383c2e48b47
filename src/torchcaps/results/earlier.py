"""The text in which earlier versions wrote the changed settings of a run."""

from torchcaps.results.typed_row import Setting

MODIFIED = "modified"
"""Column of that text, which stood in place of ``recipe_epochs`` and ``changes``."""

WORDS: dict[str, Setting] = {"True": True, "False": False, "None": None}


def split_modified(text: str, epochs: int) -> tuple[int, dict[str, Setting]]:
    """Return the recipe's epochs and the other changes, by name.

    Args:
        text: changes such as ``epochs=60 of 640 lr=0.1``; the first versions wrote "yes" or "no".
        epochs: epochs trained. The first versions did not say how many the recipe asks for; then
            the epochs count as one of the changes.
    """
    if text in ("", "no"):
        return epochs, {}
    pairs: list[list[str]] = []
    for word in text.split(" "):
        name, equals, value = word.partition("=")
        if equals:
            pairs.append([name, value])
        elif pairs:  # a value with blanks, such as a path
            pairs[-1][1] += f" {word}"
        else:
            pairs.append(["unknown", word])
    changes = {name: _value(value) for name, value in pairs}
    trained, of, whole = str(changes.get("epochs", "")).partition(" of ")
    if of and trained.isdecimal() and whole.isdecimal():
        del changes["epochs"]
        return int(whole), changes
    return epochs, changes


def _value(text: str) -> Setting:
    """Return the value whose text this is."""
    if text in WORDS:
        return WORDS[text]
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if str(value) == text and text not in ("nan", "inf", "-inf"):
            return value
    return text
