"""Bounded buffers of the candidates that can still be among the k best of each query.

A low-precision score v stands for an exact score in ``[v - slack - r(v), v + slack + r(v)]``. `slack` bounds the error
of the sum, and r(v) is the largest rounding error of v itself. `floor` is a lower bound of the query's k-th best exact
score. A candidate is dropped only if its upper bound lies below the floor, or if k others are better by exact score and
number. No buffer therefore loses a candidate that belongs to the result.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.kernels import jit
from relabel.topk.exact_scores import ExactOperands, score

F4 = NDArray[np.float32]
F8 = NDArray[np.float64]
I4 = NDArray[np.int32]
Tile = NDArray[np.int16] | NDArray[np.int32]
_WORD = 64  # scores that are compared with their limits before any is looked at alone


class CandidateBuffer(NamedTuple):
    """Candidates of n queries that can still be among their best.

    `numbers`: (n, capacity) int32; candidates by number; ascending numbers are ascending corpus rows.
    `values`: (n, capacity) float32; their low-precision scores.
    `sizes`: (n,) int32; candidates held.
    `floor`: (n,) float64; lower bound of the k-th best exact score; it never falls.
    `slack`: (n,) float64; bound of the error of a low-precision score before its final rounding.
    `limit`: (n,) int16 or int32; smallest key (see `scan`) of a low-precision score that enters the buffer.
    `rounding`: half the distance from 1 to the next low-precision score; 0 if `slack` covers the whole error.
    """

    numbers: I4
    values: F4
    sizes: I4
    floor: F8
    slack: F8
    limit: Tile
    rounding: float


def make_buffer(
    slack: F8, floor: F8, capacity: int, tile: np.dtype[np.signedinteger], rounding: float
) -> CandidateBuffer:
    """Allocate empty buffers for n queries.

    `slack`: (n,) float64. `floor`: (n,) float64; -inf where nothing is known; inf for a query that keeps no candidates.
    `capacity`: candidates per query; greater than k, or the number of all candidates. `tile`: int16 for scores in
    bfloat16, int32 for float32. `rounding`: see CandidateBuffer.
    """
    n = len(slack)
    numbers, values = np.empty((n, capacity), np.int32), np.empty((n, capacity), np.float32)
    buffer = CandidateBuffer(numbers, values, np.zeros(n, np.int32), floor.copy(), slack, np.empty(n, tile), rounding)
    _set_limits(buffer)
    return buffer


def buffer_bytes(capacity: int) -> int:
    """Return the bytes that the buffer of one query takes."""
    return 8 * capacity + 32


@jit
def _half_step(v: float, rounding: float) -> float:
    """Return r(v), the largest distance between v and a number that is rounded to it."""
    # With 2**(e-1) <= |v| < 2**e, numbers around v are 2 * rounding * 2**(e-1) apart. Below a power of two they are
    # closer, so that this is an upper bound there.
    return math.ldexp(rounding, math.frexp(v)[1] - 1) if rounding > 0.0 and v != 0.0 else 0.0


@jit
def _lowest_score(floor: float, slack: float, rounding: float) -> float:
    """Return a score t such that v < t implies v + slack + r(v) < floor: no smaller score can enter the result."""
    t = floor - slack - _half_step(floor, rounding)
    # Case t >= 0: if 0 <= v < t then r(v) <= r(floor), hence v + r(v) < floor - slack. If v < 0 then v + r(v) < 0.
    if t >= 0.0 or rounding == 0.0:
        return t
    # Case t < 0: v is negative, and r(v) <= rounding * |v| may exceed r(floor). Two roundings of the magnitude of
    # floor - slack are enough, because |floor - slack| <= |floor| + slack and 1 / (1 - rounding) <= 1 + 2 * rounding.
    return floor - slack - 2.0 * rounding * (abs(floor) + 2.0 * slack) - 1e-30


@jit
def _set_limit(buffer: CandidateBuffer, i: int) -> None:
    """Convert a query's lowest score that can still win to the key that `scan` compares."""
    limit, floor = buffer.limit, buffer.floor[i]
    shift = 8 * limit.itemsize - 1
    if floor == -np.inf:  # nothing is known: every score enters
        limit[i] = -(1 << shift)
        return
    if floor == np.inf:  # no finite score has the largest key: none enters
        limit[i] = (1 << shift) - 1
        return
    single = np.empty(1, np.float32)
    single[0] = _lowest_score(floor, buffer.slack[i], buffer.rounding) - 1e-38
    # float32 rounds either way, by at most 2**-24 of the number: step down so that the limit is never too high.
    lowered = single[0] - abs(single[0]) * np.float32(2.0**-22)
    single[0] = lowered
    bits = np.int64(single.view(np.int32)[0])
    # Key of a float32: its bits, with all but the sign inverted if it is negative.
    key = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    if shift == 15:
        # The smallest bfloat16 that is not below: a bfloat16 with key K >= 0 has the float32 key K << 16, one with
        # K < 0 the float32 key (K << 16) | 0xFFFF.
        key = (key + 0xFFFF) >> 16 if key >= 0 else key >> 16
    limit[i] = key if key < 1 << shift else (1 << shift) - 1


