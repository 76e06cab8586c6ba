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

from relabel.core.numeric.jit import jit
from relabel.topk.dot_kernel import prefetch
from relabel.topk.exact_scores import ExactOperands, score
from relabel.topk.simd_compare import TOGETHER, as_bits, as_float, lowest_bit, reaching

F4 = NDArray[np.float32]
F8 = NDArray[np.float64]
I4 = NDArray[np.int32]
Tile = NDArray[np.int16] | NDArray[np.int32]
_COUNTED = 8192  # fits int16
_AHEAD = 4  # vectors on their way from memory while one is scored


class CandidateBuffer(NamedTuple):
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
    rounding : float
        Half the distance from 1 to the next screened score; 0 where `slack` says it all.
    """

    columns: I4
    values: F4
    sizes: I4
    floor: F8
    slack: F8
    limit: Tile
    rounding: float


def make_buffer(slack: F8, floor: F8, room: int, tile: np.dtype[np.signedinteger], rounding: float) -> CandidateBuffer:
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
        See CandidateBuffer.
    """
    n = len(slack)
    columns, values = np.empty((n, room), np.int32), np.empty((n, room), np.float32)
    made = CandidateBuffer(columns, values, np.zeros(n, np.int32), floor.copy(), slack, np.empty(n, tile), rounding)
    _limits(made)
    return made


def buffer_bytes(room: int) -> int:
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
def _set_limit(kept: CandidateBuffer, i: int) -> None:
    limit, floor = kept.limit, kept.floor[i]
    shift = 8 * limit.itemsize - 1
    if floor == -np.inf:
        limit[i] = -(1 << shift)
        return
    if floor == np.inf:
        limit[i] = (1 << shift) - 1
        return
    one = np.empty(1, np.float32)
    one[0] = _lowest(floor, kept.slack[i], kept.rounding) - 1e-38
    t = one[0] - abs(one[0]) * np.float32(2.0**-22)  # float32 rounds either way
    one[0] = t
    bits = np.int64(one.view(np.int32)[0])
    key = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    if shift == 15:
        key = (key + 0xFFFF) >> 16 if key >= 0 else key >> 16
    limit[i] = key if key < 1 << shift else (1 << shift) - 1


@jit
def _limits(kept: CandidateBuffer) -> None:
    for i in range(len(kept.sizes)):
        _set_limit(kept, i)


@jit
def rescore_and_truncate(kept: CandidateBuffer, exact: ExactOperands, i: int, keep: int) -> F8:
    """Keep the best `keep` by exact score and column, best first; return their scores."""
    n = drop_hopeless(kept, i, keep)
    columns, values = kept.columns[i, :n].copy(), kept.values[i, :n].copy()
    vectors, indptr, places, candidates, pooling = exact
    lo, hi, slack, rounding = indptr[i], indptr[i + 1], kept.slack[i], kept.rounding
    best, order = np.empty(min(n, keep)), np.empty(min(n, keep), np.int64)
    size, lowest = 0, -np.inf
    for e in range(n):
        if values[e] < lowest:
            break
        if e + _AHEAD < n:
            prefetch(vectors, candidates[columns[e + _AHEAD]])
        one, at = score(vectors, places, lo, hi, candidates[columns[e]], pooling), size
        if size == keep:
            at = keep - 1
            if best[at] > one or (best[at] == one and columns[order[at]] < columns[e]):
                continue
        else:
            size += 1
        # screened scores are nearly in order, so that few move
        while at > 0 and (best[at - 1] < one or (best[at - 1] == one and columns[order[at - 1]] > columns[e])):
            best[at], order[at] = best[at - 1], order[at - 1]
            at -= 1
        best[at], order[at] = one, e
        if size == keep:
            lowest = _lowest(best[keep - 1], slack, rounding)
    for e in range(size):
        kept.columns[i, e], kept.values[i, e] = columns[order[e]], values[order[e]]
    kept.sizes[i] = size
    if size == keep:
        kept.floor[i] = max(kept.floor[i], best[keep - 1])
    return best[:size]


@jit
def drop_hopeless(kept: CandidateBuffer, i: int, keep: int) -> int:
    """Drop what cannot be among the best, order the rest by descending screened score; return how much is left."""
    n = kept.sizes[i]
    _descending(kept, i)
    values = kept.values[i]
    if n >= keep:
        worst = np.float64(values[keep - 1])
        kept.floor[i] = max(kept.floor[i], worst - kept.slack[i] - _half_step(worst, kept.rounding))
    lowest = _lowest(kept.floor[i], kept.slack[i], kept.rounding)
    while n > 0 and not values[n - 1] >= lowest:
        n -= 1
    kept.sizes[i] = n
    return int(n)


