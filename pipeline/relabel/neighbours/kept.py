"""What screening keeps of the candidates of each query, in bounded room: never fewer than can still be among the best.

A screened score v stands for an exact one in ``[v - slack - r(v), v + slack + r(v)]``, where r(v) is the rounding of v
itself. `floor` is a lower bound of a query's keep-th best exact score. A candidate is dropped only if its upper bound
is below the floor, or if `keep` others are better by exact score and row.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.neighbours.rescoring import LANES, Exact, prefetch, score
from relabel.sources.ngrams.kernels import jit

F4 = NDArray[np.float32]
F8 = NDArray[np.float64]
I4 = NDArray[np.int32]
Tile = NDArray[np.int16] | NDArray[np.int32]
CHUNK, PART = 64, 16  # scores of a tile that are looked at together, and again where one is kept
_COUNTED = 8192  # fits int16
_AHEAD = 4  # vectors on their way from memory while one is scored


class Kept(NamedTuple):
    """Candidates kept for n queries.

    Attributes
    ----------
    columns : (n, room) int32
        Candidates by number, ascending numbers for ascending rows.
    values : (n, room) float32
        Their screened scores.
    sizes : (n,) int32
        How many there are.
    floor, slack : (n,) float64
        See above.
    limit : (n,) int16 or int32
        Key (see `scan`) from which on a screened score is kept.
    """

    columns: I4
    values: F4
    sizes: I4
    floor: F8
    slack: F8
    limit: Tile


def kept_for(slack: F8, floor: F8, room: int, tile: np.dtype[np.signedinteger], rounding: float) -> Kept:
    """Make room for the candidates of n queries.

    Parameters
    ----------
    slack, floor : (n,) float64
        -inf where nothing is known; inf for a query that shall keep nothing.
    room : int
        Candidates a query may hold; above `keep`, or all there are.
    tile : dtype
        int16 for screened scores in bfloat16, int32 for float32.
    rounding : float
        Half the distance from 1 to the next screened score; 0 where `slack` says it all.
    """
    n = len(slack)
    columns, values = np.empty((n, room), np.int32), np.empty((n, room), np.float32)
    made = Kept(columns, values, np.zeros(n, np.int32), floor.copy(), slack, np.empty(n, tile))
    _limits(made, rounding)
    return made


def kept_bytes(room: int) -> int:
    """Bytes a query takes."""
    return 8 * room + 32


@jit
def _half_step(v: float, rounding: float) -> float:
    """Largest distance between v and what was rounded to it."""
    return math.ldexp(rounding, math.frexp(v)[1] - 1) if rounding > 0.0 and v != 0.0 else 0.0


@jit
def _lowest(floor: float, slack: float, rounding: float) -> float:
    """Screened score below which no upper bound reaches the floor."""
    t = floor - slack - _half_step(floor, rounding)
    if t >= 0.0 or rounding == 0.0:
        return t
    return floor - slack - 2.0 * rounding * (abs(floor) + 2.0 * slack) - 1e-30  # below 0 the steps may grow


@jit
def _set_limit(kept: Kept, i: int, rounding: float) -> None:
    limit, floor = kept.limit, kept.floor[i]
    shift = 8 * limit.itemsize - 1
    if floor == -np.inf:
        limit[i] = -(1 << shift)
        return
    if floor == np.inf:
        limit[i] = (1 << shift) - 1
        return
    one = np.empty(1, np.float32)
    one[0] = _lowest(floor, kept.slack[i], rounding) - 1e-38
    t = one[0] - abs(one[0]) * np.float32(2.0**-22)  # float32 rounds either way
    one[0] = t
    bits = np.int64(one.view(np.int32)[0])
    key = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    if shift == 15:
        key = (key + 0xFFFF) >> 16 if key >= 0 else key >> 16
    limit[i] = key if key < 1 << shift else (1 << shift) - 1


@jit
def _limits(kept: Kept, rounding: float) -> None:
    for i in range(len(kept.sizes)):
        _set_limit(kept, i, rounding)


@jit
def settle(kept: Kept, exact: Exact, i: int, keep: int) -> F8:
    """Keep the best `keep` by exact score and column, best first; return their scores."""
    n, lanes = kept.sizes[i], np.empty(LANES)
    scores, columns, values = np.empty(n), kept.columns[i, :n].copy(), kept.values[i, :n].copy()
    for e in range(n):
        if e + _AHEAD < n:
            prefetch(exact.vectors, exact.candidates[columns[e + _AHEAD]])
        scores[e] = score(exact, i, columns[e], lanes)
    by_column = np.argsort(columns)
    order = by_column[np.argsort(-scores[by_column], kind="mergesort")][:keep]
    for e in range(len(order)):
        kept.columns[i, e], kept.values[i, e] = columns[order[e]], values[order[e]]
    kept.sizes[i] = len(order)
    if len(order) == keep:
        kept.floor[i] = max(kept.floor[i], scores[order[keep - 1]])
    return scores[order]


@jit
def drop_hopeless(kept: Kept, i: int, keep: int, rounding: float) -> int:
    """Drop what cannot be among the best; return how much is left."""
    n = kept.sizes[i]
    values = kept.values[i, :n]
    if n >= keep:
        worst = np.float64(np.partition(values, n - keep)[n - keep])
        kept.floor[i] = max(kept.floor[i], worst - kept.slack[i] - _half_step(worst, rounding))
    lowest, left = _lowest(kept.floor[i], kept.slack[i], rounding), 0
    for e in range(n):
        if values[e] >= lowest:
            kept.columns[i, left], kept.values[i, left] = kept.columns[i, e], values[e]
            left += 1
    kept.sizes[i] = left
    return left


@jit
def _shrink(kept: Kept, exact: Exact, i: int, keep: int, rounding: float) -> None:
    """Make room: drop what cannot be among the best; if too much can, find out."""
    left, room = drop_hopeless(kept, i, keep, rounding), kept.columns.shape[1]
    if left > room - (room - keep + 1) // 2:
        settle(kept, exact, i, keep)
    _set_limit(kept, i, rounding)


@jit
def scan(
    tile: Tile,
    left: Kept,
    right: Kept,
    left_exact: Exact,
    right_exact: Exact,
    i0: int,
    j0: int,
    both: bool,
    keep: int,
    rounding: float,
) -> None:
    """Keep what a tile of screened scores has for its rows and, if `both`, for its columns.

    Parameters
    ----------
    tile : (m, n) int16 or int32
        Bits of bfloat16 or float32 scores; queries i0, i0 + 1, ... of `left` against j0, j0 + 1, ... of `right`. Their
        keys, equal to the bits from 0 up and to their complement but for the sign below, are ordered as the scores are.
    left, right : Kept
    left_exact, right_exact : Exact
        How a query of either is scored against candidates: the queries of the other.
    i0, j0 : int
    both : bool
    keep : int
    rounding : float
    """
    rows, columns = tile.shape
    shift = 8 * tile.itemsize - 1
    mask, widen = (1 << shift) - 1, 31 - shift
    one = np.empty(1, np.int32)
    as_float = one.view(np.float32)
    left_columns, left_values, left_sizes = left.columns, left.values, left.sizes
    right_columns, right_values, right_sizes = right.columns, right.values, right.sizes
    left_room, right_room = left_columns.shape[1], right_columns.shape[1]
    high = np.empty(columns, tile.dtype)
    if both:
        high[:] = right.limit[j0 : j0 + columns]
    else:
        high[:] = mask
    for i in range(rows):
        row, low = tile[i], left.limit[i0 + i]
        for start in range(0, columns, CHUNK):
            if start + CHUNK <= columns and not _any(
                row[start : start + CHUNK], low, high[start : start + CHUNK], CHUNK
            ):
                continue
            for part in range(start, min(start + CHUNK, columns), PART):
                stop = min(part + PART, columns)
                if stop == part + PART and not _any(row[part:stop], low, high[part:stop], PART):
                    continue
                for j in range(part, stop):
                    bits = np.int64(row[j])
                    key = bits ^ ((bits >> shift) & mask)
                    if key < low and key < high[j]:
                        continue
                    one[0] = bits << widen
                    if key >= low:
                        if left_sizes[i0 + i] == left_room:
                            _shrink(left, left_exact, i0 + i, keep, rounding)
                        n = left_sizes[i0 + i]
                        left_columns[i0 + i, n], left_values[i0 + i, n] = j0 + j, as_float[0]
                        left_sizes[i0 + i] = n + 1
                        low = left.limit[i0 + i]
                    if both and key >= high[j]:
                        if right_sizes[j0 + j] == right_room:
                            _shrink(right, right_exact, j0 + j, keep, rounding)
                        n = right_sizes[j0 + j]
                        right_columns[j0 + j, n], right_values[j0 + j, n] = i0 + i, as_float[0]
                        right_sizes[j0 + j] = n + 1
                        high[j] = right.limit[j0 + j]


@jit
def raise_floor(kept: Kept, tile: Tile, i0: int, keep: int, rounding: float) -> None:
    """Raise the floors of queries by their keep-th best screened scores among some candidates.

    Parameters
    ----------
    kept : Kept
    tile : (m, n) int16 or int32
        See `scan`; queries i0, i0 + 1, ... against any n candidates, at least `keep`.
    i0, keep : int
    rounding : float
    """
    shift = 8 * tile.itemsize - 1
    one = np.empty(1, np.int32)
    as_float = one.view(np.float32)
    for i in range(tile.shape[0]):
        if kept.floor[i0 + i] != -np.inf:
            continue
        low, high = -(1 << shift), (1 << shift) - 1
        while low < high:  # the largest key that is reached by `keep` scores
            middle = (low + high + 1) >> 1
            if _reaching(tile[i], middle) >= keep:
                low = middle
            else:
                high = middle - 1
        bits = low ^ ((low >> shift) & ((1 << shift) - 1))
        one[0] = bits << (31 - shift)
        worst = np.float64(as_float[0])
        kept.floor[i0 + i] = worst - kept.slack[i0 + i] - _half_step(worst, rounding)
        _set_limit(kept, i0 + i, rounding)


@jit
def _reaching(row: Tile, least: int) -> int:
    """Count keys from `least` on."""
    shift = row.dtype.type(8 * row.itemsize - 1)
    mask, low = row.dtype.type((1 << (8 * row.itemsize - 1)) - 1), row.dtype.type(least)
    total = 0
    for start in range(0, len(row), _COUNTED):
        some: Tile = row[start : start + _COUNTED]
        found = row.dtype.type(0)
        for j in range(len(some)):
            key = row.dtype.type(some[j] ^ row.dtype.type(row.dtype.type(some[j] >> shift) & mask))
            found += row.dtype.type(key >= low)
        total += int(found)
    return total


@jit
def _any(row: Tile, low: int, high: Tile, count: int) -> bool:
    """Say whether any of `count` keys reaches the row's limit or its column's; without a branch, so that it is fast."""
    shift = row.dtype.type(8 * row.itemsize - 1)
    mask = row.dtype.type((1 << (8 * row.itemsize - 1)) - 1)
    found = row.dtype.type(0)
    for j in range(count):
        key = row.dtype.type(row[j] ^ row.dtype.type(row.dtype.type(row[j] >> shift) & mask))
        found |= row.dtype.type(key >= low) | row.dtype.type(key >= high[j])
    return bool(found)
