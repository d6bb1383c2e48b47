"""A row of a table as a frozen dataclass: checked values, as plain data and as cells of a CSV."""

import json
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Any, ClassVar, NamedTuple, Self

Setting = bool | int | float | str | None
"""A value of a recipe's setting, as JSON can hold it."""


class Column(NamedTuple):
    """The type of a column, whether its values may be None, and whether files must have it."""

    kind: type
    optional: bool
    required: bool


@dataclass(frozen=True, kw_only=True)
class TypedRow:
    """A row of a table; the fields of a subclass are its columns, in order.

    Fields are bool, int, float, str, a dictionary of settings, or one of these and None.
    """

    TITLE: ClassVar[str]
    """The name of the table in error messages."""
    EARLIER: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Columns of earlier versions, and the columns that replace each."""

    @classmethod
    @cache
    def columns(cls) -> dict[str, Column]:
        """Return each column's type, in order."""
        hints = typing.get_type_hints(cls)
        columns = {}
        for field in fields(cls):
            hint = hints[field.name]
            optional = isinstance(hint, types.UnionType)
            kind = typing.get_args(hint)[0] if optional else hint
            columns[field.name] = Column(
                typing.get_origin(kind) or kind, optional, not optional and field.default is MISSING
            )
        return columns

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data, ready for JSON."""
        return {name: getattr(self, name) for name in self.columns()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build a row from :meth:`to_dict`'s data; a missing optional value is None.

        Raises:
            ValueError: a value is missing or of another type; the message names the column.
        """
        checked: dict[str, Any] = {}
        for name, (kind, optional, _) in cls.columns().items():
            value = values.get(name)
            if value is None and optional:
                checked[name] = None
                continue
            accepted = (int, float) if kind is float else kind
            fits = isinstance(value, accepted) and (kind is bool or not isinstance(value, bool))
            if not fits or (kind is dict and not _are_settings(value)):
                raise ValueError(f"{name} is missing or of another type")
            checked[name] = value
        return cls(**checked)

    def to_cells(self) -> list[str]:
        """Return the row as cells of a CSV file; fractions keep four decimal places."""
        return [_to_cell(getattr(self, name)) for name in self.columns()]

    @classmethod
    def from_cells(cls, cells: Mapping[str, str]) -> Self:
        """Build a row from the cells of a CSV file; a column that is not there is empty."""
        values: dict[str, Any] = {
            name: _from_cell(name, cells.get(name, ""), kind, optional)
            for name, (kind, optional, _) in cls.columns().items()
        }
        return cls(**values)

    def check_numbers(self) -> None:
        """Refuse numbers that are negative or not finite."""
        for name, (kind, *_) in self.columns().items():
            value = getattr(self, name)
            if kind in (int, float) and value is not None and not 0 <= value < math.inf:
                raise ValueError(f"{name} must be a number of at least 0, not {value}")


def _to_cell(value: object) -> str:
    if value is None or value == {}:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{round(value, 4)}"
    if isinstance(value, dict):
        return json.dumps(value)
    return " ".join(str(value).split())


def _from_cell(name: str, cell: str, kind: type, optional: bool) -> Any:
    if not cell and optional:
        return None
    if kind is str:
        return cell
    if kind is bool:
        if cell not in ("yes", "no"):
            raise ValueError(f"{name} must be yes or no, not {cell!r}")
        return cell == "yes"
    if kind is dict:
        return _settings(name, cell)
    try:
        return int(cell) if kind is int else float(cell)
    except ValueError:
        raise ValueError(f"{name} must be a number, not {cell!r}") from None


def _settings(name: str, cell: str) -> dict[str, Setting]:
    """Parse a JSON object of settings."""
    try:
        settings = json.loads(cell or "{}")
    except (ValueError, RecursionError):
        settings = None
    if not _are_settings(settings):
        raise ValueError(f"{name} must be a JSON object of settings, not {cell!r}")
    return dict(settings)


def _are_settings(value: Any) -> bool:
    """Return whether a value is a dictionary of plain, finite values."""
    return isinstance(value, dict) and all(
        math.isfinite(v) if isinstance(v, float) else isinstance(v, bool | int | str | None)
        for v in value.values()
    )
