"""Frozen values on disk, their tolerances, and differences from them.

A unit is a group of values made together, as `small/cider`. It owns `UNIT.npz` (arrays) and `UNIT.json` (all else) in
the folder of values, with `/` written as `.`. The name of an entry is `UNIT/KEY`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

VALUES = Path(__file__).with_name("values")
LIMIT = 1 << 20
"""Bytes of a file of values, at most."""
Values = dict[str, Any]
"""Key to an array, or to numbers, texts, lists and dicts of them."""


@dataclass(frozen=True)
class Tolerance:
    """Largest accepted difference of a number from its frozen value, `absolute + relative * |frozen value|`.

    Attributes
    ----------
    factor : float or None
        If given, a number may be smaller by any amount, and larger up to `factor * frozen value + absolute`.
    tied : float
        Of ids or marks in the order of `scores` beside them: those whose scores differ by less may change places.
    """

    absolute: float = 0.0
    relative: float = 0.0
    factor: float | None = None
    tied: float = 0.0

    def excess(self, frozen: Any, found: Any) -> Any:
        """Return by how much each number differs beyond what is accepted; at most 0 if it is accepted."""
        if self.factor is not None:
            return found - self.factor * frozen - self.absolute
        return np.abs(found - frozen) - self.absolute - self.relative * np.abs(frozen)

    def __str__(self) -> str:
        parts = {"absolute": self.absolute, "relative": self.relative, "factor": self.factor}
        return ", ".join(f"{name} {value:g}" for name, value in parts.items() if value) or "0"


def read_tolerances(folder: Path = VALUES) -> list[tuple[str, Tolerance]]:
    """Return pairs of a pattern of entries and their tolerance; the first pattern that matches counts."""
    lines = json.loads((folder / "tolerances.json").read_text(encoding="utf-8"))
    return [
        (pattern, Tolerance(**{k: v for k, v in line.items() if k not in ("entries", "reason")}))
        for line in lines
        for pattern in line["entries"]
    ]


def tolerance_of(name: str, tolerances: list[tuple[str, Tolerance]]) -> Tolerance:
    """Return the tolerance of an entry; that of an entry without one is 0."""
    return next((tolerance for pattern, tolerance in tolerances if fnmatchcase(name, pattern)), Tolerance())


def write(unit: str, values: Mapping[str, Any], folder: Path = VALUES) -> None:
    """Write the values of a unit."""
    arrays = {key: np.asarray(value) for key, value in values.items() if isinstance(value, np.ndarray)}
    others = {key: value for key, value in values.items() if key not in arrays}
    for ending, kept in (("npz", arrays), ("json", others)):
        path = folder / f"{unit.replace('/', '.')}.{ending}"
        path.unlink(missing_ok=True)
        if kept and ending == "npz":
            np.savez_compressed(path, allow_pickle=False, **arrays)
        elif kept:
            path.write_text(json.dumps(others, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        if kept and path.stat().st_size > LIMIT:
            raise ValueError(f"{path.name} has {path.stat().st_size:,} bytes, more than {LIMIT:,}")


def read(unit: str, folder: Path = VALUES) -> Values:
    """Return the frozen values of a unit; empty if there are none."""
    values: Values = {}
    stem = folder / unit.replace("/", ".")
    if (path := Path(f"{stem}.npz")).exists():
        with np.load(path, allow_pickle=False) as arrays:
            values |= {key: arrays[key] for key in arrays.files}
    if (path := Path(f"{stem}.json")).exists():
        values |= json.loads(path.read_text(encoding="utf-8"))
    return values


def differences(
    unit: str, frozen: Mapping[str, Any], found: Mapping[str, Any], tolerances: list[tuple[str, Tolerance]], only: str
) -> Iterator[str]:
    """Yield one line for each entry that matches `only` and differs, is missing, or is not frozen."""
    for key in sorted({*frozen, *found}):
        name = f"{unit}/{key}"
        if not fnmatchcase(name, only):
            continue
        if key not in found:
            yield f"{name}: missing; it is frozen and was not computed"
        elif key not in frozen:
            yield f"{name}: not frozen; run `python -m tests.golden freeze --only '{name}'` if it is meant to be there"
        elif (problem := _difference(key, frozen, found[key], tolerance_of(name, tolerances))) is not None:
            yield f"{name}: {problem}"


def _difference(key: str, values: Mapping[str, Any], found: Any, tolerance: Tolerance) -> str | None:
    frozen = values[key]
    if not isinstance(frozen, np.ndarray):
        return _plain_difference(frozen, json.loads(json.dumps(found)), tolerance)
    found = np.asarray(found)
    if frozen.shape != found.shape:
        return f"shape {found.shape}, frozen {frozen.shape}"
    if frozen.dtype.kind != "f" or found.dtype.kind != "f":
        wrong = frozen != found
        if tolerance.tied:
            wrong &= ~_tied(values[f"{key[: key.rfind('/') + 1]}scores"], tolerance.tied)
    else:
        both = frozen.astype(np.float64), found.astype(np.float64)
        with np.errstate(invalid="ignore"):
            # A NaN on one side alone makes the excess NaN, which is not accepted.
            wrong = ~(tolerance.excess(*both) <= 0) & ~(np.isnan(both[0]) & np.isnan(both[1])) & (both[0] != both[1])
    if not wrong.any():
        return None
    place = np.unravel_index(int(np.argmax(_sizes(frozen, found) * wrong)), frozen.shape)
    return (
        f"largest difference {_sizes(frozen, found)[place]:.3g} at {tuple(map(int, place))} (frozen {frozen[place]}, "
        f"found {found[place]}), {int(wrong.sum()):,} of {wrong.size:,} differ; tolerance {tolerance}"
    )


def _sizes(frozen: Any, found: Any) -> Any:
    if frozen.dtype.kind in "fiu" and found.dtype.kind in "fiu":
        return np.nan_to_num(np.abs(found.astype(np.float64) - frozen), nan=np.inf)
    return (frozen != found).astype(np.float64)


def _tied(scores: Any, tied: float) -> Any:
    """Mark scores that are nearly equal to the one before or after, and the last, whose successor is unknown."""
    close = np.abs(np.diff(scores, axis=-1)) < tied
    edge = np.ones_like(close[..., :1])
    return np.concatenate([close, edge], axis=-1) | np.concatenate([~edge, close], axis=-1)


def _plain_difference(frozen: Any, found: Any, tolerance: Tolerance, place: str = "") -> str | None:
    """Compare values of JSON: numbers by tolerance, all else for equality."""
    numbers = [isinstance(v, int | float) and not isinstance(v, bool) for v in (frozen, found)]
    if all(numbers):
        if frozen == found or tolerance.excess(frozen, found) <= 0:
            return None
        return f"{place or 'value'} differs by {abs(found - frozen):.3g} ({frozen} is {found}); tolerance {tolerance}"
    if isinstance(frozen, dict) and isinstance(found, dict):
        if changed := sorted({*frozen} ^ {*found}):
            return f"{place or 'value'} has other keys: {', '.join(changed[:5])}"
        problems = (_plain_difference(frozen[k], found[k], tolerance, f"{place}/{k}".strip("/")) for k in frozen)
    elif isinstance(frozen, list) and isinstance(found, list) and len(frozen) == len(found):
        pairs = zip(frozen, found, strict=True)
        problems = (_plain_difference(a, b, tolerance, f"{place}[{i}]") for i, (a, b) in enumerate(pairs))
    else:
        return None if frozen == found else f"{place or 'value'}: frozen {frozen!r}, found {found!r}"
    return next((problem for problem in problems if problem is not None), None)
