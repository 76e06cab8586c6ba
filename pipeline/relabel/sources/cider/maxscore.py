"""Exact search for the k best candidates of a reference set without scoring them all, compiled.

In the notation of `caption_index`, the score of a candidate c is bounded by ::

    r(G, c) <= penalty(len_c) * sum_w coef_w (idf_w tf_c / |c|_k),    coef_w = 10 / (n R) sum_r idf_w tf_r / |r|_k

with penalty(len) = max_r gauss(len - len_r), because min(tf_c, tf_r) <= tf_c. For a single reference the bound is
hardly ever larger than r itself.

The most frequent n-grams ("a", "on a") have most postings and contribute least, since idf^2 is small. So the sum starts
with the rarest n-gram and stops when all remaining n-grams could add only a share of the k-th best sum so far
(MaxScore: Turtle and Flood, "Query evaluation: strategies and optimizations", 1995). The remainder is bounded twice:
once for all candidates (by `peak`), and once per candidate (by its own norms). Candidates whose bound reaches the k-th
best are scored exactly. The k-th best exact score then shows whether the summed n-grams were sufficient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.numeric.kernels import jit, push
from relabel.core.numeric.threads import run_chunks
from relabel.core.runtime import Advance
from relabel.core.types import Rows, Scores
from relabel.corpus import References
from relabel.sources.cider.caption_index import MergeState
from relabel.sources.cider.impact_index import (
    IMPACT_BITS,
    MAX_CANDIDATES,
    ImpactIndex,
    Terms,
    collect_terms,
    exact_score,
    impact_index_of,
    order_by_rarity,
)
from relabel.sources.cider.relevance import MAX_SCORE, CiderRelevance, Features, Weighting
from relabel.sources.finder import EMPTY_SLOT, SlabFinder

I4 = NDArray[np.int32]
I8 = NDArray[np.int64]
F8 = NDArray[np.float64]
U2 = NDArray[np.uint16]
_UNIT = 6000.0  # steps of a sum per 1.0 of relevance
_SATURATED = 65535  # largest sum: stands for 10.9 or more, which is above every relevance
_ROUNDING = 1 + 1e-5  # exceeds the relative rounding error of float32 peaks and norms
_TRUST = 0.7  # share of the guessed k-th best at which candidates are listed; a lower one lists more of them
_FIRST_LOOK, _NEXT_LOOK = 40, 4  # the k-th best sum is read after 40 k postings, then whenever they have quadrupled
LEAVE_OUT = 0.4
"""Default share of the k-th best sum that the search may leave out at first."""
_QUERIES = 128  # queries per task of a thread


@dataclass(frozen=True, eq=False)
class CiderFinder(SlabFinder[ImpactIndex]):
    """Neighbours of reference sets by CIDEr or CIDEr-D.

    Pooling `max` is searched reference by reference: the k best of a set are among the k best of its references.

    `relevance`, `search`, `pooling`, `runtime`: see SlabFinder.
    `leave_out`: `share` of `maxscore.search`, from 0 to below 1. It affects the time only.
    """

    relevance: CiderRelevance
    leave_out: float = LEAVE_OUT

    @override
    def search_slab(
        self, sets: References, exclude: Rows, slab: ImpactIndex, rows: Rows, scores: Scores, done: Advance
    ) -> None:
        features, weighting = self.relevance.features, self.relevance.weighting
        single = self.pooling == "max"
        sizes = np.diff(features.indptr)[sets.rows]
        largest = int(sizes.max() if single else np.add.reduceat(sizes, sets.indptr[:-1]).max())
        references = 1 if single else int(np.diff(sets.indptr).max())

        def work(lo: int, hi: int) -> None:
            merge, terms, sums = (
                MergeState.allocate(references),
                Terms.allocate(largest),
                Sums.allocate(len(slab.rows), weighting),
            )
            indptr, out, left_out = sets.indptr[lo : hi + 1], exclude[lo:hi], self.leave_out
            best = rows[lo:hi], scores[lo:hi]
            if single:
                # Each reference has heaps of its own, which start empty and are merged below.
                out = np.repeat(out, np.diff(indptr))
                best = (
                    np.full((len(out), rows.shape[1]), EMPTY_SLOT, np.int32),
                    np.full((len(out), rows.shape[1]), -1.0),
                )
                indptr = np.arange(indptr[0], indptr[-1] + 1)
            search(indptr, sets.rows, out, features, slab, weighting, left_out, merge, terms, sums, *best)
            if single:
                merge_references(sets.indptr[lo : hi + 1], *best, rows[lo:hi], scores[lo:hi])

        run_chunks(work, len(sets), self.runtime.threads, _QUERIES, done)

    @override
    def build_slab(self, rows: Rows) -> ImpactIndex:
        positions = self.relevance.positions(rows).astype(np.int32)
        return impact_index_of(self.relevance.features, self.relevance.weighting, positions, rows)

    @override
    def max_slab_rows(self) -> int:
        """Return the number of candidates per slab: memory holds the slab's index and the sums of each thread."""
        features, grams = self.relevance.features, int(self.relevance.weighting.starts[-1])
        # Per candidate: 4 bytes per posting, float32 norms, row, position and length; per thread 2 + 4 + 1 + 4 of sums.
        postings = len(features.ids) / max(1, len(features.bigrams))
        each = 4 * postings + 4 * features.inverse.shape[1] + 12 + 11 * self.runtime.threads
        return min(int((self.runtime.memory - 12 * grams) / each), MAX_CANDIDATES)


