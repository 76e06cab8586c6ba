"""Labels in the order of scores, ties by a stated rule: what every metric of graded labels reads.

A key of 64 bits holds a score's code, best first, over a label's code. Sorting keys sorts by score and, among equals,
puts the less relevant first; a partition of keys finds the K best by the same rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel_train.metrics.codes import Codes, decode, encode, smallest
from relabel_train.metrics.ranking import Ties
from relabel_train.metrics.scores import Floats

Keys = NDArray[np.int64]
Items = tuple[NDArray[np.int64], NDArray[np.int64]]
"""(query, item) of single items: (P,) each."""
_HALF = np.int64(1) << 31
_LOW = np.int64(0xFFFFFFFF)
_ABSENT = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class RankedLabels:
    """The best items of each query.

    Attributes
    ----------
    keys : (Q, k) int64
        Code of the score (rising as scores fall) over code of the label.
    table : (Q, n) float64, optional
        See `decode`.
    ties : "pessimistic" or "row"
    """

    keys: Keys
    table: Floats | None
    ties: Ties

    def labels(self, k: int | None = None) -> NDArray[np.float64]:
        """Give the labels, best-scored first: (Q, k) float64; 0 behind a list's end."""
        keys = self.keys[:, :k]
        ended = keys == _ABSENT
        codes = ((keys & _LOW) - _HALF).astype(np.int32)
        codes[ended] = 0
        labels = decode(codes, self.table).astype(np.float64)
        labels[ended] = 0
        return labels

    def sorted_keys(self, k: int | None = None) -> Keys:
        """Give the keys of the k best in rising order, so that among equal scores labels rise: (Q, k) int64."""
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
    """

    def __init__(self, scores: Floats, labels: Floats, ties: Ties = "pessimistic") -> None:
        self.ties = ties
        self._label, self._table = encode(np.ascontiguousarray(labels))
        self._keys = (~encode(np.ascontiguousarray(scores))[0]).astype(np.int64)
        self._keys <<= 32
        self._keys |= self._label + _HALF if ties == "pessimistic" else np.arange(scores.shape[1])

    def best(self, depth: int | None = None, without: Items | None = None) -> RankedLabels:
        """Rank the `depth` best, all where not given or where there are fewer; `without` some items."""
        keys = self._keys.copy()
        if without is not None:
            keys[without] = _ABSENT
        keys = smallest(keys, depth)
        return RankedLabels(keys if self.ties == "pessimistic" else self._labelled(keys), self._table, self.ties)

    def _labelled(self, keys: Keys) -> Keys:
        there = keys != _ABSENT
        found: Codes = np.take_along_axis(self._label, np.where(there, keys & _LOW, 0), axis=1)
        return np.where(there, (keys & ~_LOW) | (found + _HALF), _ABSENT)


def ideal_labels(labels: Floats, depth: int | None = None, without: Items | None = None) -> NDArray[np.float64]:
    """Give the largest labels of each query, falling: (Q, min(depth, n)) float64; 0 behind a list's end."""
    negative = -labels
    if without is not None:
        negative[without] = np.inf
    best = -smallest(np.ascontiguousarray(negative), depth).astype(np.float64)
    best[np.isneginf(best)] = 0
    return best


def tied_pairs(ordered: NDArray[Any]) -> NDArray[np.int64]:
    """Count the pairs of equal items in each row of a sorted array: (Q, n) to (Q,) int64."""
    same = ordered[:, 1:] == ordered[:, :-1]
    out = np.zeros(len(ordered), np.int64)
    for q in np.flatnonzero(same.any(axis=1)):
        ends = np.flatnonzero(np.concatenate([[True], ~same[q], [True]]))
        run = np.diff(ends)
        out[q] = (run * (run - 1) // 2).sum()
    return out
