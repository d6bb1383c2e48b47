"""Arguments that are numbers: one sentence for those that cannot be meant."""

from typing import SupportsFloat, SupportsIndex


def check_whole(
    name: str, value: object, *, least: int | None = None, most: int | None = None
) -> None:
    """Refuse what is not a whole number, or one below ``least`` or above ``most``."""
    if not isinstance(value, SupportsIndex) or isinstance(value, bool):
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    if least is not None and value.__index__() < least:
        raise ValueError(f"{name} must be at least {least}, not {value!r}")
    if most is not None and value.__index__() > most:
        raise ValueError(f"{name} must be at most {most}, not {value!r}")


def check_sizes(**sizes: object) -> None:
    """Refuse sizes that are not whole numbers of at least 1."""
    for name, size in sizes.items():
        check_whole(name, size, least=1)


def check_range(name: str, value: object, *, least: float = 0.0) -> None:
    """Refuse what is not two numbers, ``least`` or more, in order."""
    numbers = value if isinstance(value, tuple | list) else ()
    ends = [float(end) for end in numbers if isinstance(end, SupportsFloat)]
    if len(numbers) != 2 or len(ends) != 2 or not least <= ends[0] <= ends[1] < float("inf"):
        raise ValueError(f"{name} must be {least:g} <= low <= high, not {value!r}")


def check_share(name: str, value: object) -> None:
    """Refuse what is not a probability."""
    if not isinstance(value, SupportsFloat) or not 0 <= float(value) <= 1:
        raise ValueError(f"{name} must be a probability, not {value!r}")
