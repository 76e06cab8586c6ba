"""Sorted lists of the k best candidates, and their merging: of one query over files, or of one set over its members."""

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

    `numbers`: (n, keep) int32; candidates by number.
    `scores`: (n, keep) float64.
    `sizes`: (n,) int64; entries of each list; the rest of its row is undefined.
    """

    numbers: I4
    scores: F8
    sizes: I8

    @classmethod
    def empty(cls, n: int, keep: int) -> TopK:
        """Allocate n empty lists."""
        return cls(np.empty((n, keep), np.int32), np.empty((n, keep)), np.zeros(n, np.int64))

    def part(self, rows: range) -> TopK:
        """Return a view of some lists."""
        part = slice(rows.start, rows.stop)
        return TopK(self.numbers[part], self.scores[part], self.sizes[part])


def topk_bytes(keep: int) -> int:
    """Return the bytes that one list takes."""
    return 12 * keep + 8


def kth_scores(lists: TopK) -> F8:
    """Return the last score of every full list and -inf for the others, (n,) float64."""
    return np.where(lists.sizes == lists.scores.shape[1], lists.scores[:, -1], -np.inf)


@jit
def merge_sorted(best: TopK, first: int, offsets: I8, numbers: I4, scores: F8) -> None:
    """Merge further lists into `best`, from list `first` on; no candidate is in both.

    `offsets`: (m + 1,) int64; list i is ``offsets[i]:offsets[i + 1]`` of `numbers` and `scores`, ordered by (-score,
    number).
    """
    keep = best.numbers.shape[1]
    for i in range(len(offsets) - 1):
        row, new, stop = first + i, offsets[i], offsets[i + 1]
        count, old = best.sizes[row], 0
        # Nothing to merge, or the list is full and its last entry beats the first new one.
        if new == stop or (count == keep and scores[new] < best.scores[row, keep - 1]):
            continue
        # Copy the old entries, since their row is overwritten from its beginning.
        old_numbers, old_scores = best.numbers[row, :count].copy(), best.scores[row, :count].copy()
        n = 0
        while n < keep and (old < count or new < stop):
            # The next entry is the better of the two heads by (-score, number).
            take_old = new == stop
            if not take_old and old < count:
                take_old = old_scores[old] > scores[new] or (
                    old_scores[old] == scores[new] and old_numbers[old] < numbers[new]
                )
            if take_old:
                best.numbers[row, n], best.scores[row, n] = old_numbers[old], old_scores[old]
                old += 1
            else:
                best.numbers[row, n], best.scores[row, n] = numbers[new], scores[new]
                new += 1
            n += 1
        best.sizes[row] = n


@jit
def merge_references(indptr: I8, members: I8, lists: TopK, exclude: I8, seen: I4, out: TopK) -> None:
    """Merge the lists of the members of each set; a duplicate keeps its highest score.

    `indptr`, `members`: (q + 1,) int64 and (indptr[-1],) int64; set i has the lists ``members[indptr[i]:indptr[i +
    1]]``. `exclude`: (q,) int64; number of the candidate to leave out; -1 for none. `seen`: (C,) int32; scratch memory,
    -1 everywhere before the call. `out`: overwritten; q lists.
    """
    width = out.numbers.shape[1]
    for i in range(len(indptr) - 1):
        set_lists = members[indptr[i] : indptr[i + 1]]
        heads, n = np.zeros(len(set_lists), np.int64), 0
        while n < width:
            # Find the best head by (-score, number); sets are small (five references), so a linear search is fastest.
            best, top, first = -1, 0.0, np.int32(-1)
            for m in range(len(set_lists)):
                if heads[m] < lists.sizes[set_lists[m]]:
                    score, number = lists.scores[set_lists[m], heads[m]], lists.numbers[set_lists[m], heads[m]]
                    if best < 0 or score > top or (score == top and number < first):
                        best, top, first = m, score, number
            if best < 0:  # all lists are used up
                break
            heads[best] += 1
            # Entries come in falling order, so a candidate is first met with its highest score. Storing the set's
            # number in `seen` spares clearing it between sets.
            if first != exclude[i] and seen[first] != i:
                seen[first] = i
                out.numbers[i, n], out.scores[i, n] = first, top
                n += 1
        out.sizes[i] = n
