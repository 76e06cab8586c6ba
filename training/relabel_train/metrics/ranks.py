"""Rank of the best positive of each query, by counting what scores as high: no sort, no partition."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel_train.metrics.positives import QueryPositives
from relabel_train.metrics.ranking import Ties
from relabel_train.metrics.scores import Direction, Floats, Scores, blocks

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
    above[np.isposinf(best)] = 0
    first = np.minimum.reduceat(np.where(level, positives.items, lists.shape[1]), starts)
    ranks[here] = above[here]
    for q, place in zip(here.tolist(), first.tolist(), strict=True):
        if at_least[q] - above[q] > 1:
            ranks[q] += np.count_nonzero(lists[q, :place] == best[q])
    return ranks


def count_at_least(lists: Floats, level: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
    """Count the scores of each query that reach its level.

    Parameters
    ----------
    lists : (Q, n) float
        Fast for rows in memory order, and for views of columns.
    level : (Q,) float

    Returns
    -------
    (Q,) int64
    """
    out = np.zeros(len(lists), np.int64)
    if lists.strides[1] <= lists.strides[0]:
        reached = np.empty(lists.shape[1], np.bool_)
        for q, row in enumerate(lists):
            out[q] = np.count_nonzero(np.greater_equal(row, level[q], out=reached))
        return out
    items = lists.T
    for a in range(0, len(items), _BYTE):
        reached = items[a : a + _BYTE] >= level
        out += reached.view(np.uint8).sum(axis=0, dtype=np.uint8)
    return out
