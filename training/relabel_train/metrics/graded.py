"""Metrics of graded labels, and the ranked labels that they read.

A 64-bit key holds the code of a score, best first, above the code of a label. Sorting keys sorts by score and puts the
less relevant of equal scores first; a partition of keys finds the K best by the same rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from relabel_train.metrics.ranking import Codes, Ties, decode, encode, smallest
from relabel_train.metrics.scores import Floats

Gain = Literal["exponential", "inverse_distance"]
"""`exponential`: 2^r - 1. `inverse_distance`: 1 / (1 + d), which is 2^r' with r' = -log2(1 + d)."""
Keys = NDArray[np.int64]
Items = tuple[NDArray[np.int64], NDArray[np.int64]]
"""(query, item) of single items: (P,) each."""
_HALF = np.int64(1) << 31
_LOW = np.int64(0xFFFFFFFF)
_ABSENT = np.iinfo(np.int64).max
_EPSILON = 1e-10


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
