"""The zoo without what a test registers, and a user's recipe file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torchcaps.models import ZOO

__all__ = ["copy_recipe", "restored_zoo"]


@contextmanager
def restored_zoo() -> Iterator[None]:
    """Forget the networks that are registered inside."""
    before = dict(ZOO)
    try:
        yield
    finally:
        ZOO.clear()
        ZOO.update(before)


def copy_recipe(folder: Path, *, more: str = "", name: str = "my_recipe.py") -> Path:
    """Copy the user's recipe file into a folder, with more lines at its end."""
    path = folder / name
    path.write_text(Path(__file__).with_name("my_recipe.py").read_text() + more)
    return path
