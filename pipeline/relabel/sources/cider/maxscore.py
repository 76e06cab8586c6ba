"""Exact search for the k best candidates of a reference set without scoring them all, compiled.

In the notation of `kernels`, a candidate c can be worth at most ::

    r(G, c) <= penalty(len_c) * sum_w coef_w (idf_w tf_c / |c|_k),    coef_w = 10 / (n R) sum_r idf_w tf_r / |r|_k

where penalty(len) = max_r gauss(len - len_r), as min(tf_c, tf_r) <= tf_c; for a single reference this is hardly ever
more than r itself. The most frequent n-grams ("a", "on a") own most postings and add least, since idf^2 is small. So
the sum is taken from the rarest n-gram on and stops where all that is left out could add but a share of what the k-th
best has by then (MaxScore: Turtle and Flood, "Query evaluation: strategies and optimizations", 1995). What is left
out is bounded once for all candidates (`peak`: a candidate that was not met cannot win) and once a candidate (by its
own norms). Those that can still reach the k-th best are scored exactly, and the k-th best exact score tells whether
they were enough. Sums are 16-bit integers, one a candidate, every part rounded up; a candidate is noted when its sum
rises above what is the least that could matter, so that nobody looks at the others again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.heap import push
from relabel.core.numeric.jit import jit
from relabel.sources.cider.features import Features, MergeState, Weighting
from relabel.sources.cider.impact_index import (
    IMPACT_BITS,
    Screen,
    Terms,
    build_hash,
    collect_terms,
    exact_score,
    order_by_rarity,
)
from relabel.sources.cider.kernels import LARGEST

I4 = NDArray[np.int32]
I8 = NDArray[np.int64]
F8 = NDArray[np.float64]
U2 = NDArray[np.uint16]
_FULL = 65535  # of a sum: stays, and is worth more than 10
_RAISE = 1 + 1e-5  # more than float32 peaks and norms can lose by rounding
_UNIT = 6000.0  # of a sum: 1.0 of relevance
_TRUST = 0.7  # the part of a promised k-th best, below which the least that could matter is set
_FIRST_LOOK, _NEXT_LOOK = 40, 4  # the k-th best sum is looked up after 40 k postings, then whenever they quadrupled


class Sums(NamedTuple):
    """Upper bounds that grow term by term: one sum per candidate, C of them.

    Attributes
    ----------
    value : (C,) uint16
        In steps of 1 / 6000.
    met : (C + 1,) int32
        Positions whose value reached the least that could matter.
    scored : (C,) bool
        False but for what is in `done`.
    done : (C,) int32
        Positions that were scored.
    penalty : (longest + 1,) float64
    left : (n,) float64
        Sum of `own` over the terms left out, by order.
    """

    value: U2
    met: I4
    scored: NDArray[np.bool_]
    done: I4
    penalty: F8
    left: F8

    @classmethod
    def allocate(cls, candidates: int, weighting: Weighting) -> Sums:
        """Allocate zero sums."""
        value, met, done = np.zeros(candidates, np.uint16), *np.empty((2, candidates + 1), np.int32)
        penalty, left = np.empty(len(weighting.gauss)), np.empty(len(weighting.starts) - 1)
        return cls(value, met, np.zeros(candidates, np.bool_), done, penalty, left)


@jit
def _accumulate(gram: int, coef: float, least: int, count: int, screen: Screen, sums: Sums) -> int:
    """Add what an n-gram can be worth, at least one step, to the sums of all that hold it.

    Append those whose sums thereby reach `least` to the `count` that are met; return the new count.
    """
    value, met = sums.value, sums.met
    # Fixed point with 16 fraction bits. The factor is rounded up and every product gets one step more, so a sum is
    # an upper bound, and it is above zero exactly for the candidates that hold a term.
    factor = np.int64(np.ceil(coef * (_UNIT / ((1 << IMPACT_BITS) - 1) * 65536)))
    for e in range(screen.starts[gram], screen.starts[gram + 1]):
        posting = np.int64(screen.postings[e])
        p = posting >> IMPACT_BITS
        before = np.int64(value[p])
        added = (factor * (posting & ((1 << IMPACT_BITS) - 1)) >> 16) + 1
        after = min(int(before + added), _FULL)
        value[p] = after
        # Written always, counted only where the sum crosses `least`: no branch to mispredict per posting.
        met[count] = p
        count += int((before < least) & (after >= least))
    return count


@jit
def _compact(least: int, count: int, sums: Sums) -> int:
    """Forget those met whose sums are below `least`; return how many are left."""
    kept = 0
    for i in range(count):
        p = sums.met[i]
        sums.met[kept] = p
        kept += int(sums.value[p] >= least)
    return kept


@jit
def _kth_best(count: int, itself: int, screen: Screen, sums: Sums, heap: F8) -> float:
    """Find about the k-th best sum of those met, 0 where they are fewer; `heap` is room for k."""
    heap[:] = 0.0
    width = len(heap)
    for i in range(count):
        p = sums.met[i]
        if sums.value[p] <= heap[0] * _UNIT or p == itself:  # the penalty is at most 1
            continue
        value = sums.value[p] / _UNIT * sums.penalty[screen.bigrams[p]]
        if value <= heap[0]:
            continue
        at, child = 0, 1
        while child < width:
            if child + 1 < width and heap[child + 1] < heap[child]:
                child += 1
            if value <= heap[child]:
                break
            heap[at] = heap[child]
            at, child = child, 2 * child + 1
        heap[at] = value
    return float(heap[0])


@jit
def _score_above(
    cut: float,
    rest: float,
    count: int,
    done: int,
    itself: int,
    mask: int,
    scale: float,
    screen: Screen,
    terms: Terms,
    sums: Sums,
    refs: Features,
    weighting: Weighting,
    s: F8,
    w: I4,
) -> int:
    """Score those met that may reach `cut` and were not scored before; return how many are by now."""
    # First bound: the terms left out add at most `rest` to any candidate.
    least = (cut - rest) * _UNIT
    for i in range(count):
        p = sums.met[i]
        if sums.value[p] < least or sums.scored[p] or p == itself:
            continue
        # Second bound: by the candidate's own norms, and its length penalty.
        bound = sums.value[p] / _UNIT
        for order in range(len(sums.left)):
            bound += sums.left[order] * screen.largest[p, order]
        if bound * sums.penalty[screen.bigrams[p]] * _RAISE >= cut:
            sums.scored[p], sums.done[done] = True, p
            done += 1
            score = exact_score(screen.places[p], mask, scale, terms, refs, weighting)
            push(score, screen.rows[p], s, w, len(s))
    return done


@jit
def _least(guess: float, share: float) -> int:
    """Least sum that could matter, in steps: none if there is no guess."""
    return max(1, int(_TRUST * (1.0 - share) * guess * _UNIT))


@jit
def search(
    indptr: I8,
    sets: I4,
    exclude: I4,
    refs: Features,
    screen: Screen,
    weighting: Weighting,
    share: float,
    merge: MergeState,
    terms: Terms,
    sums: Sums,
    best_rows: I4,
    best_scores: F8,
) -> None:
    """Improve the K best of M reference sets by the candidates of a screen.

    Parameters
    ----------
    indptr, sets : (M + 1,) int64, (indptr[-1],) int32
        Reference sets of rows of `refs`.
    exclude : (M,) int32
        Corpus row that is left out of each set's candidates, or -1.
    refs, screen, weighting
    share : float
        Of the k-th best sum, that may be left out: from 0 (nothing) to below 1. Nothing but time depends on it.
    merge, terms, sums
        Room.
    best_rows, best_scores : (M, K) int32 and float64
        Heaps with the worst on top; -1 is the score of an empty place, and the largest int32 its row.
    """
    heap = np.empty(best_rows.shape[1])
    for m in range(len(indptr) - 1):
        rows, s, w = sets[indptr[m] : indptr[m + 1]], best_scores[m], best_rows[m]
        size = collect_terms(rows, refs, screen, weighting, merge, terms)
        order_by_rarity(size, screen, terms)
        mask, scale = build_hash(size, terms), LARGEST / (refs.inverse.shape[1] * len(rows))
        # penalty(len) = max_r gauss(len - len_r), for every length of a candidate.
        for d in range(len(sums.penalty)):
            sums.penalty[d] = 0.0
            for r in range(len(rows)):
                sums.penalty[d] = max(sums.penalty[d], weighting.gauss[abs(d - refs.bigrams[rows[r]])])
        # Position of the excluded row; past the end where the screen does not hold it.
        itself = np.searchsorted(screen.rows, exclude[m])
        if itself < len(screen.rows) and screen.rows[itself] != exclude[m]:
            itself = len(screen.rows)
        taken, done, count, seen, look, guess = 0, 0, 0, 0, _FIRST_LOOK * len(s), s[0]
        least = _least(guess, share)
        sums.value[:] = 0
        while True:
            # Add terms from the rarest on until the others could add but `share` of the guessed k-th best.
            while taken < size and (guess <= 0.0 or terms.rest[taken] > share * guess):
                t = terms.sequence[taken]
                count = _accumulate(terms.grams[t], terms.coef[t], least, count, screen, sums)
                seen += screen.starts[terms.grams[t] + 1] - screen.starts[terms.grams[t]]
                taken += 1
                if seen >= look:
                    # The k-th best of the sums so far is close to a lower bound of the final k-th best. A higher
                    # guess raises `least`, which shortens the list of candidates that are looked at again.
                    guess = max(guess, _kth_best(count, itself, screen, sums, heap))
                    least = max(least, _least(guess, share))
                    count = _compact(least, count, sums)
                    look = _NEXT_LOOK * seen
            # What the terms left out can add, by order: times `Screen.largest` it bounds one candidate.
            sums.left[:] = 0.0
            for i in range(taken, size):
                t = terms.sequence[i]
                sums.left[terms.orders[t]] += terms.own[t]
            rest = terms.rest[taken] * _RAISE
            cut = max(0.0, s[0], _kth_best(count, itself, screen, sums, heap))
            while True:
                done = _score_above(
                    cut, rest, count, done, itself, mask, scale, screen, terms, sums, refs, weighting, s, w
                )
                if s[0] >= cut or cut == 0.0:
                    break
                cut = max(0.0, s[0])  # the sums promised more than the scores hold
            # Done if neither a candidate below `least` nor one that holds only terms left out could enter the heap.
            if least <= max(1.0, (s[0] - rest) * _UNIT) and (taken == size or rest < s[0]):
                break
            # The guess was too high: a candidate that was not met could win. Meet all that have a sum, and add terms
            # against the k-th best score, which is exact.
            guess, least, count = s[0], 1, 0
            for p in range(len(screen.rows)):
                sums.met[count] = p
                count += int(sums.value[p] > 0)
        # Candidates without a common n-gram score 0: they fill what is left, in the order of rows.
        if s[0] <= 0.0:
            for p in range(len(screen.rows)):
                if sums.value[p] == 0 and p != itself and not push(0.0, screen.rows[p], s, w, len(s)):
                    break
        for i in range(done):
            sums.scored[sums.done[i]] = False


@jit
def join(indptr: I8, rows: I4, scores: F8, best_rows: I4, best_scores: F8) -> None:
    """Bring the heaps of each set's references into the set's heap, a candidate once and with its best score.

    Parameters
    ----------
    indptr : (M + 1,) int64
        The references of set m are ``indptr[m] - indptr[0]`` to ``indptr[m + 1] - indptr[0] - 1``.
    rows, scores : (indptr[M] - indptr[0], K) int32 and float64
    best_rows, best_scores : (M, K) int32 and float64
        See `search`.
    """
    for m in range(len(indptr) - 1):
        lo, hi = indptr[m] - indptr[0], indptr[m + 1] - indptr[0]
        found, worth = rows[lo:hi].ravel(), scores[lo:hi].ravel()
        order, best = np.argsort(found), -1.0
        for i in range(len(order)):
            row, best = found[order[i]], max(best, worth[order[i]])
            if i == len(order) - 1 or found[order[i + 1]] != row:
                if best >= 0.0:
                    push(best, row, best_scores[m], best_rows[m], best_rows.shape[1])
                best = -1.0