@jit
def _set_limits(buffer: CandidateBuffer) -> None:
    for i in range(len(buffer.sizes)):
        _set_limit(buffer, i)


@jit
def rescore_and_truncate(buffer: CandidateBuffer, exact: ExactOperands, i: int, keep: int) -> F8:
    """Keep the best `keep` candidates of query i by (-exact score, number), best first; return their exact scores."""
    n = prune(buffer, i, keep)
    # Copies, since the buffer is overwritten in the new order at the end.
    numbers, values = buffer.numbers[i, :n].copy(), buffer.values[i, :n].copy()
    vectors, indptr, members, candidates, pooling = exact
    lo, hi, slack, rounding = indptr[i], indptr[i + 1], buffer.slack[i], buffer.rounding
    # `best` and `order` are the insertion-sorted results so far: exact scores and positions in `numbers`.
    best, order = np.empty(min(n, keep)), np.empty(min(n, keep), np.int64)
    size, lowest = 0, -np.inf
    for e in range(n):
        # Candidates are in falling low-precision order: from here on no upper bound reaches the exact k-th best.
        if values[e] < lowest:
            break
        one, slot = score(vectors, members, lo, hi, candidates[numbers[e]], pooling), size
        if size == keep:
            slot = keep - 1
            # The list is full and its last entry is better, or equal with a lower number: not among the best.
            if best[slot] > one or (best[slot] == one and numbers[order[slot]] < numbers[e]):
                continue
        else:
            size += 1
        # Insertion sort: low-precision scores are nearly in exact order, so that few entries move.
        while slot > 0 and (best[slot - 1] < one or (best[slot - 1] == one and numbers[order[slot - 1]] > numbers[e])):
            best[slot], order[slot] = best[slot - 1], order[slot - 1]
            slot -= 1
        best[slot], order[slot] = one, e
        if size == keep:
            # The exact k-th best so far is a lower bound of the final one.
            lowest = _lowest_score(best[keep - 1], slack, rounding)
    for e in range(size):
        buffer.numbers[i, e], buffer.values[i, e] = numbers[order[e]], values[order[e]]
    buffer.sizes[i] = size
    if size == keep:
        buffer.floor[i] = max(buffer.floor[i], best[keep - 1])
    return best[:size]


@jit
def prune(buffer: CandidateBuffer, i: int, keep: int) -> int:
    """Sort the candidates of query i by falling low-precision score, drop those below the floor; return the count."""
    n = buffer.sizes[i]
    _sort_descending(buffer, i)
    values = buffer.values[i]
    if n >= keep:
        # The first k candidates each have an exact score of at least their own lower bound, so the k-th best exact
        # score is at least the lower bound of the k-th.
        kth = np.float64(values[keep - 1])
        buffer.floor[i] = max(buffer.floor[i], kth - buffer.slack[i] - _half_step(kth, buffer.rounding))
    lowest = _lowest_score(buffer.floor[i], buffer.slack[i], buffer.rounding)
    # Sorted, so that those below the floor are at the end.
    while n > 0 and not values[n - 1] >= lowest:
        n -= 1
    buffer.sizes[i] = n
    return int(n)


@jit
def _sort_descending(buffer: CandidateBuffer, i: int) -> None:
    """Radix sort of a query's candidates by falling low-precision score, from the lowest byte to the highest."""
    n = buffer.sizes[i]
    numbers, bits = buffer.numbers[i, :n], buffer.values[i, :n].view(np.int32)
    source, target, starts = np.empty(n, np.uint64), np.empty(n, np.uint64), np.empty(257, np.int64)
    for e in range(n):
        # One integer per candidate: the inverted key above (ascending items are falling scores), the number below.
        key = bits[e] ^ ((bits[e] >> 31) & 0x7FFFFFFF)
        source[e] = (np.uint64(0x7FFFFFFF - key) << np.uint64(32)) | np.uint64(numbers[e])
    # Only the bytes of the score are sorted: the upper two for bfloat16, whose lower two follow from its sign.
    for byte in range(8 - buffer.limit.itemsize, 8):
        shift = np.uint64(8 * byte)
        # Count each digit; the running sum is then the slot at which its items begin.
        starts[:] = 0
        for e in range(n):
            starts[((source[e] >> shift) & np.uint64(255)) + np.uint64(1)] += 1
        for digit in range(256):
            starts[digit + 1] += starts[digit]
        # A stable distribution keeps the order of the lower bytes.
        for e in range(n):
            digit = (source[e] >> shift) & np.uint64(255)
            target[starts[digit]] = source[e]
            starts[digit] += 1
        source, target = target, source
    for e in range(n):
        key, numbers[e] = 0x7FFFFFFF - np.int64(source[e] >> np.uint64(32)), source[e] & np.uint64(0xFFFFFFFF)
        # The map from bits to keys is its own inverse.
        bits[e] = key ^ ((key >> 31) & 0x7FFFFFFF)


