"""Natural order of ids: digits inside ids sort as numbers. It defines the rows of a corpus."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

LONGEST = 10_000
"""Maximum number of characters of an id."""
_CHUNK = 1 << 16  # ids in memory as Python objects
_DIGITS = re.compile(r"([0-9]+)")


def natural_key(identifier: str) -> str:
    """Return a text whose order by code points is the natural order of an id without a zero character."""
    parts = _DIGITS.split(identifier)
    # The zero character ends a part, and sorts before any continuation. A number begins with its count of digits.
    for i in range(1, len(parts), 2):
        digits = parts[i].lstrip("0")
        parts[i] = f"{chr(len(digits) + 1)}{digits}{parts[i]}"
    return "\0".join(parts)


def natural_rank(ids: pa.Array | pa.ChunkedArray) -> NDArray[np.int64]:
    """Return integers that sort like `natural_key`, (N,) int64: equal for equal ids, smaller for earlier ones."""
    parts = (ids.slice(start, _CHUNK).to_pylist() for start in range(0, len(ids), _CHUNK))
    keys = pa.chunked_array([pa.array(list(map(natural_key, part)), pa.string()) for part in parts])
    ranks: NDArray[np.int64] = pc.rank(keys, tiebreaker="dense").to_numpy().astype(np.int64)
    return ranks
