"""Lists of the best, merged: of one query from several searches, or of one image from its references."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.jit import jit

I4 = NDArray[np.int32]
I8 = NDArray[np.int64]
F8 = NDArray[np.float64]


class TopK(NamedTuple):
    """The best of n queries, each list by (-score, number).

    Attributes
    ----------
    numbers : (n, keep) int32
        Candidates by number.
    scores : (n, keep) float64
    sizes : (n,) int64
        How many of them there are.
    """

    numbers: I4
    scores: F8
    sizes: I8

    @classmethod
    def empty(cls, n: int, keep: int) -> TopK:
        """Make n empty lists."""
        return cls(np.empty((n, keep), np.int32), np.empty((n, keep)), np.zeros(n, np.int64))

    def part(self, rows: range) -> TopK:
        """View some of them."""
        some = slice(rows.start, rows.stop)
        return TopK(self.numbers[some], self.scores[some], self.sizes[some])


def topk_bytes(keep: int) -> int:
    """Bytes a list takes."""
    return 12 * keep + 8


def floors(lists: TopK) -> F8:
    """Return the last score of full lists, -inf for others, (n,) float64."""
    return np.where(lists.sizes == lists.scores.shape[1], lists.scores[:, -1], -np.inf)


@jit
def merge_in(best: TopK, first: int, offsets: I8, numbers: I4, scores: F8) -> None:
    """Merge more lists into those from `first` on; no candidate is in both.

    Parameters
    ----------
    best : TopK
    first : int
    offsets : (m + 1,) int64
        List i is ``offsets[i]:offsets[i + 1]`` of `numbers` and `scores`, by (-score, number).
    numbers, scores : int32 and float64
    """
    keep = best.numbers.shape[1]
    old_numbers, old_scores = np.empty(keep, np.int32), np.empty(keep)
    for i in range(len(offsets) - 1):
        row, at, stop = first + i, offsets[i], offsets[i + 1]
        count, a = best.sizes[row], 0
        if at == stop or (count == keep and scores[at] < best.scores[row, keep - 1]):
            continue
        old_numbers[:count], old_scores[:count] = best.numbers[row, :count], best.scores[row, :count]
        n = 0
        while n < keep and (a < count or at < stop):
            old = at == stop
            if not old and a < count:
                old = old_scores[a] > scores[at] or (old_scores[a] == scores[at] and old_numbers[a] < numbers[at])
            if old:
                best.numbers[row, n], best.scores[row, n] = old_numbers[a], old_scores[a]
                a += 1
            else:
                best.numbers[row, n], best.scores[row, n] = numbers[at], scores[at]
                at += 1
            n += 1
        best.sizes[row] = n


@jit
def merge_references(indptr: I8, members: I8, lists: TopK, exclude: I8, seen: I4, out: TopK) -> None:
    """Merge the lists of each set; a candidate counts where it comes first, which is where it is best.

    Parameters
    ----------
    indptr, members : (q + 1,) int64 and (indptr[-1],) int64
        Set i has the lists ``members[indptr[i]:indptr[i + 1]]``.
    lists : TopK
    exclude : (q,) int64
        Number of the candidate to leave out; -1 for none.
    seen : (C,) int32
        Room, -1 everywhere before.
    out : TopK
        Filled, q of them.
    """
    width = out.numbers.shape[1]
    for i in range(len(indptr) - 1):
        some = members[indptr[i] : indptr[i + 1]]
        at, n = np.zeros(len(some), np.int64), 0
        while n < width:
            best, top, first = -1, 0.0, np.int32(-1)
            for m in range(len(some)):
                if at[m] < lists.sizes[some[m]]:
                    score, number = lists.scores[some[m], at[m]], lists.numbers[some[m], at[m]]
                    if best < 0 or score > top or (score == top and number < first):
                        best, top, first = m, score, number
            if best < 0:
                break
            at[best] += 1
            if first != exclude[i] and seen[first] != i:
                seen[first] = i
                out.numbers[i, n], out.scores[i, n] = first, top
                n += 1
        out.sizes[i] = n