class Sums(NamedTuple):
    """Upper bounds that grow term by term: one sum per candidate, C of them.

    `value`: (C,) uint16; in steps of 1 / 6000.
    `met`: (C + 1,) int32; candidates whose value has reached the threshold. The last element is a scratch cell of
        `_accumulate`.
    `scored`: (C,) bool; True exactly for the candidates in `done`.
    `done`: (C + 1,) int32; candidates that were scored exactly.
    `penalty`: (longest + 1,) float64; largest length penalty over the references, by length of the candidate.
    `left`: (n,) float64; sum of `Terms.per_count` over the remaining terms, by order.
    """

    value: U2
    met: I4
    scored: NDArray[np.bool_]
    done: I4
    penalty: F8
    left: F8

    @classmethod
    def allocate(cls, candidates: int, weighting: Weighting) -> Sums:
        """Allocate sums of 0."""
        value, met, done = np.zeros(candidates, np.uint16), *np.empty((2, candidates + 1), np.int32)
        penalty, left = np.empty(len(weighting.gauss)), np.empty(len(weighting.starts) - 1)
        return cls(value, met, np.zeros(candidates, np.bool_), done, penalty, left)


@jit
def _accumulate(gram: int, coef: float, threshold: int, count: int, index: ImpactIndex, sums: Sums) -> int:
    """Add the bound of an n-gram, at least one step, to the sums of all candidates that hold it.

    Candidates whose sums thereby reach `threshold` are appended to the `count` in `met`; return the new count.
    """
    value, met = sums.value, sums.met
    # Fixed point with 16 fraction bits. The factor is rounded up and every product gets one step more, so a sum is
    # an upper bound, and it is above zero exactly for the candidates that hold a term.
    factor = np.int64(np.ceil(coef * (_UNIT / ((1 << IMPACT_BITS) - 1) * 65536)))
    for e in range(index.starts[gram], index.starts[gram + 1]):
        posting = np.int64(index.postings[e])
        p = posting >> IMPACT_BITS
        before = np.int64(value[p])
        added = (factor * (posting & ((1 << IMPACT_BITS) - 1)) >> 16) + 1
        # Saturation keeps an upper bound valid: no relevance exceeds the largest sum.
        after = min(int(before + added), _SATURATED)
        value[p] = after
        # Written always, counted only where the sum crosses the threshold: no branch to mispredict per posting. A sum
        # crosses once, so a candidate is listed once.
        met[count] = p
        count += int((before < threshold) & (after >= threshold))
    return count


@jit
def _compact(threshold: int, count: int, sums: Sums) -> int:
    """Remove the candidates whose sums are below `threshold` from `met`; return the new count."""
    size = 0
    for i in range(count):
        p = sums.met[i]
        # Writing runs at or behind reading, so nothing unread is overwritten.
        sums.met[size] = p
        size += int(sums.value[p] >= threshold)
    return size


