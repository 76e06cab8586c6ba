"""What stands at the first places of each query's list."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relabel_train.metrics.positives import QueryPositives
from relabel_train.metrics.ranking import Ties, ranked_hits
from relabel_train.metrics.ranks import best_ranks, item_ranks
from relabel_train.metrics.scores import Direction, Scores, blocks

_FEW = 8
"""Positives a query up to which counting each one's rank is quicker than ranking the list."""


def first_hits(
    scores: Scores,
    direction: Direction,
    positives: QueryPositives,
    length: int,
    ties: Ties = "pessimistic",
    without: QueryPositives | None = None,
) -> NDArray[np.bool_]:
    """Say which of the `length` best items of each query are positive, best first.

    Parameters
    ----------
    scores : Scores
        (M, N).
    direction : "i2t" or "t2i"
    positives : QueryPositives
        Q queries.
    length : int
        A shorter gallery has nothing behind its end.
    ties : "pessimistic" or "row"
    without : QueryPositives, optional
        Items that are taken out of the lists of these queries.

    Returns
    -------
    (Q, length) bool
    """
    queries, items = scores.shape if direction == "i2t" else scores.shape[::-1]
    hits = np.zeros((len(positives), length), np.bool_)
    place = np.full(queries, -1, np.int64)
    for some in blocks(scores, direction, len(positives)):
        part = positives.take(some)
        lists = np.ascontiguousarray(scores.lists(direction, part.queries))
        if without is not None:
            lists = lists.copy()
            place[part.queries] = np.arange(len(part))
            row = place[without.queries[without.owner()]]
            lists[row[row >= 0], without.items[row >= 0]] = -np.inf
            place[part.queries] = -1
        hits[some, :items] = ranked_hits(lists, part.dense(items), min(length, items), ties)
    return hits


def ranks_and_hits(
    scores: Scores, direction: Direction, positives: QueryPositives, length: int, ties: Ties = "pessimistic"
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Find the rank of each query's best positive and what its first places hold; see `best_ranks` and `first_hits`."""
    counts = np.diff(positives.indptr)
    if not len(counts) or not 1 <= counts.min() <= counts.max() <= _FEW:
        return (
            best_ranks(scores, direction, positives, ties),
            first_hits(scores, direction, positives, length, ties),
        )
    ranks = item_ranks(scores, direction, positives, ties)
    hits = np.zeros((len(positives), length), np.bool_)
    found = ranks < length
    hits[positives.owner()[found], ranks[found]] = True
    return np.minimum.reduceat(ranks, positives.indptr[:-1]), hits
