"""Rank of the best positive of each query, by counting what scores as high: no sort, no partition."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel_train.metrics.positives import QueryPositives
from relabel_train.metrics.ranking import Ties
from relabel_train.metrics.scores import Direction, Floats, Scores, blocks, consecutive

_BYTE = 255
"""Items counted in one byte a query."""


def best_ranks(
    scores: Scores, direction: Direction, positives: QueryPositives, ties: Ties = "pessimistic"
) -> NDArray[np.int64]:
    """Find the rank of the best positive of each query, counted from 0.

    Parameters
    ----------
    scores : Scores
        (M, N).
    direction : "i2t" or "t2i"
    positives : QueryPositives
        Q queries.
    ties : "pessimistic" or "row"
        Whether equals that are not positive come first, or equals of a lower row (column).

    Returns
    -------
    (Q,) int64
        The size of the gallery where it holds no positive of the query.
    """
    possible = scores.shape[0 if direction == "i2t" else 1]
    if len(positives) > possible // 2 and not consecutive(positives.queries):  # views, where most are asked anyway
        return best_ranks(scores, direction, positives.spread(possible), ties)[positives.queries]
    out = np.empty(len(positives), np.int64)
    for some in blocks(scores, direction, len(positives)):
        part = positives.take(some)
        out[some] = _ranks(scores.lists(direction, part.queries), part, ties)
    return out


def _ranks(lists: Floats, positives: QueryPositives, ties: Ties) -> NDArray[np.int64]:
    count = np.diff(positives.indptr)
    here = np.flatnonzero(count)
    ranks = np.full(len(lists), lists.shape[1], np.int64)
    if not len(here):
        return ranks
    owner, starts = positives.owner(), positives.indptr[here]
    values = lists[owner, positives.items]
    best = np.full(len(lists), np.inf, lists.dtype)
    best[here] = np.maximum.reduceat(values, starts)
    level = values == best[owner]
    at_least = count_at_least(lists, best)
    if ties == "pessimistic":
        ranks[here] = at_least[here] - np.add.reduceat(level.astype(np.int64), starts)
        return ranks
    above = count_at_least(lists, np.nextafter(best, lists.dtype.type(np.inf)))
    first = np.minimum.reduceat(np.where(level, positives.items, lists.shape[1]), starts)
    ranks[here] = above[here]
    for q, place in zip(here.tolist(), first.tolist(), strict=True):
        if at_least[q] - above[q] > 1:
            ranks[q] += np.count_nonzero(lists[q, :place] == best[q])
    return ranks


def item_ranks(
    scores: Scores, direction: Direction, positives: QueryPositives, ties: Ties = "pessimistic"
) -> NDArray[np.int64]:
    """Find the rank of every positive of each query, counted from 0; quick where queries have a few.

    Parameters
    ----------
    scores : Scores
        (M, N).
    direction : "i2t" or "t2i"
    positives : QueryPositives
        P items.
    ties : "pessimistic" or "row"

    Returns
    -------
    (P,) int64
    """
    out = np.empty(len(positives.items), np.int64)
    for some in blocks(scores, direction, len(positives)):
        part = positives.take(some)
        lists = scores.lists(direction, part.queries)
        out[positives.indptr[some.start] : positives.indptr[some.stop]] = _item_ranks(lists, part, ties)
    return out


def _item_ranks(lists: Floats, positives: QueryPositives, ties: Ties) -> NDArray[np.int64]:
    owner = positives.owner()
    slot = np.arange(len(owner)) - positives.indptr[owner]
    values = lists[owner, positives.items]
    level = np.full((len(lists), int(slot.max(initial=-1)) + 1), np.inf, lists.dtype)
    level[owner, slot] = values
    at_least = count_at_least(lists, level)
    if ties == "pessimistic":
        # all that reach it come before, but itself and its equals in later slots
        ranks = at_least - np.triu(level[:, :, None] == level[:, None, :]).sum(axis=2)
        return np.asarray(ranks[owner, slot], np.int64)
    above = count_at_least(lists, np.nextafter(level, lists.dtype.type(np.inf)))
    ranks = np.asarray(above[owner, slot], np.int64)
    for p in np.flatnonzero(at_least[owner, slot] - ranks > 1):
        ranks[p] += np.count_nonzero(lists[owner[p], : positives.items[p]] == values[p])
    return ranks


def count_at_least(lists: Floats, level: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
    """Count the scores of each query that reach each of its levels.

    Parameters
    ----------
    lists : (Q, n) float
        Fast for rows in memory order, and for views of columns.
    level : (Q,) or (Q, L) float

    Returns
    -------
    (Q,) or (Q, L) int64
    """
    levels = level[:, None] if level.ndim == 1 else level
    out = np.zeros(levels.shape, np.int64)
    if lists.strides[1] <= lists.strides[0]:
        reached = np.empty(lists.shape[1], np.bool_)
        asked = levels < np.inf
        for q, row in enumerate(lists):
            for slot in np.flatnonzero(asked[q]).tolist():
                out[q, slot] = np.count_nonzero(np.greater_equal(row, levels[q, slot], out=reached))
    else:
        items = lists.T
        for a in range(0, len(items), _BYTE):
            for slot in range(levels.shape[1]):
                here = items[a : a + _BYTE] >= levels[:, slot]
                out[:, slot] += here.view(np.uint8).sum(axis=0, dtype=np.uint8)
    return out.reshape(level.shape)
