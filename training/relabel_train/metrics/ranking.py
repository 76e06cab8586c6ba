"""The order of the items of each query, with an explicit rule for ties: the one engine of all metrics."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel_train.metrics.positives import QueryPositives
from relabel_train.metrics.scores import Direction, Floats, Scores, map_blocks

Ties = Literal["pessimistic", "row"]
"""`pessimistic`: among equal scores, the less relevant item comes first. `row`: the lower column comes first."""
Items = tuple[NDArray[np.int64], NDArray[np.int64]]
"""(query, item) of single items: (P,) each."""


class RankedLabels(NamedTuple):
    """Scores and labels of the best-scored items of each query, best first.

    Attributes
    ----------
    scores : (Q, k) float
        NaN behind the end of a list.
    labels : (Q, k) float64
        0 behind the end of a list.
    """

    scores: NDArray[np.floating[Any]]
    labels: NDArray[np.float64]


class Ranking:
    """Scores and labels of some queries, to be ranked to any depth.

    Parameters
    ----------
    scores : (Q, n) float32 or float64
        Larger is better; without NaN.
    labels : (Q, n) float or bool
        Larger is more relevant; without NaN. Marks of positives are labels.
    ties : "pessimistic" or "row"
        Among equal scores the less relevant item comes first, or the lower column.

    Examples
    --------
    >>> scores, labels = np.array([[0.9, 0.5, 0.5, 0.1]]), np.array([[0.25, 1.0, 0.75, 0.5]])
    >>> Ranking(scores, labels).best(3).labels  # of the two tied scores the less relevant item comes first
    array([[0.25, 0.75, 1.  ]])
    >>> Ranking(scores, labels, ties="row").best(3).labels
    array([[0.25, 1.  , 0.75]])
    >>> without = np.array([0]), np.array([0])  # item 0 of query 0
    >>> Ranking(scores, labels).best(2, without).labels
    array([[0.75, 1.  ]])
    """

    def __init__(self, scores: Floats, labels: NDArray[Any], ties: Ties = "pessimistic") -> None:
        # Negated to sort the best scores first and NaN last; stored by row, the axis that is sorted.
        self.negated, self.labels = -np.ascontiguousarray(scores), np.ascontiguousarray(labels)
        self.ties = ties

    def best(self, depth: int | None = None, without: Items | None = None) -> RankedLabels:
        """Rank the `depth` best items, all by default, after removing the items `without`."""
        negated, labels = self.negated, self.labels
        if without is not None:
            negated = negated.copy()
            negated[without] = np.nan
        if depth is not None and depth < negated.shape[1]:
            columns = _reaching(negated, max(depth, 1))
            # A row with fewer of them is padded by -1.
            negated = np.where(columns < 0, np.nan, np.take_along_axis(negated, columns, axis=1))
            labels = np.take_along_axis(labels, columns, axis=1)
        if self.ties == "pessimistic":
            # Complex numbers sort by their real parts, and equal ones by their imaginary parts.
            pairs = np.empty(labels.shape, np.result_type(negated, labels, np.complex64))
            pairs.real, pairs.imag = negated, labels
            pairs.sort(axis=1)
            negated, labels = pairs.real[:, :depth], pairs.imag[:, :depth]
        else:
            order = np.argsort(negated, axis=1, kind="stable")[:, :depth]
            negated, labels = (np.take_along_axis(array, order, axis=1) for array in (negated, labels))
        return RankedLabels(-negated, np.where(np.isnan(negated), 0, labels).astype(np.float64))


def _reaching(values: Floats, depth: int) -> NDArray[np.int64]:
    """Return the columns of all values up to the `depth`-th smallest of each row, (Q, m); -1 behind the end of a row.

    A partition takes time linear in the length of a row, so only a few values are sorted.
    """
    largest = (
        np.partition(values, depth - 1, axis=1)[:, depth - 1 : depth] if depth else np.full((len(values), 1), -np.inf)
    )
    # True for all columns if fewer than `depth` values are left and the maximum is NaN.
    row, column = np.nonzero(~(values > largest))
    count = np.bincount(row, minlength=len(values))
    columns = np.full((len(values), count.max(initial=0)), -1)
    columns[row, np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)] = column
    return columns


def ideal_labels(labels: Floats, depth: int | None = None, without: Items | None = None) -> NDArray[np.float64]:
    """Return the highest labels of each query, descending: (Q, min(depth, n)) float64; 0 behind the end of a list.

    Parameters
    ----------
    labels : (Q, n) float32 or float64
    depth : int, optional
        The complete list by default.
    without : (query, item) index arrays, optional
        Items that are removed first, as by `Ranking.best`.

    Examples
    --------
    >>> ideal_labels(np.array([[0.25, 1.0, 0.75, 0.5]]), 2)
    array([[1.  , 0.75]])
    """
    negated = -np.ascontiguousarray(labels)
    if without is not None:
        negated[without] = np.nan  # sorts behind everything
    if depth is not None and depth < labels.shape[1]:
        negated = np.partition(negated, depth - 1, axis=1)[:, :depth]
    ideal = -np.sort(negated, axis=1).astype(np.float64)
    return np.where(np.isnan(ideal), 0, ideal)


def ranked_hits(
    scores: NDArray[np.floating[Any]], positive: NDArray[np.bool_], length: int, ties: Ties = "pessimistic"
) -> NDArray[np.bool_]:
    """Mark which of the `length` best items of each query are positive, best first.

    Parameters
    ----------
    scores : (Q, N) float
        Score of each item for each query; larger is better. -inf is allowed; ValueError for NaN.
    positive : (Q, N) bool
    length : int
        0..N.
    ties : "pessimistic" or "row"
        With "pessimistic", a coarse score does not profit from chance hits. "row" equals a stable sort.

    Examples
    --------
    >>> scores, positive = np.array([[0.9, 0.5, 0.5, 0.1]]), np.array([[False, True, False, True]])
    >>> ranked_hits(scores, positive, 3)
    array([[False, False,  True]])
    >>> ranked_hits(scores, positive, 3, ties="row")
    array([[False,  True, False]])
    """
    items = scores.shape[1]
    if positive.shape != scores.shape:
        raise ValueError(f"scores are {scores.shape}, positive is {positive.shape}")
    if not 0 <= length <= items:
        raise ValueError(f"length {length} is not in 0..{items}")
    if scores.size and np.isnan(scores.max()):
        raise ValueError("a score is NaN")
    return Ranking(scores, positive, ties).best(length).labels > 0


def rank_positives(
    scores: Scores,
    direction: Direction,
    positives: QueryPositives,
    length: int,
    ties: Ties = "pessimistic",
    without: QueryPositives | None = None,
    threads: int | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Rank the gallery of each query, and find its positives.

    Parameters
    ----------
    scores : Scores
    direction : "i2t" or "t2i"
    positives : QueryPositives
    length : int
        0 or more; positions behind the end of a shorter gallery hold no positive.
    ties : "pessimistic" or "row"
        Among equal scores other items come first, or the lower column (row).
    without : QueryPositives, optional
        Other items that are removed from the lists of these queries; queries in ascending order.
    threads : int, optional

    Returns
    -------
    ranks : (Q,) int64
        Rank of the best positive, counted from 0; the size of the gallery for a query without one in it.
    hits : (Q, length) bool
        Whether the item at each position is positive, best first.

    Examples
    --------
    >>> from relabel_train.metrics import open_scores, own_positives
    >>> scores = open_scores(np.array([[0.9, 0.2, 0.1], [0.3, 0.4, 0.8]]))
    >>> ranks, hits = rank_positives(scores, "i2t", own_positives([1, 1, 0], images=2).i2t, 2)
    >>> ranks
    array([2, 1])
    >>> hits
    array([[False, False],
           [False,  True]])
    """

    def rank(block: slice) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        part = positives.take(block)
        query, others = part.owner(), scores.lists(direction, part.queries).copy(order="K")
        own = others[query, part.items]
        best_first = np.lexsort((part.items, -own, query))
        own, items = own[best_first], part.items[best_first]
        # A positive's rank is the number of positives and other items before it. The others are the rest of the list.
        others[query, items] = np.nan
        if without is not None:
            others[_items_of(without, part.queries)] = np.nan
        if np.array_equal(query, np.arange(len(part))):
            before = _before(others, own[:, None], items[:, None], ties).sum(axis=1)
        else:
            # A count over one list is several times faster than a sum over an axis of all, and copies nothing.
            of_each = zip(query, own, items, strict=True)
            before = np.array([np.count_nonzero(_before(others[q], one, i, ties)) for q, one, i in of_each], np.int64)
        number = np.arange(len(query)) - part.indptr[query]
        rank_of = before + number
        ranks = np.full(len(part), others.shape[1], np.int64)
        ranks[query[number == 0]] = rank_of[number == 0]
        hits = np.zeros((len(part), length), np.bool_)
        inside = rank_of < length
        hits[query[inside], rank_of[inside]] = True
        return ranks, hits

    blocks = map_blocks(rank, scores, direction, len(positives), threads)
    empty = np.zeros(0, np.int64), np.zeros((0, length), np.bool_)
    ranks, hits = (np.concatenate(parts) for parts in zip(empty, *blocks, strict=True))
    return ranks, hits


def _before(lists: Floats, own: Any, item: Any, ties: Ties) -> NDArray[np.bool_]:
    """Mark the items of lists that come before the positive with number `item` and score `own`."""
    if ties == "pessimistic":
        return np.asarray(lists >= own)
    return np.asarray((lists > own) | ((lists == own) & (np.arange(lists.shape[-1]) < item)))


def _items_of(positives: QueryPositives, queries: NDArray[np.int64]) -> Items:
    """Return the items of some of the queries, by position among these; both ascend."""
    query = positives.queries[positives.owner()]
    row = np.searchsorted(queries, query)
    inside = np.append(queries, -1)[row] == query
    return row[inside], positives.items[inside]
