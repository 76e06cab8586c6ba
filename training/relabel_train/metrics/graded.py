"""Metrics of graded labels, Semantic Recall among them, and the ranked labels that they read.

A 64-bit key holds the code of a score, best first, above the code of a label. Sorting keys sorts by score and puts the
less relevant of equal scores first; a partition of keys finds the K best by the same rule.

Semantic Recall is the recall of more than a query's own items (SAM Eq. 4). Paper and released code differ
(docs/deviations.md): the paper adds the m most relevant items, the code takes all captions of the m most similar
images. This module has the sets of both, and figures name the one they use. The recall of a set is `ir_recall`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from relabel_train.metrics.positives import Positives, QueryPositives
from relabel_train.metrics.ranking import Codes, Ties, decode, encode, query_blocks, smallest
from relabel_train.metrics.scores import DIRECTIONS, Floats, Scores

Gain = Literal["exponential", "inverse_distance"]
"""`exponential`: 2^r - 1. `inverse_distance`: 1 / (1 + d), which is 2^r' with r' = -log2(1 + d)."""
Keys = NDArray[np.int64]
Items = tuple[NDArray[np.int64], NDArray[np.int64]]
"""(query, item) of single items: (P,) each."""
_HALF = np.int64(1) << 31
_LOW = np.int64(0xFFFFFFFF)
_ABSENT = np.iinfo(np.int64).max
_EPSILON = 1e-10
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RankedLabels:
    """Keys of the best-scored items of each query, with their labels.

    Attributes
    ----------
    keys : (Q, k) int64
        Code of the score (rising as scores fall) above the code of the label.
    table : (Q, n) float64 or None
        Values of label codes, as `decode` takes them.
    ties : "pessimistic" or "row"

    Examples
    --------
    >>> import numpy as np
    >>> from relabel_train.metrics import Ranking
    >>> scores, labels = np.array([[0.9, 0.5, 0.5, 0.1]]), np.array([[0.25, 1.0, 0.75, 0.5]])
    >>> Ranking(scores, labels).best(3).labels()  # of the two tied scores the less relevant item comes first
    array([[0.25, 0.75, 1.  ]])
    """

    keys: Keys
    table: Floats | None
    ties: Ties

    def labels(self, k: int | None = None) -> NDArray[np.float64]:
        """Return the labels, best-scored item first: (Q, k) float64; 0 behind the end of a list."""
        keys = self.keys[:, :k]
        absent = keys == _ABSENT
        # The low half holds the label's code, moved to be unsigned.
        codes = ((keys & _LOW) - _HALF).astype(np.int32)
        # A removed item has no code; 0 is a valid index into every table.
        codes[absent] = 0
        labels = decode(codes, self.table).astype(np.float64)
        labels[absent] = 0
        return labels

    def sorted_keys(self, k: int | None = None) -> Keys:
        """Return the keys of the k best items in rising order, so that labels rise among equal scores: (Q, k) int64."""
        best = self.keys[:, :k]
        return best if self.ties == "pessimistic" else np.sort(best, axis=1)


class Ranking:
    """Scores and labels of some queries, to be ranked to any depth.

    Parameters
    ----------
    scores, labels : (Q, n) float32 or float64
        Larger is better, more relevant; without NaN.
    ties : "pessimistic" or "row"
        Among equal scores the less relevant item comes first, or the lower column.

    Examples
    --------
    >>> import numpy as np
    >>> from relabel_train.metrics import Ranking
    >>> scores, labels = np.array([[0.9, 0.5, 0.5, 0.1]]), np.array([[0.25, 1.0, 0.75, 0.5]])
    >>> Ranking(scores, labels, ties="row").best(3).labels()
    array([[0.25, 1.  , 0.75]])
    >>> without = np.array([0]), np.array([0])  # item 0 of query 0
    >>> Ranking(scores, labels).best(2, without).labels()
    array([[0.75, 1.  ]])
    """

    def __init__(self, scores: Floats, labels: Floats, ties: Ties = "pessimistic") -> None:
        self.ties = ties
        self._label, self._table = encode(np.ascontiguousarray(labels))
        # Inverted codes rise as scores fall. The low half breaks ties: by label, or by column.
        self._keys = (~encode(np.ascontiguousarray(scores))[0]).astype(np.int64)
        self._keys <<= 32
        self._keys |= self._label + _HALF if ties == "pessimistic" else np.arange(scores.shape[1])

    def best(self, depth: int | None = None, without: Items | None = None) -> RankedLabels:
        """Rank the `depth` best items, all by default, after removing the items `without`."""
        keys = self._keys.copy()
        if without is not None:
            # The largest key: removed items sort behind all others.
            keys[without] = _ABSENT
        keys = smallest(keys, depth)
        return RankedLabels(keys if self.ties == "pessimistic" else self._with_labels(keys), self._table, self.ties)

    def _with_labels(self, keys: Keys) -> Keys:
        """Replace the column in the low half of each key by the code of its label."""
        present = keys != _ABSENT
        codes: Codes = np.take_along_axis(self._label, np.where(present, keys & _LOW, 0), axis=1)
        return np.where(present, (keys & ~_LOW) | (codes + _HALF), _ABSENT)


def ideal_labels(labels: Floats, depth: int | None = None, without: Items | None = None) -> NDArray[np.float64]:
    """Return the largest labels of each query, falling: (Q, min(depth, n)) float64; 0 behind the end of a list.

    Parameters
    ----------
    labels : (Q, n) float32 or float64
    depth : int, optional
        The complete list by default.
    without : (query, item) index arrays, optional
        Items that are removed first.

    Examples
    --------
    >>> import numpy as np
    >>> from relabel_train.metrics import ideal_labels
    >>> ideal_labels(np.array([[0.25, 1.0, 0.75, 0.5]]), 2)
    array([[1.  , 0.75]])
    """
    negative = -labels
    if without is not None:
        negative[without] = np.inf
    best = -smallest(np.ascontiguousarray(negative), depth).astype(np.float64)
    best[np.isneginf(best)] = 0
    return best


def ncs(ranked: NDArray[np.float64], ideal: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """Return the Normalised Cumulative Semantic score: mean label of the K retrieved over that of the K most relevant.

    Biten et al., Is An Image Worth Five Sentences?, WACV 2022, as their released code computes it, which differs from
    Eq. 5 of the paper (docs/deviations.md). The score is a mean of ratios, not a ratio of sums. It has no discount by
    rank and adds 1e-10 to the denominator. "Without GT" removes the query's own items from both lists.

    Parameters
    ----------
    ranked : (Q, L) float64
        Labels, best-scored item first.
    ideal : (Q, L) float64
        Labels, most relevant item first.
    k : int
        1 or more; shorter lists are used completely.

    Returns
    -------
    (Q,) float64
        0..1 for labels that are not negative; 0 if all labels are 0, which lowers the mean.

    Examples
    --------
    >>> import numpy as np
    >>> from relabel_train.metrics import ideal_labels, ncs
    >>> ranked = np.array([[0.25, 0.75, 1.0, 0.5]])
    >>> ncs(ranked, ideal_labels(ranked), 2).round(4)  # (0.25 + 0.75) / (1.0 + 0.75)
    array([0.5714])
    """
    return np.asarray(ranked[:, :k].mean(axis=1) / (ideal[:, :k].mean(axis=1) + _EPSILON))


def ndcg(
    ranked: NDArray[np.float64], ideal: NDArray[np.float64], k: int | None = None, gain: Gain = "exponential"
) -> NDArray[np.float64]:
    """Return the discounted gain of the K best items by score, over that of the K best by label.

    Parameters
    ----------
    ranked : (Q, L) float64
        `exponential`: labels, best-scored item first (S-NDCG, Eq. 4-6; its labels are (1 + cosine) / 2).
        `inverse_distance`: label distances, 0 or more, best-scored item first (Kim et al., Deep Metric Learning Beyond
        Binary Supervision, CVPR 2019, Eq. 12, whose gain has no -1).
    ideal : (Q, L) float64
        Falling labels, or rising distances. Tied labels take consecutive ranks; in the ideal DCG of the S-NDCG paper
        they share the best one.
    k : int, optional
        The complete list by default.
    gain : "exponential" or "inverse_distance"

    Returns
    -------
    (Q,) float64
        At most 1, and 0 or more for such gains. NaN if the ideal list has no gain above 0.

    Examples
    --------
    >>> import numpy as np
    >>> from relabel_train.metrics import ideal_labels, ndcg
    >>> ranked = np.array([[0.25, 0.75, 1.0, 0.5]])
    >>> ndcg(ranked, ideal_labels(ranked)).round(4)
    array([0.7551])
    >>> distances = 1 - ranked
    >>> ndcg(distances, np.sort(distances), k=2, gain="inverse_distance").round(4)
    array([0.7152])
    """
    depth = ranked.shape[1] if k is None else min(k, ranked.shape[1])
    discount = 1 / np.log2(np.arange(2, depth + 2))
    # Not a matrix product: its last bits depend on the number of queries.
    dcg, ideal_dcg = ((_gains(values[:, :depth], gain) * discount).sum(axis=1) for values in (ranked, ideal))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(ideal_dcg > 0, dcg / ideal_dcg, np.nan))


def _gains(values: NDArray[np.float64], gain: Gain) -> NDArray[np.float64]:
    if gain == "exponential":
        return np.asarray(np.exp2(values) - 1)
    return np.asarray(1 / (1 + values))


def label_distance(ranked: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """Return the mean label distance of the K best-scored items of each query (Kim et al., CVPR 2019).

    Parameters
    ----------
    ranked : (Q, L) float64
        Label distances, best-scored item first.
    k : int
        1 or more; shorter lists are used completely.

    Returns
    -------
    (Q,) float64
        In units of the label distance.

    Examples
    --------
    >>> import numpy as np
    >>> from relabel_train.metrics import label_distance
    >>> label_distance(np.array([[0.75, 0.25, 0.0, 0.5]]), 2)
    array([0.5])
    """
    return np.asarray(ranked[:, :k].mean(axis=1))


def extended_by_items(labels: Scores, own: Positives, m: int) -> Positives:
    """Return the paper's sets: a query's own items and the m most relevant others, ties by row (Biten et al., Eq. 4).

    Parameters
    ----------
    labels : Scores
        r(V_i, T_j): (M, N).
    own : Positives
    m : int
        1 or more; a smaller gallery adds all it has.

    Examples
    --------
    >>> import numpy as np
    >>> from relabel_train.metrics import extended_by_items, open_scores, own_positives
    >>> labels = open_scores(np.array([[1.0, 1.0, 0.7, 0.2], [0.3, 0.6, 1.0, 1.0]]))
    >>> extended_by_items(labels, own_positives([0, 0, 1, 1], images=2), m=1).i2t.items
    array([0, 1, 2, 2, 3, 1])
    """
    sides = []
    for direction, side in zip(DIRECTIONS, (own.i2t, own.t2i), strict=True):
        sets: list[Ints] = []
        for _, part, lists in query_blocks(labels, direction, side):
            values = lists.copy()
            # A query's own items are in its set already and must not be drawn again.
            values[part.owner(), part.items] = -np.inf
            for q, row in enumerate(values):
                mine = part.items[part.indptr[q] : part.indptr[q + 1]]
                sets.append(np.concatenate([mine, _largest(row, min(m, len(row) - len(mine)))]))
        sides.append(_without_empty(side.queries, sets))
    return Positives(*sides)


def extended_by_images(labels: Scores, own: Positives, m: int, depth: int) -> Positives:
    """Return the released code's sets: the captions of the m images most similar to a query's image, without GT.

    The similarity of an image to a query's image is the sum of its labels with the captions of the query's image. A
    label counts if the image is among the `depth` most relevant of that caption; the released code uses the largest K
    of its recalls. All captions of an image share its similar images. The sets hold as many captions as an image has,
    not always five; ties go by row.

    Parameters
    ----------
    labels : Scores
        (M, N).
    own : Positives
    m, depth : int
        1 or more.

    Examples
    --------
    >>> import numpy as np
    >>> from relabel_train.metrics import extended_by_images, open_scores, own_positives
    >>> labels = open_scores(np.array([[1.0, 0.6, 0.2], [0.7, 1.0, 0.4], [0.1, 0.3, 1.0]]))
    >>> extended_by_images(labels, own_positives([0, 1, 2], images=3), m=1, depth=3).i2t.items
    array([1, 0, 1])
    """
    images = labels.shape[0]
    similar: dict[int, Ints] = {}
    captions: dict[int, Ints] = {}
    side = own.i2t
    for q, image in enumerate(side.queries.tolist()):
        mine = captions[image] = side.items[side.indptr[q] : side.indptr[q + 1]]
        values = labels.lists("t2i", mine)
        total, seen = np.zeros(images), np.zeros(images, np.bool_)
        # Similarity accumulates over the captions of the image, each with a list of limited depth.
        for row in values:
            best = _largest(row, min(depth, images))
            total[best] += row[best]
            seen[best] = True
        seen[image] = False
        candidates = np.flatnonzero(seen)
        similar[image] = candidates[np.argsort(-total[candidates], kind="stable")][:m]
    none = np.zeros(0, np.int64)
    i2t = [np.concatenate([none, *(captions.get(i, none) for i in similar[q].tolist())]) for q in side.queries.tolist()]
    t2i = [similar[i] for i in own.t2i.items.tolist()]
    return Positives(_without_empty(side.queries, i2t), _without_empty(own.t2i.queries, t2i))


def _largest(row: Floats, k: int) -> Ints:
    """Return the indices of the k largest values, by (-value, index)."""
    if k < 1:
        return np.zeros(0, np.int64)
    # All values that reach the k-th largest are sorted, so that ties at the end of the list go by index.
    bound = np.partition(row, len(row) - k)[len(row) - k]
    candidates = np.flatnonzero(row >= bound)
    return candidates[np.argsort(-row[candidates], kind="stable")][:k]


def _without_empty(queries: Ints, sets: list[Ints]) -> QueryPositives:
    """Make positives of the queries whose set is not empty."""
    filled = [i for i, items in enumerate(sets) if len(items)]
    counts = np.array([len(sets[i]) for i in filled], np.int64)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    # The empty array gives the result its dtype if there is no set at all.
    items = np.concatenate([np.zeros(0, np.int64), *(sets[i] for i in filled)])
    return QueryPositives(queries[filled], indptr, items, counts)
