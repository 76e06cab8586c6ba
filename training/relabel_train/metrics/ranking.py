"""Ranked lists of positives, with an explicit rule for ties.

Sorting works on integer keys: a score becomes a 32-bit code that sorts as the score does, so that a score and a second
criterion fit into one 64-bit key.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from relabel_train.metrics.positives import QueryPositives
from relabel_train.metrics.scores import Direction, Floats, Scores, blocks, consecutive

Ties = Literal["pessimistic", "row"]
"""`pessimistic`: among equal scores, items that are not positive come first. `row`: the lower column comes first."""
Codes = NDArray[np.int32]

_FLIP = np.int32(0x7FFFFFFF)
_CELLS = 1 << 18
"""Scores ranked per step: 2 MiB of keys, which fit into a cache."""
_BYTE = 255
"""Items counted per query in one byte."""
_FEW = 8
"""Positives per query up to which counting the rank of each one is faster than ranking the list."""


def encode(values: Floats) -> tuple[Codes, Floats | None]:
    """Return integer codes that sort as the values do and are equal where the values are.

    The code of a number that float32 holds exactly is its bit pattern, made sortable. Other numbers are replaced by
    their dense rank within the row.

    `values`: (Q, n) float32 or float64; without NaN. Returns `codes`, (Q, n) int32; `table`, (Q, n) float64 or None:
    values by dense rank: code c of row q stands for ``table[q, c]``. None for codes that are bit patterns.
    """
    single = values.astype(np.float32)
    if values.dtype != np.float32 and not np.array_equal(single, values):
        return _dense_ranks(values)
    # -0 and 0 compare equal, so they need one bit pattern: -0 + 0 is 0.
    single += np.float32(0)
    bits = single.view(np.int32)
    # Negative floats sort backwards as integers: flip all bits but the sign.
    return bits ^ ((bits >> 31) & _FLIP), None


def decode(codes: Codes, table: Floats | None) -> NDArray[np.floating[Any]]:
    """Return the values of codes of the same rows, in any order and number: (Q, k) float."""
    if table is not None:
        return np.take_along_axis(table, codes.astype(np.int64), axis=1)
    return np.asarray((codes ^ ((codes >> 31) & _FLIP)).view(np.float32))


def smallest(values: NDArray[Any], depth: int | None) -> NDArray[Any]:
    """Return the sorted `depth` smallest values of each row, (Q, min(depth, n)); overwrites `values`, (Q, n)."""
    if depth is not None and depth < values.shape[1]:
        # A partition is linear in n; only the best `depth` are sorted.
        values.partition(max(0, depth - 1), axis=1)
        values = values[:, :depth].copy()
    values.sort(axis=1)
    return values


def _dense_ranks(values: Floats) -> tuple[Codes, Floats]:
    """Return the dense rank of each value within its row, and the values by dense rank, both (Q, n)."""
    order = np.argsort(values, axis=1)
    ordered = np.take_along_axis(values, order, axis=1)
    dense = np.zeros(values.shape, np.int32)
    np.cumsum(ordered[:, 1:] != ordered[:, :-1], axis=1, out=dense[:, 1:])
    codes = np.empty_like(dense)
    np.put_along_axis(codes, order, dense, axis=1)
    table = np.zeros(values.shape, values.dtype)
    np.put_along_axis(table, dense.astype(np.int64), ordered, axis=1)
    return codes, table


def ranked_hits(
    scores: NDArray[np.floating[Any]], positive: NDArray[np.bool_], length: int, ties: Ties = "pessimistic"
) -> NDArray[np.bool_]:
    """Mark which of the `length` best items of each query are positive, best first.

    Parameters
    ----------
    scores : (Q, N) float
        Score of each item for each query; larger is better. -inf is allowed, NaN is not.
    positive : (Q, N) bool
    length : int
        0..N.
    ties : "pessimistic" or "row"
        "pessimistic" gives no chance hits, which flatter a coarse score. "row" equals a stable sort.

    Returns
    -------
    (Q, length) bool

    Raises
    ------
    ValueError
        If `length` is not in 0..N, the shapes differ, or a score is NaN.

    Examples
    --------
    >>> import numpy as np
    >>> from relabel_train.metrics import ranked_hits
    >>> scores, positive = np.array([[0.9, 0.5, 0.5, 0.1]]), np.array([[False, True, False, True]])
    >>> ranked_hits(scores, positive, 3)
    array([[False, False,  True]])
    >>> ranked_hits(scores, positive, 3, ties="row")
    array([[False,  True, False]])
    """
    queries, items = scores.shape
    if positive.shape != scores.shape:
        raise ValueError(f"scores are {scores.shape}, positive is {positive.shape}")
    if not 0 <= length <= items:
        raise ValueError(f"length {length} is not in 0..{items}")
    if scores.size and np.isnan(scores.max()):
        raise ValueError("a score is NaN")
    hits = np.zeros((queries, length), np.bool_)
    step = max(1, _CELLS // max(1, items))
    for start in range(0, queries if length else 0, step):
        block = slice(start, start + step)
        # Inverted codes rise as scores fall. The bits below them break ties.
        keys = (~encode(scores[block])[0]).astype(np.int64)
        if ties == "pessimistic":
            # A positive is odd and so stands behind an equal score that is not positive.
            keys <<= 1
            keys |= positive[block]
            hits[block] = smallest(keys, length) & 1
        else:
            # The column as the low half: equal scores stand in the order of columns.
            keys <<= 32
            keys |= np.arange(items)
            hits[block] = np.take_along_axis(positive[block], smallest(keys, length) & 0xFFFFFFFF, axis=1)
    return hits


def first_hits(
    scores: Scores,
    direction: Direction,
    positives: QueryPositives,
    length: int,
    ties: Ties = "pessimistic",
    without: QueryPositives | None = None,
) -> NDArray[np.bool_]:
    """Mark which of the `length` best items of each query are positive, best first, for scores that come in blocks.

    Parameters
    ----------
    scores : Scores
        (M, N).
    direction : "i2t" or "t2i"
    positives : QueryPositives
        Q queries.
    length : int
        Positions behind the end of a shorter gallery hold no positive.
    ties : "pessimistic" or "row"
    without : QueryPositives, optional
        Items that are removed from the lists of these queries.

    Returns
    -------
    (Q, length) bool

    Examples
    --------
    >>> import numpy as np
    >>> from relabel_train.metrics import first_hits, open_scores, own_positives
    >>> scores = open_scores(np.array([[0.9, 0.2, 0.1], [0.3, 0.4, 0.8]]))
    >>> first_hits(scores, "i2t", own_positives([0, 1, 1], images=2).i2t, 2)
    array([[ True, False],
           [ True,  True]])
    """
    queries, items = scores.shape if direction == "i2t" else scores.shape[::-1]
    hits = np.zeros((len(positives), length), np.bool_)
    row_of_query = np.full(queries, -1, np.int64)
    for block, part, lists in query_blocks(scores, direction, positives):
        lists = np.ascontiguousarray(lists)
        if without is not None:
            lists = lists.copy()
            # Map the queries of `without`, in any order, to the rows of this block; -1 marks those of other blocks.
            row_of_query[part.queries] = np.arange(len(part))
            row = row_of_query[without.queries[without.owner()]]
            lists[row[row >= 0], without.items[row >= 0]] = -np.inf
            row_of_query[part.queries] = -1
        # A gallery of fewer items than `length` leaves the last columns False.
        hits[block, :items] = ranked_hits(lists, part.dense(items), min(length, items), ties)
    return hits


def best_ranks(
    scores: Scores, direction: Direction, positives: QueryPositives, ties: Ties = "pessimistic"
) -> NDArray[np.int64]:
    """Return the rank of the best positive of each query, counted from 0. Ranks are counted, not sorted.

    Parameters
    ----------
    scores : Scores
        (M, N).
    direction : "i2t" or "t2i"
    positives : QueryPositives
        Q queries.
    ties : "pessimistic" or "row"
        Among equal scores other items come first, or the lower column (row).

    Returns
    -------
    (Q,) int64
        Size of the gallery for a query without a positive in the gallery.

    Examples
    --------
    >>> import numpy as np
    >>> from relabel_train.metrics import best_ranks, open_scores, own_positives
    >>> scores = open_scores(np.array([[0.9, 0.2, 0.1], [0.3, 0.4, 0.2]]))
    >>> best_ranks(scores, "t2i", own_positives([1, 1, 0], images=2).t2i)
    array([1, 0, 1])
    """
    possible = scores.shape[0 if direction == "i2t" else 1]
    if len(positives) > possible // 2 and not consecutive(positives.queries):
        # Most of the rows are read anyway, and consecutive ones are views.
        return best_ranks(scores, direction, positives.expand(possible), ties)[positives.queries]
    ranks = np.empty(len(positives), np.int64)
    for block, part, lists in query_blocks(scores, direction, positives):
        ranks[block] = _best_ranks(lists, part, ties)
    return ranks


def _best_ranks(lists: Floats, positives: QueryPositives, ties: Ties) -> NDArray[np.int64]:
    """Return the ranks of a block of queries, given their lists of scores, (Q, n)."""
    count = np.diff(positives.indptr)
    answerable = np.flatnonzero(count)
    ranks = np.full(len(lists), lists.shape[1], np.int64)
    if not len(answerable):
        return ranks
    # reduceat needs the starts of non-empty segments alone.
    starts = positives.indptr[answerable]
    values = lists[positives.owner(), positives.items]
    best = values == np.repeat(np.maximum.reduceat(values, starts), count[answerable])
    # Of several best positives the first column is ranked.
    first = np.minimum.reduceat(np.where(best, positives.items, lists.shape[1]), starts)
    indptr = np.concatenate([[0], np.cumsum(count > 0)])
    ranks[answerable] = _item_ranks(lists, QueryPositives(positives.queries, indptr, first, positives.total), ties)
    if ties == "pessimistic":
        # Other positives with the best score stand behind the equals that are not positive, as the counted one does.
        ranks[answerable] -= np.add.reduceat(best.astype(np.int64), starts) - 1
    return ranks


def item_ranks(
    scores: Scores, direction: Direction, positives: QueryPositives, ties: Ties = "pessimistic"
) -> NDArray[np.int64]:
    """Return the rank of each of P positives, counted from 0: (P,) int64; fast for a few positives per query.

    Parameters are those of `best_ranks`.
    """
    ranks = np.empty(len(positives.items), np.int64)
    for block, part, lists in query_blocks(scores, direction, positives):
        ranks[positives.indptr[block.start] : positives.indptr[block.stop]] = _item_ranks(lists, part, ties)
    return ranks


def _item_ranks(lists: Floats, positives: QueryPositives, ties: Ties) -> NDArray[np.int64]:
    """Return the ranks of the positives of a block of queries, (P,), given their lists of scores, (Q, n)."""
    owner = positives.owner()
    slot = np.arange(len(owner)) - positives.indptr[owner]
    values = lists[owner, positives.items]
    # One row of levels per query; a level of infinity, in unused slots, is reached by no score.
    level = np.full((len(lists), int(slot.max(initial=-1)) + 1), np.inf, lists.dtype)
    level[owner, slot] = values
    at_least = count_at_least(lists, level)
    if ties == "pessimistic":
        # All items that reach the score come first, except the item itself and its equals in later slots.
        ranks = at_least - np.triu(level[:, :, None] == level[:, None, :]).sum(axis=2)
        return np.asarray(ranks[owner, slot], np.int64)
    # Scores strictly above: those that reach the next larger float.
    above = count_at_least(lists, np.nextafter(level, lists.dtype.type(np.inf)))
    ranks = np.asarray(above[owner, slot], np.int64)
    # Equal scores are rare, so the columns before the item are scanned only where there are any.
    for p in np.flatnonzero(at_least[owner, slot] - ranks > 1):
        ranks[p] += np.count_nonzero(lists[owner[p], : positives.items[p]] == values[p])
    return ranks


def count_at_least(lists: Floats, levels: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
    """Count the scores of each query that reach each of its levels.

    `lists`: (Q, n) float; fast for rows in memory order, and for views of columns. `levels`: (Q, L) float. Returns (Q,
    L) int64.
    """
    counts = np.zeros(levels.shape, np.int64)
    if lists.strides[1] <= lists.strides[0]:
        # Rows in memory order: one vectorised pass per level, into a buffer that is reused.
        reached = np.empty(lists.shape[1], np.bool_)
        finite = levels < np.inf
        for q, row in enumerate(lists):
            for slot in np.flatnonzero(finite[q]).tolist():
                counts[q, slot] = np.count_nonzero(np.greater_equal(row, levels[q, slot], out=reached))
    else:
        # Columns in memory order: all queries at a time, with sums of at most 255 items in one byte per query.
        items = lists.T
        for start in range(0, len(items), _BYTE):
            for slot in range(levels.shape[1]):
                reached = items[start : start + _BYTE] >= levels[:, slot]
                counts[:, slot] += reached.view(np.uint8).sum(axis=0, dtype=np.uint8)
    return counts


def ranks_and_hits(
    scores: Scores, direction: Direction, positives: QueryPositives, length: int, ties: Ties = "pessimistic"
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the rank of each query's best positive, and the hits among its `length` best items.

    Equal to `best_ranks` and `first_hits`, in one pass where every query has few positives.
    """
    counts = np.diff(positives.indptr)
    if not len(counts) or not 1 <= counts.min() <= counts.max() <= _FEW:
        return (
            best_ranks(scores, direction, positives, ties),
            first_hits(scores, direction, positives, length, ties),
        )
    # The rank of every positive gives both results: the best one, and which positions hold a hit.
    ranks = item_ranks(scores, direction, positives, ties)
    hits = np.zeros((len(positives), length), np.bool_)
    within = ranks < length
    hits[positives.owner()[within], ranks[within]] = True
    return np.minimum.reduceat(ranks, positives.indptr[:-1]), hits


