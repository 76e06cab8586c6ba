"""Natural order of ids: digits inside ids sort as numbers."""

from __future__ import annotations

import re
from operator import le, lt

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_CHUNK = 1 << 16  # ids in memory as Python objects
_LONGEST = 10_000  # characters of an id whose key is a text
_DIGITS = re.compile(r"([0-9]+)")


def natural_key(identifier: str) -> tuple[object, ...]:
    """Return a sort key that orders the digits inside ids as numbers."""
    parts = _DIGITS.split(identifier)
    # A number sorts by its count of digits, then by its digits. Python converts at most 4,300 digits to an int.
    return tuple((0, len(n := p.lstrip("0")), n, p) if p.isdecimal() and p.isascii() else (1, 0, "", p) for p in parts)


def natural_rank(ids: pa.Array) -> NDArray[np.int64]:
    """Return integers that sort like `natural_key`.

    `ids`: (N,) pyarrow string array, no nulls. Returns (N,) int64: equal for equal ids, smaller for ids that come
    first. They need not be consecutive.
    """
    # Ids of one prefix and a plain number are their own ranks, which saves sorting 600,000 keys in Python.
    numbers = _numbers(ids)
    if numbers is not None:
        return numbers
    return _ranks_of_texts(ids)


def _ranks_of_texts(ids: pa.ChunkedArray | pa.Array) -> NDArray[np.int64]:
    """Return the ranks of ids of any form."""
    if (ascending := _ranks_if_ascending(ids)) is not None:
        return ascending
    keys = []
    for start in range(0, len(ids), _CHUNK):
        names = ids.slice(start, _CHUNK).to_pylist()
        if not all(map(_has_text_key, names)):
            return _ranks_of_tuples(ids)
        keys.append(pa.array(list(map(_sortable, names)), pa.string()))
    ranks: NDArray[np.int64] = pc.rank(pa.chunked_array(keys), tiebreaker="dense").to_numpy().astype(np.int64)
    return ranks


def _ranks_if_ascending(ids: pa.ChunkedArray | pa.Array) -> NDArray[np.int64] | None:
    """Return the ranks of ids that are in order already, with the keys of one chunk in memory; None for other ids."""
    steps, last = list[NDArray[np.bool_]](), ""
    for start in range(0, len(ids), _CHUNK):
        names = ids.slice(start, _CHUNK).to_pylist()
        if not all(map(_has_text_key, names)):
            return None
        keys = [last, *map(_sortable, names)]
        if not all(map(le, keys, keys[1:])):
            return None
        steps.append(np.fromiter(map(lt, keys, keys[1:]), np.bool_, len(names)))
        last = keys[-1]
    return np.cumsum(np.concatenate(steps))


def _has_text_key(identifier: str) -> bool:
    return "\0" not in identifier and len(identifier) <= _LONGEST


def _sortable(identifier: str) -> str:
    """Return a text whose order by code points is that of `natural_key`; the id holds no zero character."""
    parts = _DIGITS.split(identifier)
    # The zero character ends a part, and sorts before any continuation. A number begins with its count of digits.
    for i in range(1, len(parts), 2):
        digits = parts[i].lstrip("0")
        parts[i] = f"{chr(len(digits) + 1)}{digits}{parts[i]}"
    return "\0".join(parts)


def _ranks_of_tuples(ids: pa.ChunkedArray | pa.Array) -> NDArray[np.int64]:
    """Return the ranks of ids by their keys as tuples, which take a hundred times the memory."""
    encoded = pa.concat_arrays(ids.chunks if isinstance(ids, pa.ChunkedArray) else [ids]).dictionary_encode()
    keys = [natural_key(name) for name in encoded.dictionary.to_pylist()]
    rank = np.empty(len(keys), np.int64)
    rank[sorted(range(len(keys)), key=keys.__getitem__)] = np.arange(len(keys))
    ranks: NDArray[np.int64] = rank[encoded.indices.to_numpy()]
    return ranks


def _numbers(ids: pa.Array) -> NDArray[np.int64] | None:
    """Return the numbers of ids that consist of one common prefix and a plain decimal number, else None."""
    first: str = ids[0].as_py()
    prefix = first.rstrip("0123456789")
    if not pc.all(pc.starts_with(ids, prefix)).as_py():
        return None
    rest = pc.utf8_slice_codeunits(ids, len(prefix))
    # At most 18 digits fit an int64. A leading zero would make two ids one number.
    if not pc.all(pc.match_substring_regex(rest, r"^(?:0|[1-9][0-9]{0,17})$")).as_py():
        return None
    numbers: NDArray[np.int64] = pc.cast(rest, pa.int64()).to_numpy()
    return numbers
