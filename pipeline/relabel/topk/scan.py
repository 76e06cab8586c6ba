"""Scan of all pairs of queries and candidates: low-precision products as a screen, then exact scores.

The floor of a query is a lower bound on the exact score of its k-th best candidate. A pair is scored exactly if its
low-precision product allows a score at or above the floor. The buffer of a query holds exact scores. If it is full, it
is cut to the k best by score and number, and the floor rises to the k-th score. The result therefore does not depend on
the order of pairs, the number of threads or the size of the buffers.

Initial floors are guesses, quantiles of a sample of candidates. If the k-th best score of a query is below its guess,
the query is searched again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from threading import Lock, local
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.kernels import jit
from relabel.core.numeric.threads import inner_threads, run_chunks
from relabel.core.runtime import Advance, ignore_progress
from relabel.topk.exact_scores import Sets, score
from relabel.topk.merge import TopK
from relabel.topk.screen import LowPrecision, empty_tile, error_bound, multiply

F4 = NDArray[np.float32]
F8 = NDArray[np.float64]
I4 = NDArray[np.int32]
I8 = NDArray[np.int64]
TILE_EDGE = 512
_TILES_PER_RUN = 16  # consecutive tiles of a row of tiles per work item of a thread
_WORD = 64  # products that are compared with their limits together, before they are compared one by one
_SAMPLE = 4096  # candidates in the sample for the initial floors

Slabs = Iterable[tuple[int, "Side"]]
"""Slabs of candidates, each with the number of its first candidate."""


class Buffers(NamedTuple):
    """Limits and best candidates of n queries.

    A product x of query i and candidate j is screened out if ``x < limit[i] * inverse[j] - slope[i] * error[j]``, with
    `limit` and `slope` of the query's buffers, `inverse` and `error` of the candidate's.

    `inverse`: (n,) float32; 1 / scale. `error`: (n,) float32; norm of the error / scale.
    `slope`: (n,) float32; norm of the low-precision vector / scale.
    `slack`: (n,) float64; see `error_bound`.
    `known`: (n,) float64; scores that `keep` candidates in other files reach, or -inf.
    `floor`: (n,) float64; lower bound on the k-th best exact score, or a guess; inf for a query without list.
    `limit`: (n,) float32; (floor - slack) / scale.
    `numbers`, `scores`, `sizes`: (n, capacity) int32 and float64, (n,) int32; candidates with exact scores.
    """

    inverse: F4
    error: F4
    slope: F4
    slack: F8
    known: F8
    floor: F8
    limit: F4
    numbers: I4
    scores: F8
    sizes: I4


@dataclass(frozen=True, eq=False)
class Side:
    """Queries or candidates: low-precision vectors, sets of exact vectors, and buffers."""

    vectors: LowPrecision
    sets: Sets
    buffers: Buffers

    def __len__(self) -> int:
        return len(self.buffers.floor)


def make_side(vectors: LowPrecision, sets: Sets, known: F8, capacity: int) -> Side:
    """Prepare a side with empty buffers."""
    n, inverse = len(known), 1 / vectors.scale
    # All scores of a zero vector are 0, so it needs no scan.
    floor = np.where(vectors.norm > 0, known, np.inf)
    columns = (inverse, vectors.error * inverse, vectors.size * inverse)
    scales, errors, slopes = (column.astype(np.float32) for column in columns)
    held = np.empty((n, capacity), np.int32), np.empty((n, capacity)), np.zeros(n, np.int32)
    limit = np.empty(n, np.float32)
    return Side(vectors, sets, Buffers(scales, errors, slopes, np.empty(n), known, floor, limit, *held))


def set_limits(side: Side, candidates: LowPrecision) -> None:
    """Compute the limits of a side from its floors, for products with the given candidates."""
    buffers, members = side.buffers, int(np.diff(side.sets.indptr).max(initial=1))
    buffers.slack[:] = error_bound(side.vectors, candidates, side.sets.vectors.shape[1] + members)
    buffers.limit[:] = (buffers.floor - buffers.slack) * buffers.inverse


def count_products(m: int, n: int, itself: bool) -> int:
    """Return the number of pairs of m queries and n candidates, or of unordered pairs of m queries if `itself`."""
    return m * (m + 1) // 2 if itself else m * n


def scan_tiles(
    left: Side, right: Side, both: bool, first: int, keep: int, threads: int, advance: Advance = ignore_progress
) -> None:
    """Fill the buffers of `left` with candidates of `right` and, if `both`, vice versa.

    If `left is right`, only the tiles on and above the diagonal are computed. `first`: number of the first candidate of
    `right`. `advance`: called with the number of products since the last call.
    """
    itself = left is right
    set_limits(left, right.vectors)
    if both and not itself:
        set_limits(right, left.vectors)
    rows, columns = (
        [range(a, min(a + TILE_EDGE, len(side))) for a in range(0, len(side), TILE_EDGE)] for side in (left, right)
    )
    # A lock per row and per column of tiles protects their buffers. To avoid deadlocks, rows are locked before columns
    # and, within one side, i before j > i.
    row_locks = [Lock() for _ in rows]
    column_locks = row_locks if itself else [Lock() for _ in columns]
    memory = local()

    def run(item: tuple[int, Sequence[int]]) -> int:
        i, tile_columns = item
        if not hasattr(memory, "tile"):
            memory.tile = empty_tile(left.vectors.values.dtype, TILE_EDGE * TILE_EDGE)
        done = 0
        for j in tile_columns:
            a, b = rows[i], columns[j]
            tile = multiply(left.vectors.values[a.start : a.stop], right.vectors.values[b.start : b.stop], memory.tile)
            # A tile on the diagonal holds every pair in both orders, so filling its rows is enough.
            diagonal = itself and i == j
            two_way = both and not diagonal
            with row_locks[i], column_locks[j] if two_way else nullcontext():
                _scan(tile, left.sets, right.sets, left.buffers, right.buffers, a.start, b.start, first, keep, two_way)
            done += count_products(len(a), len(b), diagonal)
        return done

    # Consecutive items have different rows, to avoid lock contention.
    starts = range(0, len(columns), _TILES_PER_RUN)
    items = [(i, range(c, min(c + _TILES_PER_RUN, len(columns)))) for c in starts for i in range(len(rows))]
    if itself:
        items = [(i, range(max(i, tiles.start), tiles.stop)) for i, tiles in items if i < tiles.stop]
    for done in one_thread_each(run, items, threads):
        advance(done)


def raise_floors(side: Side, candidates: LowPrecision, count: int, keep: int, threads: int) -> None:
    """Guess the floors of queries without one, from their low-precision scores with a sample of candidates.

    `candidates`: some or all of the `count` candidates.
    """
    floor = side.buffers.floor
    unknown, available = np.flatnonzero(floor == -np.inf), len(candidates.scale)
    sample = candidates.take(np.arange(0, available, max(1, available // _SAMPLE)))
    size = len(sample.scale)
    # For about 1% of queries, a random sample contains more of the k best candidates than this rank.
    expected = keep * size / count
    rank = min(keep, int(expected + 2.4 * expected**0.5) + 2)
    if size < 2 * rank:
        return
    rows = max(1, TILE_EDGE * TILE_EDGE // size)

    def run(start: int) -> None:
        queries = unknown[start : start + rows]
        tile = empty_tile(sample.values.dtype, rows * size)
        products = multiply(side.vectors.values[queries], sample.values, tile)
        scores = np.multiply(products, sample.scale.astype(np.float32), dtype=np.float32)
        floor[queries] = np.partition(scores, size - rank, axis=1)[:, size - rank] * side.vectors.scale[queries]

    list(one_thread_each(run, range(0, len(unknown), rows), threads))


def write_best(side: Side, slabs: Slabs, keep: int, candidates: range, threads: int) -> TopK:
    """Return the lists of a side. Queries with a wrong initial floor are searched again.

    `slabs`: the candidates that were scanned. `candidates`: their numbers in the lists.
    """
    lists = finish(side, keep, candidates, threads)
    wrong = np.flatnonzero(lists.sizes < 0)
    if len(wrong):
        known, capacity = side.buffers.known[wrong], side.buffers.numbers.shape[1]
        again = make_side(side.vectors.take(wrong), side.sets.take(wrong), known, capacity)
        for first, slab in slabs:
            scan_tiles(again, slab, False, first, keep, threads)
        lists.assign(wrong, finish(again, keep, candidates, threads))
    return lists


def finish(side: Side, keep: int, candidates: range, threads: int) -> TopK:
    """Sort the buffers of a side into lists. A list has size -1 if the initial floor of its query was too high."""
    lists = TopK.empty(len(side), keep)

    def run(start: int, stop: int) -> None:
        _finish(side.buffers, lists, start, stop, candidates.start, candidates.stop)

    run_chunks(run, len(side), threads, -(-len(side) // (4 * threads)))
    return lists


def one_thread_each(work: Callable[[Any], Any], items: Sequence[Any], workers: int) -> Iterator[Any]:
    """Call `work` on every item in `workers` threads, each with one torch thread, in full float32; yield the results.

    Threads do not wait for each other inside an operator, where a busy machine loses much time. Results do not depend
    on the number of threads. After an error, running items are finished and no other item starts.
    """
    import torch

    from relabel_train.tensors import full_float32

    count = max(1, min(workers, len(items)))
    # torch has a thread count per thread, so every pool thread sets its own. The error bound does not hold for products
    # with reduced precision, which the calling program may have enabled.
    with (
        full_float32(),
        inner_threads(torch.get_num_threads()),
        ThreadPoolExecutor(count, "", torch.set_num_threads, (1,)) as pool,
    ):
        yield from pool.map(work, items)


@jit
def _scan(
    tile: Any,
    left: Sets,
    right: Sets,
    mine: Buffers,
    theirs: Buffers,
    i0: int,
    j0: int,
    first: int,
    keep: int,
    both: bool,
) -> None:
    """Add the pairs of a tile that reach a floor to the buffers of its rows and, if `both`, of its columns.

    `tile`: (m, n) int32 or float32; products of queries i0, i0 + 1, ... and candidates j0, j0 + 1, ... `first`: number
    of the first candidate of `right`.
    """
    # The loops use arrays instead of tuples and few calls, because counting references takes longer than a score.
    vectors, indptr, members, pooling = left
    candidates, columns = right.members, slice(j0, j0 + tile.shape[1])
    inverse, error, slope, slack, _, floor, limit, numbers, scores, sizes = mine
    inverse_, error_, slope_, slack_, _, floor_, limit_, numbers_, scores_, sizes_ = theirs
    hits = np.empty(tile.shape[1] + 1, np.int64)
    for i in range(len(tile)):
        q = i0 + i
        query, scaling = (limit[q], slope[q], inverse[q], error[q]), (inverse_[columns], error_[columns])
        count = _find(tile[i], both, query, *scaling, limit_[columns], slope_[columns], hits)
        for h in range(count):
            p = j0 + hits[h]
            x = score(vectors, members, indptr[q], indptr[q + 1], candidates[p], pooling)
            if x >= floor[q]:
                if sizes[q] == numbers.shape[1]:
                    _cut(q, keep, numbers, scores, sizes, floor)
                    limit[q] = (floor[q] - slack[q]) * inverse[q]
                numbers[q, sizes[q]], scores[q, sizes[q]] = first + p, x
                sizes[q] += 1
            if both and x >= floor_[p]:
                if sizes_[p] == numbers_.shape[1]:
                    _cut(p, keep, numbers_, scores_, sizes_, floor_)
                    limit_[p] = (floor_[p] - slack_[p]) * inverse_[p]
                numbers_[p, sizes_[p]], scores_[p, sizes_[p]] = q, x
                sizes_[p] += 1


@jit
def _find(row: Any, both: bool, query: Any, inverses: F4, errors: F4, limits: F4, slopes: F4, hits: I8) -> int:
    """Write the columns with a product at the limit of the row or, if `both`, of the column; return their number."""
    (limit, slope, inverse, error), count, words = query, 0, len(row) // _WORD
    # Loops from 0 over a constant width compile to vector instructions.
    shape = words, _WORD
    full = words * _WORD
    x, inv, err = row[:full].reshape(shape), inverses[:full].reshape(shape), errors[:full].reshape(shape)
    lim, slo = limits[:full].reshape(shape), slopes[:full].reshape(shape)
    for w in range(words + 1):
        # The columns after the last word are compared one by one.
        hit = np.int32(w == words)
        if w < words and both:
            for j in range(_WORD):
                y = np.float32(x[w, j])
                hit |= np.int32(
                    (y >= limit * inv[w, j] - slope * err[w, j]) | (y >= lim[w, j] * inverse - slo[w, j] * error)
                )
        elif w < words:
            for j in range(_WORD):
                hit |= np.int32(np.float32(x[w, j]) >= limit * inv[w, j] - slope * err[w, j])
        if hit:
            # Without a branch: every column is written, and overwritten by the next one unless it is a hit.
            for j in range(w * _WORD, min((w + 1) * _WORD, len(row))):
                y = np.float32(row[j])
                hits[count] = j
                count += int(
                    (y >= limit * inverses[j] - slope * errors[j])
                    | (both & (y >= limits[j] * inverse - slopes[j] * error))
                )
    return count


@jit
def _cut(i: int, keep: int, numbers: I4, scores: F8, sizes: I4, floor: F8) -> None:
    """Cut the buffer of a query to its k best by (-score, number), and raise its floor to the k-th."""
    n, m = sizes[i], 0
    kth = np.partition(scores[i, :n], n - keep)[n - keep]
    for e in range(n):
        if scores[i, e] >= kth:
            numbers[i, m], scores[i, m] = numbers[i, e], scores[i, e]
            m += 1
    # Of candidates tied with the k-th, keep those with the lowest numbers.
    while m > keep:
        worst = -1
        for e in range(m):
            if scores[i, e] == kth and (worst < 0 or numbers[i, e] > numbers[i, worst]):
                worst = e
        m -= 1
        numbers[i, worst], scores[i, worst] = numbers[i, m], scores[i, m]
    sizes[i], floor[i] = m, max(floor[i], kth)


@jit
def _finish(buffers: Buffers, lists: TopK, start: int, stop: int, lowest: int, end: int) -> None:
    known, keep = buffers.known, lists.numbers.shape[1]
    for i in range(start, stop):
        n, size, numbers, scores = 0, buffers.sizes[i], lists.numbers[i], lists.scores[i]
        if buffers.floor[i] == np.inf:
            # All candidates of a zero vector have score 0; the lowest numbers win.
            n = min(keep, end - lowest)
            for e in range(n):
                numbers[e], scores[e] = lowest + e, 0.0
        elif size < keep and buffers.floor[i] > known[i]:
            # The floor was a guess and too high: the scan found fewer than k candidates at or above it.
            n = -1
        else:
            by_number = np.argsort(buffers.numbers[i, :size])
            order = by_number[np.argsort(-buffers.scores[i, :size][by_number], kind="mergesort")]
            # Keep scores equal to the known one: such a candidate may win by its lower number.
            while n < min(size, keep) and buffers.scores[i, order[n]] >= known[i]:
                numbers[n], scores[n] = lowest + buffers.numbers[i, order[n]], buffers.scores[i, order[n]]
                n += 1
        lists.sizes[i] = n