@jit
def _descending(kept: CandidateBuffer, i: int) -> None:
    """Order a query's candidates by descending screened score, a byte of it at a time from the last."""
    n = kept.sizes[i]
    values, columns = kept.values[i, :n], kept.columns[i, :n]
    some, other = np.empty(n, np.uint64), np.empty(n, np.uint64)
    for e in range(n):
        bits = as_bits(values[e])
        key = bits ^ ((bits >> 31) & 0x7FFFFFFF)
        some[e] = (np.uint64(0x7FFFFFFF - key) << np.uint64(32)) | np.uint64(columns[e])
    starts = np.empty(257, np.int64)
    for byte in range(8 - kept.limit.itemsize, 8):  # the others of a bfloat16 are 0
        shift = np.uint64(8 * byte)
        starts[:] = 0
        for e in range(n):
            starts[((some[e] >> shift) & np.uint64(255)) + np.uint64(1)] += 1
        for digit in range(256):
            starts[digit + 1] += starts[digit]
        for e in range(n):
            digit = (some[e] >> shift) & np.uint64(255)
            other[starts[digit]] = some[e]
            starts[digit] += 1
        some, other = other, some
    for e in range(n):
        key = 0x7FFFFFFF - np.int64(some[e] >> np.uint64(32))
        columns[e], values[e] = np.int32(some[e] & np.uint64(0xFFFFFFFF)), as_float(key ^ ((key >> 31) & 0x7FFFFFFF))


@jit
def _shrink(kept: CandidateBuffer, exact: ExactOperands, i: int, keep: int) -> None:
    """Make room: drop what cannot be among the best; if too much can, find out."""
    left, room = drop_hopeless(kept, i, keep), kept.columns.shape[1]
    if left > room - (room - keep + 1) // 2:
        rescore_and_truncate(kept, exact, i, keep)
    _set_limit(kept, i)


@jit
def scan(
    tile: Tile,
    left: CandidateBuffer,
    right: CandidateBuffer,
    left_exact: ExactOperands,
    right_exact: ExactOperands,
    i0: int,
    j0: int,
    both: bool,
    keep: int,
) -> None:
    """Keep what a tile of screened scores has for its rows and, if `both`, for its columns.

    Parameters
    ----------
    tile : (m, n) int16 or int32
        Bits of bfloat16 or float32 scores; queries i0, i0 + 1, ... of `left` against j0, j0 + 1, ... of `right`. Their
        keys, equal to the bits from 0 up and to their complement but for the sign below, are ordered as the scores are.
    left, right : CandidateBuffer
    left_exact, right_exact : ExactOperands
        How a query of either is scored against candidates: the queries of the other.
    i0, j0 : int
    both : bool
    keep : int
    """
    rows, columns = tile.shape
    # no tuple where a score is kept: to count its references takes longer than to keep the score
    left_columns, left_values, left_sizes, left_limit = left.columns, left.values, left.sizes, left.limit
    right_columns, right_values, right_sizes, right_limit = right.columns, right.values, right.sizes, right.limit
    left_room, right_room, widen = left_columns.shape[1], right_columns.shape[1], 32 - 8 * tile.itemsize
    rest = columns % TOGETHER
    padded = columns - rest + TOGETHER
    few = (np.uint64(1) << np.uint64(rest)) - np.uint64(1)
    row, high = np.zeros(padded, tile.dtype), np.zeros(padded, tile.dtype)
    if both:
        high[:columns] = right_limit[j0 : j0 + columns]
    for i in range(rows):
        if rest:
            row[:columns] = tile[i]
        else:
            row = tile[i]
        for start in range(0, columns, TOGETHER):
            for_row, for_column = reaching(row, start, left_limit[i0 + i]), np.uint64(0)
            if both:
                for_column = reaching(row, start, high)
            if start + TOGETHER > columns:
                for_row, for_column = for_row & few, for_column & few
            while for_row:
                j = start + lowest_bit(for_row)
                for_row &= for_row - np.uint64(1)
                if left_sizes[i0 + i] == left_room:
                    _shrink(left, left_exact, i0 + i, keep)
                n = left_sizes[i0 + i]
                left_columns[i0 + i, n] = j0 + j
                left_values[i0 + i, n] = as_float(np.int64(row[j]) << widen)
                left_sizes[i0 + i] = n + 1
            while for_column:
                j = start + lowest_bit(for_column)
                for_column &= for_column - np.uint64(1)
                if right_sizes[j0 + j] == right_room:
                    _shrink(right, right_exact, j0 + j, keep)
                    high[j] = right_limit[j0 + j]
                n = right_sizes[j0 + j]
                right_columns[j0 + j, n] = i0 + i
                right_values[j0 + j, n] = as_float(np.int64(row[j]) << widen)
                right_sizes[j0 + j] = n + 1


@jit
def raise_floor(kept: CandidateBuffer, tile: Tile, i0: int, keep: int) -> None:
    """Raise the floors of queries by their keep-th best screened scores among some candidates.

    Parameters
    ----------
    kept : CandidateBuffer
    tile : (m, n) int16 or int32
        See `scan`; queries i0, i0 + 1, ... against any n candidates, at least `keep`.
    i0, keep : int
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
        kept.floor[i0 + i] = worst - kept.slack[i0 + i] - _half_step(worst, kept.rounding)
        _set_limit(kept, i0 + i)


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