def query_blocks(
    scores: Scores, direction: Direction, positives: QueryPositives
) -> Iterator[tuple[slice, QueryPositives, Floats]]:
    """Yield blocks of queries: their slice, their positives and their lists of scores."""
    for block in blocks(scores, direction, len(positives)):
        part = positives.take(block)
        yield block, part, scores.lists(direction, part.queries)


def kth_largest(scores: NDArray[np.floating[Any]], k: int) -> NDArray[np.floating[Any]]:
    """Return the k-th largest score of each row, (Q,) float; fast also for rows in which most scores tie.

    `scores`: (Q, N) float; without NaN. `k`: 1..N.
    """
    queries, items = scores.shape
    # About 8 k groups: their maxima give a tight bound and are few to partition.
    width = max(1, items // (8 * k))
    groups = items // width
    # The k-th largest of the maxima of at least k groups is a lower bound of the k-th largest score.
    maxima = scores[:, : groups * width].reshape(queries, groups, width).max(axis=2)
    bound = np.partition(maxima, groups - k, axis=1)[:, groups - k]
    kth = bound.copy()
    for q in range(queries):
        # Few scores lie above the bound. Fewer than k of them: the bound itself is the k-th largest.
        above = scores[q][scores[q] > bound[q]]
        if len(above) >= k:
            kth[q] = np.partition(above, len(above) - k)[len(above) - k]
    return kth