@jit
def _kth_best(count: int, itself: int, index: ImpactIndex, sums: Sums, heap: F8, rows: I4) -> float:
    """Return about the k-th best sum in `met`, 0 if there are fewer than k; `heap` and `rows` are buffers of size k."""
    heap[:] = 0.0
    for i in range(count):
        p = sums.met[i]
        # The penalty is at most 1, so a sum at or below the heap's minimum is rejected before the penalty is read.
        if sums.value[p] <= heap[0] * _UNIT or p == itself:
            continue
        value = sums.value[p] / _UNIT * sums.penalty[index.bigrams[p]]
        if value > heap[0]:
            push(value, p, heap, rows, len(heap))
    return float(heap[0])


@jit
def _score_above(
    cut: float,
    rest: float,
    count: int,
    done: int,
    itself: int,
    scale: float,
    index: ImpactIndex,
    terms: Terms,
    sums: Sums,
    refs: Features,
    weighting: Weighting,
    s: F8,
    w: I4,
) -> int:
    """Score the candidates in `met` that may reach `cut`, each once; return the number of scored candidates."""
    # First bound: the remaining terms add at most `rest` to any candidate.
    required = (cut - rest) * _UNIT
    for i in range(count):
        p = sums.met[i]
        if sums.value[p] < required or sums.scored[p] or p == itself:
            continue
        # Second bound: the remaining terms weighted by the candidate's own norms, and its length penalty.
        bound = sums.value[p] / _UNIT
        for order in range(len(sums.left)):
            bound += sums.left[order] * index.largest[p, order]
        if bound * sums.penalty[index.bigrams[p]] * _ROUNDING >= cut:
            sums.scored[p], sums.done[done] = True, p
            done += 1
            score = exact_score(index.positions[p], scale, terms, refs, weighting)
            push(score, index.rows[p], s, w, len(s))
    return done


@jit
def _threshold(guess: float, share: float) -> int:
    """Return the sum, in steps, from which candidates are listed: 1, that is any, without a guess of the k-th best."""
    return max(1, int(_TRUST * (1.0 - share) * guess * _UNIT))


