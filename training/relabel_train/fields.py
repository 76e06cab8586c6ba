"""Checked access to the values of a JSON object."""

from __future__ import annotations

import math
from collections.abc import Collection
from pathlib import Path
from typing import Any, NoReturn

from relabel_train.folder import AGAIN, LookupFileError, brief

LARGEST = 1 << 53
"""Default upper bound of integers."""


class Fields:
    """A JSON object of a description. Every method raises LookupFileError naming the file and the field.

    `path`: the file, for messages. `within`: prefix of the names of fields in messages.
    """

    def __init__(self, path: Path, body: dict[str, Any], within: str = "") -> None:
        self.path, self.body, self.within = path, body, within

    def names(self, expected: Collection[str]) -> None:
        """Raise unless the names are exactly the expected ones."""
        if set(self.body) != set(expected):
            lacking = ", ".join(sorted(set(expected) - set(self.body))[:5])
            unknown = ", ".join(map(brief, sorted(set(self.body) - set(expected))[:5]))
            parts = [f"names no {lacking}"] * bool(lacking) + [f"has unknown names {unknown}"] * bool(unknown)
            raise LookupFileError(f"{self.path}: {self.within}{' and '.join(parts)}. {AGAIN}")

    def text(self, name: str, among: Collection[str] | None = None) -> str:
        """Return a string, one of `among` if given."""
        value = self._value(name)
        if not isinstance(value, str) or (among is not None and value not in among):
            self.refuse(name, "a string" if among is None else f"one of {', '.join(among)}")
        return value

    def flag(self, name: str) -> bool:
        """Return true or false."""
        value = self._value(name)
        if not isinstance(value, bool):
            self.refuse(name, "true or false")
        return value

    def integer(self, name: str, low: int = 0, high: int = LARGEST) -> int:
        """Return an integer from `low` to `high`."""
        value = self._value(name)
        if not _is_integer(value, low, high):
            self.refuse(name, f"an integer from {low} to {high}")
        return int(value)

    def integers(self, name: str, low: int = 0, high: int = LARGEST) -> tuple[int, ...]:
        """Return a list of integers from `low` to `high`."""
        value = self._value(name)
        if not isinstance(value, list) or not all(_is_integer(v, low, high) for v in value):
            self.refuse(name, f"a list of integers from {low} to {high}")
        return tuple(value)

    def span(self, name: str, low: int = 0, high: int = LARGEST) -> tuple[int, int]:
        """Return a first and one past a last number, at least one apart."""
        value = self.integers(name, low, high)
        if len(value) != 2 or value[0] >= value[1]:
            self.refuse(name, "a first and one past a last number")
        return value[0], value[1]

    def bounds(self, name: str) -> tuple[float, float]:
        """Return two finite numbers, the first below the second."""
        value = self._value(name)
        # By exact type: a bool is an int to isinstance.
        numbers = isinstance(value, list) and len(value) == 2 and all(type(v) in (int, float) for v in value)
        if not numbers or not all(abs(v) < 1e300 and math.isfinite(v) for v in value) or value[0] >= value[1]:
            self.refuse(name, "two finite numbers, the smaller one first")
        return value[0], value[1]

    def texts(self, name: str, among: Collection[str]) -> tuple[str, ...]:
        """Return a list of distinct strings of `among`, at least one."""
        value = self._value(name)
        if not isinstance(value, list) or not value or any(not isinstance(v, str) or v not in among for v in value):
            self.refuse(name, f"a list of {', '.join(among)}")
        if len(set(value)) < len(value):
            self.refuse(name, "distinct values")
        return tuple(value)

    def object(self, name: str) -> Fields:
        """Return an object."""
        value = self._value(name)
        if not isinstance(value, dict):
            self.refuse(name, "an object")
        return Fields(self.path, value, f"{self.within}{name}: ")

    def objects(self, name: str) -> list[Fields]:
        """Return a list of objects, at least one."""
        value = self._value(name)
        if not isinstance(value, list) or not value or not all(isinstance(v, dict) for v in value):
            self.refuse(name, "a list of objects")
        return [Fields(self.path, v, f"{self.within}{name} {i}: ") for i, v in enumerate(value)]

    def refuse(self, name: str, expected: str) -> NoReturn:
        """Raise an error for the value of a field."""
        actual = brief(self.body.get(name))
        raise LookupFileError(f"{self.path}: {self.within}{name}: expected {expected}, found {actual}. {AGAIN}")

    def _value(self, name: str) -> Any:
        """Return the value of a field, which must exist."""
        if name not in self.body:
            raise LookupFileError(f"{self.path}: {self.within}names no {name}. {AGAIN}")
        return self.body[name]


def _is_integer(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