@jit
def _make_space(buffer: CandidateBuffer, exact: ExactOperands, i: int, keep: int) -> None:
    """Shrink a full buffer by bounds; if that frees too little, by exact scores."""
    left, capacity = prune(buffer, i, keep), buffer.numbers.shape[1]
    # Free at least half of the slots beyond k, so that the cost per added candidate stays constant.
    if left > capacity - (capacity - keep + 1) // 2:
        rescore_and_truncate(buffer, exact, i, keep)
    _set_limit(buffer, i)


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
    """Add the scores of a tile that reach their limit to the buffers of its rows and, if `both`, of its columns.

    `tile`: (m, n) int16 or int32; bits of bfloat16 or float32 scores of queries i0, i0 + 1, ... of `left` and j0, j0 +
    1, ... of `right`. The key of a score is its bits, with all but the sign inverted if it is negative: keys are
    ordered as the scores are. `left_exact`, `right_exact`: operands for the exact scores of the queries of either side;
    the candidates are the queries of the other side.
    """
    rows, columns = tile.shape
    words = -(-columns // _WORD)
    keys, limits = np.zeros((words, _WORD), tile.dtype), np.zeros((words, _WORD), tile.dtype)
    reached, key, column_limit = np.empty(words, np.bool_), keys.reshape(-1), limits.reshape(-1)
    # The loops use arrays and no tuples: counting the references of a tuple takes longer than adding a score.
    left_sizes, left_limit, right_sizes, right_limit = left.sizes, left.limit, right.sizes, right.limit
    left_numbers, left_bits = left.numbers, left.values.view(np.int32)
    right_numbers, right_bits = right.numbers, right.values.view(np.int32)
    capacity, widen = (left_numbers.shape[1], right_numbers.shape[1]), 32 - 8 * tile.itemsize
    if both:
        # A contiguous copy, kept up to date below.
        column_limit[:columns] = right_limit[j0 : j0 + columns]
    for i in range(rows):
        row, limit = tile[i], left_limit[i0 + i]
        _compare(row, limit, both, limits, keys, reached)
        for word in range(words):
            # Almost all words have no score that enters a buffer.
            if not reached[word]:
                continue
            for j in range(word * _WORD, min(word * _WORD + _WORD, columns)):
                # A bfloat16 is the upper half of a float32.
                if key[j] >= limit:
                    if left_sizes[i0 + i] == capacity[0]:
                        _make_space(left, left_exact, i0 + i, keep)
                        limit = left_limit[i0 + i]
                    n = left_sizes[i0 + i]
                    left_numbers[i0 + i, n], left_bits[i0 + i, n] = j0 + j, np.int64(row[j]) << widen
                    left_sizes[i0 + i] = n + 1
                if both and key[j] >= column_limit[j]:
                    if right_sizes[j0 + j] == capacity[1]:
                        _make_space(right, right_exact, j0 + j, keep)
                        column_limit[j] = right_limit[j0 + j]
                    n = right_sizes[j0 + j]
                    right_numbers[j0 + j, n], right_bits[j0 + j, n] = i0 + i, np.int64(row[j]) << widen
                    right_sizes[j0 + j] = n + 1


@jit
def _compare(row: Tile, limit: int, both: bool, limits: Tile, keys: Tile, reached: NDArray[np.bool_]) -> None:
    """Compute the keys of a row of scores, and find the words in which one reaches `limit` or, if `both`, its own.

    `row`: (n,). `limits`, `keys`: (words, `_WORD`) of the row's type. `reached`: (words,).
    """
    # All numbers have the row's own type, and loops start at 0: numba then compiles them to vector instructions.
    kind, bits = row.dtype.type, 8 * row.itemsize
    mask, shift, key = kind((1 << (bits - 1)) - 1), kind(bits - 1), keys.reshape(-1)
    for j in range(len(row)):
        key[j] = kind(row[j] ^ kind(kind(row[j] >> shift) & mask))
    for word in range(len(keys)):
        found = kind(0)
        if both:
            for j in range(_WORD):
                found |= kind((keys[word, j] >= limit) | (keys[word, j] >= limits[word, j]))
        else:
            for j in range(_WORD):
                found |= kind(keys[word, j] >= limit)
        reached[word] = found != 0


@jit
def raise_floor(buffer: CandidateBuffer, scores: F4, i0: int, keep: int) -> None:
    """Raise the floors of queries to the lower bound of their k-th best score in a sample of the candidates.

    `scores`: (m, n) float32; low-precision scores of queries i0, i0 + 1, ... and any n >= `keep` candidates.
    """
    at = scores.shape[1] - keep
    for i in range(len(scores)):
        if buffer.floor[i0 + i] == -np.inf:
            # The k-th best of all candidates is no worse than that of a sample.
            kth = np.float64(np.partition(scores[i], at)[at])
            buffer.floor[i0 + i] = kth - buffer.slack[i0 + i] - _half_step(kth, buffer.rounding)
            _set_limit(buffer, i0 + i)