@jit
def search(
    indptr: I8,
    sets: I4,
    exclude: I4,
    refs: Features,
    index: ImpactIndex,
    weighting: Weighting,
    share: float,
    merge: MergeState,
    terms: Terms,
    sums: Sums,
    best_rows: I4,
    best_scores: F8,
) -> None:
    """Update the K best candidates of M reference sets with the candidates of an index.

    `indptr`, `sets`: (M + 1,) int64, (indptr[-1],) int32; reference sets of rows of `refs`. `exclude`: (M,) int32;
    corpus row that is excluded from each set's candidates, or -1. `share`: share of the k-th best sum that the
    remaining terms may reach: from 0 (no term remains) to below 1. It affects the time only. `merge`, `terms`, `sums`:
    buffers; `sums.scored` is False throughout before and after. `best_rows`, `best_scores`: (M, K) int32 and float64;
    heaps with the worst pair on top. An empty slot has score -1 and the largest int32 as its row.
    """
    heap, heap_rows = np.empty(best_rows.shape[1]), np.empty(best_rows.shape[1], np.int32)
    for m in range(len(indptr) - 1):
        rows, s, w = sets[indptr[m] : indptr[m + 1]], best_scores[m], best_rows[m]
        size = collect_terms(rows, refs, index, weighting, merge, terms)
        order_by_rarity(size, index, terms)
        scale = MAX_SCORE / (refs.inverse.shape[1] * len(rows))
        # penalty(len) = max_r gauss(len - len_r), for every length of a candidate.
        for d in range(len(sums.penalty)):
            sums.penalty[d] = 0.0
            for r in range(len(rows)):
                sums.penalty[d] = max(sums.penalty[d], weighting.gauss[abs(d - refs.bigrams[rows[r]])])
        # Position of the excluded row; past the end if the index does not hold it.
        itself = np.searchsorted(index.rows, exclude[m])
        if itself < len(index.rows) and index.rows[itself] != exclude[m]:
            itself = len(index.rows)
        # s[0] is the k-th best score of the slabs searched before: a valid first guess.
        taken, done, count, seen, look, guess = 0, 0, 0, 0, _FIRST_LOOK * len(s), s[0]
        threshold = _threshold(guess, share)
        sums.value[:] = 0
        while True:
            # Add terms from the rarest on until the others could add but `share` of the guessed k-th best.
            while taken < size and (guess <= 0.0 or terms.remaining[taken] > share * guess):
                t = terms.by_rarity[taken]
                count = _accumulate(terms.grams[t], terms.coef[t], threshold, count, index, sums)
                seen += index.starts[terms.grams[t] + 1] - index.starts[terms.grams[t]]
                taken += 1
                if seen >= look:
                    # The k-th best of the sums so far is close to a lower bound of the final k-th best. A higher
                    # guess raises the threshold, which shortens the list of candidates that are looked at again.
                    guess = max(guess, _kth_best(count, itself, index, sums, heap, heap_rows))
                    threshold = max(threshold, _threshold(guess, share))
                    count = _compact(threshold, count, sums)
                    look = _NEXT_LOOK * seen
            # Remaining terms by order: times `ImpactIndex.largest` they bound their contribution to one candidate.
            sums.left[:] = 0.0
            for i in range(taken, size):
                t = terms.by_rarity[i]
                sums.left[terms.orders[t]] += terms.per_count[t]
            rest = terms.remaining[taken] * _ROUNDING
            # Begin with the candidates whose sums are among the k best: they are few and raise s[0] most.
            cut = max(0.0, s[0], _kth_best(count, itself, index, sums, heap, heap_rows))
            while True:
                done = _score_above(cut, rest, count, done, itself, scale, index, terms, sums, refs, weighting, s, w)
                # All listed candidates that could reach `cut` are scored. Once k scores do, no other can enter.
                if s[0] >= cut or cut == 0.0:
                    break
                cut = max(0.0, s[0])  # sums are upper bounds: the k-th best score may be lower than the k-th best sum
            # Done if neither a candidate below the threshold nor one that holds only remaining terms can enter.
            if threshold <= max(1.0, (s[0] - rest) * _UNIT) and (taken == size or rest < s[0]):
                break
            # The guess was too high: a candidate that is not listed could enter. List every candidate with a sum, and
            # add terms against the k-th best exact score, which is a true lower bound.
            guess, threshold, count = s[0], 1, 0
            for p in range(len(index.rows)):
                sums.met[count] = p
                count += int(sums.value[p] > 0)
        # Candidates without a common n-gram score 0: they fill the empty slots, in the order of rows.
        if s[0] <= 0.0:
            for p in range(len(index.rows)):
                # Rows ascend, so after the first rejected one all others are rejected.
                if sums.value[p] == 0 and p != itself and not push(0.0, index.rows[p], s, w, len(s)):
                    break
        # Only the flags that were set are cleared, so a set costs nothing for the candidates that were not scored.
        for i in range(done):
            sums.scored[sums.done[i]] = False


@jit
def merge_references(indptr: I8, rows: I4, scores: F8, best_rows: I4, best_scores: F8) -> None:
    """Merge the heaps of each set's references into the set's heap; a candidate enters once, with its best score.

    `indptr`: (M + 1,) int64; the references of set m are ``indptr[m] - indptr[0]`` to ``indptr[m + 1] - indptr[0] -
    1``. `rows`, `scores`: (indptr[M] - indptr[0], K) int32 and float64. `best_rows`, `best_scores`: (M, K) int32 and
    float64; see `search`.
    """
    for m in range(len(indptr) - 1):
        lo, hi = indptr[m] - indptr[0], indptr[m + 1] - indptr[0]
        candidates, values = rows[lo:hi].ravel(), scores[lo:hi].ravel()
        # Sorted by row, the occurrences of one candidate are a run; `best` is the maximum over it.
        order, best = np.argsort(candidates), -1.0
        for i in range(len(order)):
            row, best = candidates[order[i]], max(best, values[order[i]])
            if i == len(order) - 1 or candidates[order[i + 1]] != row:
                if best >= 0.0:  # empty slots have score -1
                    push(best, row, best_scores[m], best_rows[m], best_rows.shape[1])
                best = -1.0
