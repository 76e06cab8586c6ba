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
LIMIT = 1 << 20  # bytes of a file of values, at most
Values = dict[str, Any]  # key to an array, or to numbers, texts, lists and dicts of them


@dataclass(frozen=True)
class Tolerance:
    """Largest accepted difference of a number from its frozen value, `absolute + relative * |frozen value|`.

    `tied`: of ids or marks in the order of `scores` beside them, those whose scores differ by less may change places.
    """

    absolute: float = 0.0
    relative: float = 0.0
    tied: float = 0.0

    def accepts(self, frozen: Any, found: Any) -> Any:
        """Return which numbers are close enough; NaN equals NaN alone."""
        numbers = np.asarray(found, np.float64), np.asarray(frozen, np.float64)
        return np.isclose(*numbers, rtol=self.relative, atol=self.absolute, equal_nan=True)


def read_tolerances(folder: Path = VALUES) -> list[tuple[str, Tolerance]]:
    """Return pairs of a pattern of entries and their tolerance; the first pattern that matches counts."""
    lines = json.loads((folder / "tolerances.json").read_text(encoding="utf-8"))
    return [
        (pattern, Tolerance(**{k: v for k, v in line.items() if k not in ("entries", "reason")}))
        for line in lines
        for pattern in line["entries"]
    ]


def write(unit: str, values: Mapping[str, Any], folder: Path = VALUES) -> None:
    """Write the values of a unit."""
    arrays = {key: value for key, value in values.items() if isinstance(value, np.ndarray)}
    others = {key: value for key, value in values.items() if key not in arrays}
    stem = folder / unit.replace("/", ".")
    for path in (npz := Path(f"{stem}.npz"), plain := Path(f"{stem}.json")):
        path.unlink(missing_ok=True)
    if arrays:
        np.savez_compressed(npz, allow_pickle=False, **arrays)
    if others:
        plain.write_text(json.dumps(others, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    if large := [path.name for path in (npz, plain) if path.exists() and path.stat().st_size > LIMIT]:
        raise ValueError(f"{large} have more than {LIMIT:,} bytes")


def read(unit: str, folder: Path = VALUES) -> Values:
    """Return the frozen values of a unit; empty if there are none."""
    values: Values = {}
    stem = folder / unit.replace("/", ".")
    if (path := Path(f"{stem}.npz")).exists():
        with np.load(path, allow_pickle=False) as arrays:
            values |= arrays
    if (path := Path(f"{stem}.json")).exists():
        values |= json.loads(path.read_text(encoding="utf-8"))
    return values


def differences(
    unit: str, frozen: Mapping[str, Any], found: Mapping[str, Any], tolerances: list[tuple[str, Tolerance]], only: str
) -> Iterator[str]:
    """Yield one line for each entry that matches `only` and differs, is missing, or is not frozen."""
    for key in sorted({*frozen, *found}):
        name = f"{unit}/{key}"
        tolerance = next((one for pattern, one in tolerances if fnmatchcase(name, pattern)), Tolerance())
        if not fnmatchcase(name, only):
            continue
        if key not in found:
            yield f"{name}: missing; it is frozen and was not computed"
        elif key not in frozen:
            yield f"{name}: not frozen; run `python -m tests.golden freeze --only '{name}'` if it is meant to be there"
        elif isinstance(frozen[key], np.ndarray):
            beside = frozen.get(f"{key[: key.rfind('/') + 1]}scores") if tolerance.tied else None
            if problem := _difference(frozen[key], np.asarray(found[key]), tolerance, beside):
                yield f"{name}: {problem}"
        elif problem := _plain_difference(frozen[key], json.loads(json.dumps(found[key])), tolerance):
            yield f"{name}: {problem}"


def _difference(frozen: Any, found: Any, tolerance: Tolerance, scores: Any) -> str | None:
    """Compare arrays: floats by tolerance, all else for equality but for places that are tied by `scores`."""
    if frozen.shape != found.shape:
        return f"shape {found.shape}, frozen {frozen.shape}"
    floats = frozen.dtype.kind == found.dtype.kind == "f"
    wrong = ~tolerance.accepts(frozen, found) if floats else frozen != found
    if scores is not None:
        # Nearly equal to the score before or after it; the successor of the last one is unknown.
        close = np.abs(np.diff(scores, axis=-1)) < tolerance.tied
        last = np.ones_like(close[..., :1])
        wrong &= ~(np.concatenate([close, last], axis=-1) | np.concatenate([~last, close], axis=-1))
    if not wrong.any():
        return None
    sizes = np.nan_to_num(np.abs(found.astype(np.float64) - frozen.astype(np.float64)), nan=np.inf)
    place = np.unravel_index(int(np.argmax(np.where(wrong, sizes, -1))), frozen.shape)
    return (
        f"largest difference {sizes[place]:.3g} at {tuple(map(int, place))} (frozen {frozen[place]}, "
        f"found {found[place]}), {int(wrong.sum()):,} of {wrong.size:,} differ; {tolerance}"
    )


def _plain_difference(frozen: Any, found: Any, tolerance: Tolerance) -> str | None:
    """Compare values of JSON: numbers by tolerance, all else for equality."""
    before, now = dict(leaves(frozen)), dict(leaves(found))
    if changed := sorted({*before} ^ {*now}):
        return f"other keys: {', '.join(changed[:5])}"
    for place, value in before.items():
        numbers = {type(value), type(now[place])} <= {int, float}
        if not (tolerance.accepts(value, now[place]) if numbers else value == now[place]):
            return f"{place or 'value'}: frozen {value!r}, found {now[place]!r}; {tolerance}"
    return None


def leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield place and value of the texts, numbers, nulls and empty containers of JSON, in order."""
    if isinstance(value, dict | list) and value:
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, f"{place}/{key}".lstrip("/"))
    else:
        yield place, value
