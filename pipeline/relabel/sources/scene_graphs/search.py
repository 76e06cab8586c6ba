"""The k best candidates of a reference set, exact, compiled: only tuples that match are looked at.

The marks of a graph (see `marks`) name the distinct tuples of candidates that match, whose holders are counted. F1 is
2 matched / (candidate + reference) but for rounding, so who cannot reach the k-th best costs one multiplication.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.sources.ngrams.kernels import jit
from relabel.sources.ngrams.pruned import _push
from relabel.sources.scene_graphs.listing import Holders, Listing
from relabel.sources.scene_graphs.marks import matches
from relabel.sources.scene_graphs.scoring import BEST, F8, MEAN, TOGETHER, begin, end, f1
from relabel.sources.scene_graphs.structures import I4, I8, TOUCHED, Room, Rows, Words

_SLACK = 1 + 1e-9  # more than F1 and its bound lose by rounding


class Counts(NamedTuple):
    """Room for counts of N candidates and for D tuples.

    Attributes
    ----------
    matched : (N,) uint16
        Tuples that match; zero between references.
    met, ever : (N + 1,) int32
        Positions that matched the reference at hand, or one of the set's.
    total : (N,) float64
        Best or sum over references; zero between sets.
    tuples : (D,) int32
    """

    matched: NDArray[np.uint16]
    met: I4
    ever: I4
    total: F8
    tuples: I4

    @classmethod
    def room(cls, candidates: int, tuples: int) -> Counts:
        """Make room."""
        met, ever = np.empty((2, candidates + 1), np.int32)
        return cls(np.zeros(candidates, np.uint16), met, ever, np.zeros(candidates), np.empty(tuples, np.int32))


@jit
def _matching(listing: Listing, room: Room, out: I4) -> int:
    """List the distinct tuples that match the graph in `room`; return how many."""
    la, lr, bits, count = room.limbs[0], room.limbs[1], room.bits, 0
    for i in range(room.used[TOUCHED]):
        c = room.touched[i]
        if listing.object_of[c] >= 0 and matches(c, -1, -1, bits, la, lr):
            out[count] = listing.object_of[c]
            count += 1
        owner, subject = np.uint64(0), np.uint64(0)
        for k in range(la):
            owner |= bits[c, 1 + k]
        for k in range(lr):
            subject |= bits[c, 1 + 2 * la + k]
        if owner != 0:
            for t in range(listing.attributes[c], listing.attributes[c + 1]):
                out[count] = t
                count += int(matches(c, listing.concepts[t, 1], -1, bits, la, lr))
        if subject != 0:
            for t in range(listing.relations[c], listing.relations[c + 1]):
                out[count] = t
                count += int(matches(c, listing.concepts[t, 1], listing.concepts[t, 2], bits, la, lr))
    return count


@jit
def _count(tuples: I4, start: I8, position: I4, matched: NDArray[np.uint16], met: I4) -> int:
    """Count, for every holder of some tuples, how many it holds; list the holders and return how many they are."""
    count = 0
    for t in tuples:
        for e in range(start[t], start[t + 1]):
            p = position[e]
            met[count] = p
            count += int(matched[p] == 0)
            matched[p] += 1
    return count


@jit
def _offer(met: I4, itself: int, reference: int, matched: NDArray[np.uint16], holders: Holders, s: F8, w: I4) -> None:
    """Bring those met into the heap."""
    size, rows, width = holders.size, holders.rows, len(s)
    for p in met:
        if 2.0 * _SLACK * matched[p] >= s[0] * (size[p] + reference) and p != itself:
            _push(f1(matched[p], size[p], reference), rows[p], s, w, width)


@jit
def search(
    indptr: I8,
    sets: I4,
    how: int,
    exclude: I4,
    rows: Rows,
    words: Words,
    listing: Listing,
    holders: Holders,
    room: Room,
    counts: Counts,
    best_rows: I4,
    best_scores: F8,
) -> None:
    """Improve the K best of M reference sets by some candidates.

    Parameters
    ----------
    indptr, sets : (M + 1,) int64, (indptr[-1],) int32
        Reference sets of places in `rows`.
    how : int
        See scoring.
    exclude : (M,) int32
        Corpus row that is left out of each set's candidates, or -1.
    rows, words, listing, holders
    room, counts
        Empty; left so.
    best_rows, best_scores : (M, K) int32 and float64
        Heaps with the worst on top; -1 is the score of an empty place, and the largest int32 its row.
    """
    matched, met, total, ever = counts.matched, counts.met, counts.total, counts.ever
    for m in range(len(indptr) - 1):
        set_, s, w = sets[indptr[m] : indptr[m + 1]], best_scores[m], best_rows[m]
        itself = np.searchsorted(holders.rows, exclude[m])
        if itself < len(holders.rows) and holders.rows[itself] != exclude[m]:
            itself = len(holders.rows)
        step, held = len(set_) if how == TOGETHER else 1, 0
        for r in range(0, len(set_), step):
            reference = begin(set_[r : r + step], rows, words, room)
            tuples = counts.tuples[: _matching(listing, room, counts.tuples)]
            end(room)
            some = met[: _count(tuples, holders.start, holders.position, matched, met)]
            if how == TOGETHER:
                _offer(some, itself, reference, matched, holders, s, w)
            for p in some:
                if how != TOGETHER:
                    score = f1(matched[p], holders.size[p], reference)
                    ever[held] = p
                    held += int(total[p] == 0.0)
                    total[p] = max(total[p], score) if how == BEST else total[p] + score
                    matched[p] = 0
            if how == TOGETHER:
                ever[: len(some)] = some
                held = len(some)
        if how != TOGETHER:
            for p in ever[:held]:
                if p != itself:
                    _push(total[p] / len(set_) if how == MEAN else total[p], holders.rows[p], s, w, len(s))
        if s[0] <= 0.0:
            for p in range(len(matched)):
                new = matched[p] == 0 and total[p] == 0.0 and p != itself
                if new and not _push(0.0, holders.rows[p], s, w, len(s)):
                    break
        for p in ever[:held]:
            matched[p] = 0
            total[p] = 0.0


@jit
def list_matches(
    indptr: I8,
    sets: I4,
    rows: Rows,
    words: Words,
    listing: Listing,
    room: Room,
    buffer: I4,
    sizes: I8,
    counts: I8,
    out: I4,
) -> None:
    """List the tuples that M reference sets match.

    Parameters
    ----------
    indptr, sets, rows, words, listing, room
        See `search`.
    buffer : (D + 1,) int32
        Room.
    sizes, counts : (M,) int64
        Filled: tuples of each merged set, and distinct tuples of candidates that match.
    out : int32
        Filled set by set, each ascending, if it is not empty: ``counts.sum()`` numbers.
    """
    at = 0
    for m in range(len(indptr) - 1):
        sizes[m] = begin(sets[indptr[m] : indptr[m + 1]], rows, words, room)
        counts[m] = _matching(listing, room, buffer)
        end(room)
        if len(out):
            out[at : at + counts[m]] = np.sort(buffer[: counts[m]])
            at += counts[m]
