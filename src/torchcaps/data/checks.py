"""Arguments that are numbers: one sentence for those that cannot be meant."""

from typing import SupportsIndex


def check_whole(name: str, value: object, *, least: int | None = None) -> None:
    """Refuse what is not a whole number, or one below ``least``."""
    if not isinstance(value, SupportsIndex) or isinstance(value, bool):
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    if least is not None and value.__index__() < least:
        raise ValueError(f"{name} must be at least {least}, not {value!r}")
