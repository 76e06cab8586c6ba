"""Sorted lists of the k best candidates, and merging of the lists of a query or of the members of a set."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.kernels import jit

I4 = NDArray[np.int32]
I8 = NDArray[np.int64]
F8 = NDArray[np.float64]


class TopK(NamedTuple):
    """The best candidates of n queries, each list ordered by (-score, number).

    `numbers`: (n, keep) int32; numbers of candidates.
    `scores`: (n, keep) float64.
    `sizes`: (n,) int64; length of each list. The rest of its row is undefined.
    """

    numbers: I4
    scores: F8
    sizes: I8

    @classmethod
    def empty(cls, n: int, keep: int) -> TopK:
        """Allocate n empty lists."""
        return cls(np.empty((n, keep), np.int32), np.empty((n, keep)), np.zeros(n, np.int64))

    def take(self, rows: I8) -> TopK:
        """Select lists by row."""
        return TopK(self.numbers[rows], self.scores[rows], self.sizes[rows])

    def assign(self, rows: slice | I8, lists: TopK) -> None:
        """Replace the lists at the given rows."""
        self.numbers[rows], self.scores[rows], self.sizes[rows] = lists


def topk_bytes(keep: int) -> int:
    """Return the size of one list in bytes."""
    return 12 * keep + 8


def kth_scores(lists: TopK) -> F8:
    """Return the last score of each full list, and -inf for the others: (n,) float64."""
    return np.where(lists.sizes == lists.scores.shape[1], lists.scores[:, -1], -np.inf)


def merge_lists(
    out: TopK, owner: I8, begin: I8, end: I8, numbers: I4, scores: F8, candidates: int, exclude: I8 | None = None
) -> None:
    """Merge m lists into the n lists of `out`. A candidate in several lists keeps its highest score.

    `owner`: (m,) int64; for each list, the row of `out` to merge it into. `begin`, `end`: (m,) int64; list i is
    ``begin[i]:end[i]`` of `numbers` and `scores`, ordered by (-score, number). `candidates`: number of all candidates.
    `exclude`: (n,) int64; number of a candidate to exclude, or -1.
    """
    excluded = np.full(len(out.sizes), -1) if exclude is None else exclude
    _merge(out, owner, begin, end, numbers, scores, excluded, np.full(candidates, -1, np.int32))


@jit
def _merge(out: TopK, owner: I8, begin: I8, end: I8, numbers: I4, scores: F8, exclude: I8, seen: I4) -> None:
    keep = out.numbers.shape[1]
    for i in range(len(owner)):
        row, new, stop = owner[i], begin[i], end[i]
        count, old, n = out.sizes[row], 0, 0
        # The new list is empty, or the old one is full and its last entry beats the first new one.
        if new == stop or (count == keep and scores[new] < out.scores[row, keep - 1]):
            continue
        # Copy the old entries, because their row is overwritten.
        old_numbers, old_scores = out.numbers[row, :count].copy(), out.scores[row, :count].copy()
        while n < keep and (old < count or new < stop):
            # The next entry is the better of the two heads by (-score, number).
            take_old = old < count and (new == stop or old_scores[old] >= scores[new])
            if take_old and new < stop and old_scores[old] == scores[new]:
                take_old = old_numbers[old] < numbers[new]
            if take_old:
                number, score = old_numbers[old], old_scores[old]
                old += 1
            else:
                number, score = numbers[new], scores[new]
                new += 1
            # Entries are in descending order, so the first occurrence of a candidate has its highest score. `seen`
            # stores the number of the list, so it need not be cleared between lists.
            if seen[number] != i and number != exclude[row]:
                seen[number] = i
                out.numbers[row, n], out.scores[row, n] = number, score
                n += 1
        out.sizes[row] = n
