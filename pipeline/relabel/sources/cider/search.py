"""Exact search for the k best candidates of a reference set without scoring all of them, compiled.

In the notation of `pairs`, the score r(G, c) of a candidate c for a set G of R references has the upper bound ::

    r(G, c) <= penalty(len_c) * sum_w coef_w (idf_w tf_c / |c|_k),    coef_w = 10 / (n R) sum_r idf_w tf_r / |r|_k

with penalty(len) = max_r gauss(len - len_r), because min(tf_c, tf_r) <= tf_c. For a single reference, the bound is
rarely greater than r. With pooling `max`, coef_w is the maximum term instead of the mean.

Frequent n-grams ("a", "on a") have many postings and contribute little, because idf^2 is small. The sum therefore
starts with the rarest n-gram and stops when the remaining n-grams could only add a share of the k-th best sum so far
(MaxScore: Turtle and Flood, "Query evaluation: strategies and optimizations", 1995). Candidates are scored exactly if
their bound, the sum plus the remainder, reaches the k-th best sum, and then if it reaches the k-th best score.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.numeric.kernels import jit
from relabel.core.numeric.threads import run_chunks
from relabel.core.runtime import Advance
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import References
from relabel.sources.cider.features import F8, I4, I8, Features, Weighting, entries_of
from relabel.sources.cider.impact_index import IMPACT_BITS, MAX_CANDIDATES, ImpactIndex, impact_index_of
from relabel.sources.cider.pairs import SetTable, code_of, enter_set, score_candidates
from relabel.sources.finder import SlabFinder
from relabel.topk.heaps import heap_push

U2 = NDArray[np.uint16]
_UNIT = 6000.0  # fixed-point steps of a sum per 1.0 of relevance
_SATURATED = 65535  # maximum sum, for 10.9 or more; this is greater than any relevance
_ROUNDING = 1 + 1e-5  # greater than the relative rounding error of float32 peaks and norms
_FIRST_LOOK, _NEXT_LOOK = 40, 4  # the k-th best sum is computed after 40 k postings, then after every quadrupling
_QUERIES = 128  # queries per chunk of a thread


@dataclass(frozen=True, eq=False)
class CiderFinder(SlabFinder[ImpactIndex]):
    """Finder of the neighbours of reference sets by CIDEr or CIDEr-D.

    `leave_out`: parameter `share` of `search`, in [0, 1). It only affects the speed.
    """

    leave_out: float = 0.2

    @override
    def search_slab(
        self, sets: References, exclude: Rows, slab: ImpactIndex, rows: Rows, scores: Scores, done: Advance
    ) -> None:
        features, weighting, code = self.relevance.features, self.relevance.weighting, code_of(self.pooling)

        def work(lo: int, hi: int) -> None:
            chunk, sums = sets.take(np.arange(lo, hi)), Sums.allocate(len(slab.rows), weighting)
            terms, table = terms_of(chunk, features, weighting, slab, self.pooling), SetTable.allocate(chunk, features)
            queries, best = (chunk.indptr, chunk.rows, exclude[lo:hi], terms), (rows[lo:hi], scores[lo:hi])
            search(*queries, features, slab, weighting, code, self.leave_out, table, sums, *best)

        run_chunks(work, len(sets), self.runtime.threads, _QUERIES, done)

    @override
    def build_slab(self, rows: Rows) -> ImpactIndex:
        positions = self.relevance.positions(rows).astype(np.int32)
        return impact_index_of(self.relevance.features, self.relevance.weighting, positions, rows)

    @override
    def max_slab_rows(self) -> int:
        """Return the maximum number of candidates per slab, for the index and the sums of all threads."""
        features, grams = self.relevance.features, int(self.relevance.weighting.starts[-1])
        # Bytes per candidate: 4 per posting, 12 for row, position and length, and 2 + 4 + 4 per thread.
        postings = len(features.ids) / max(1, len(features.bigrams))
        each = 4 * postings + 12 + 10 * self.runtime.threads
        return min(int((self.runtime.memory - 12 * grams) / each), MAX_CANDIDATES)


class Terms(NamedTuple):
    """Terms: the T n-grams of M reference sets that occur in candidates.

    `begin`: (M + 1,) int64; the terms of set m are ``begin[m]:begin[m + 1]``, starting with the rarest.
    `grams`, `coef`: (T,) int32, float64; n-gram and coef_w. The bound of a term is coef_w times the candidate's impact.
    """

    begin: I8
    grams: I4
    coef: F8


def terms_of(sets: References, refs: Features, weighting: Weighting, index: ImpactIndex, pooling: Pooling) -> Terms:
    """Return the terms of M sets of rows of `refs`."""
    entries = entries_of(sets, refs, weighting, index.peak)
    first = np.flatnonzero(np.diff(entries.owner, prepend=-1) | np.diff(entries.ids, prepend=-1))
    owner, grams = entries.owner[first], entries.ids[first]
    # Divide by idf, because weights include idf^2, and impacts include idf. Pool the weights of the references.
    if pooling == "max":
        coef = np.maximum.reduceat(entries.weight, first) / weighting.idf[grams]
    else:
        coef = np.add.reduceat(entries.weight, first) / (weighting.idf[grams] * np.diff(sets.indptr)[owner])
    order = np.lexsort((index.starts[grams + 1] - index.starts[grams], owner))
    return Terms(np.searchsorted(owner, np.arange(len(sets) + 1)), grams[order], coef[order])


class Sums(NamedTuple):
    """Partial sums of the upper bounds of C candidates, and buffers.

    `value`: (C,) uint16; sums in steps of 1 / 6000.
    `met`: (C + 1,) int32; candidates with a term that was added. The last element is scratch memory.
    `found`: (C + 1,) int32; candidates to score.
    `penalty`: (longest + 1,) float64; maximum length penalty over the references, by length of the candidate.
    """

    value: U2
    met: I4
    found: I4
    penalty: F8

    @classmethod
    def allocate(cls, candidates: int, weighting: Weighting) -> Sums:
        """Allocate buffers."""
        met, found = np.empty((2, candidates + 1), np.int32)
        return cls(np.empty(candidates, np.uint16), met, found, np.empty(len(weighting.gauss)))


@jit
def _accumulate(gram: int, coef: float, count: int, index: ImpactIndex, sums: Sums) -> int:
    """Add the bound of an n-gram, at least one step, to the sums of all candidates with this n-gram.

    Candidates without a previous sum are appended to `met`. Returns the new number of candidates in `met`.
    """
    value, met = sums.value, sums.met
    # Fixed point with 16 fraction bits. The factor is rounded up and one step is added to every product, so a sum is an
    # upper bound.
    factor = np.int64(np.ceil(coef * (_UNIT / ((1 << IMPACT_BITS) - 1) * 65536)))
    for e in range(index.starts[gram], index.starts[gram + 1]):
        posting = np.int64(index.postings[e])
        p = posting >> IMPACT_BITS
        before = np.int64(value[p])
        added = (factor * (posting & ((1 << IMPACT_BITS) - 1)) >> 16) + 1
        # A saturated sum is still an upper bound, because it is greater than any relevance.
        value[p] = min(int(before + added), _SATURATED)
        # Always written, but counted only for the first sum, to avoid a branch per posting.
        met[count] = p
        count += int(before == 0)
    return count


@jit
def _kth_best(count: int, itself: int, index: ImpactIndex, sums: Sums, heap: F8, rows: I4) -> float:
    """Return the k-th best sum times penalty in `met`, or 0 if there are fewer. `heap`, `rows`: buffers of size k."""
    heap[:] = 0.0
    for i in range(count):
        p = sums.met[i]
        # The penalty is at most 1, so it is only needed for sums above the minimum of the heap.
        if sums.value[p] > heap[0] * _UNIT and p != itself:
            value = sums.value[p] / _UNIT * sums.penalty[index.bigrams[p]]
            if value > heap[0]:
                heap_push(value, p, heap, rows, len(heap))
    return float(heap[0])


@jit
def _find(cut: float, above: float, rest: float, count: int, itself: int, index: ImpactIndex, sums: Sums) -> I4:
    """Return the candidates in `met` with a bound of at least `cut` and below `above`."""
    total, required = 0, (cut / _ROUNDING - rest) * _UNIT
    for i in range(count):
        p = sums.met[i]
        if sums.value[p] >= required and p != itself:
            bound = (sums.value[p] / _UNIT + rest) * sums.penalty[index.bigrams[p]] * _ROUNDING
            sums.found[total] = p
            total += int(cut <= bound < above)
    return sums.found[:total]


@jit
def search(
    indptr: I8,
    sets: I4,
    exclude: I4,
    terms: Terms,
    refs: Features,
    index: ImpactIndex,
    weighting: Weighting,
    pooling: int,
    share: float,
    table: SetTable,
    sums: Sums,
    best_rows: I4,
    best_scores: F8,
) -> None:
    """Update the K best candidates of M reference sets with the candidates of an index.

    `indptr`, `sets`: (M + 1,) int64, (indptr[-1],) int32; reference sets of rows of `refs`. `exclude`: (M,) int32;
    corpus row to exclude for each set, or -1. `share`: maximum share of the k-th best sum for the remaining terms, in
    [0, 1); 0 adds all terms. It only affects the speed. `table`, `sums`: buffers. `best_rows`, `best_scores`: (M, K)
    int32 and float64; heaps with the worst pair on top. An empty slot has score -1 and the maximum int32 as its row.
    """
    heap, heap_rows = np.empty(best_rows.shape[1]), np.empty(best_rows.shape[1], np.int32)
    for m in range(len(indptr) - 1):
        rows, s, w = sets[indptr[m] : indptr[m + 1]], best_scores[m], best_rows[m]
        enter_set(rows, refs, table)
        # Suffix sums: remaining[i] is an upper bound on the sum of the terms from the i-th on.
        first, size = terms.begin[m], terms.begin[m + 1] - terms.begin[m]
        remaining = np.zeros(size + 1)
        for i in range(size - 1, -1, -1):
            remaining[i] = remaining[i + 1] + terms.coef[first + i] * index.peak[terms.grams[first + i]]
        # penalty(len) = max_r gauss(len - len_r), for every length of a candidate.
        for d in range(len(sums.penalty)):
            sums.penalty[d] = 0.0
            for r in range(len(rows)):
                sums.penalty[d] = max(sums.penalty[d], weighting.gauss[abs(d - refs.bigrams[rows[r]])])
        # Position of the excluded row, or past the end if it is not in the index.
        itself = np.searchsorted(index.rows, exclude[m])
        if itself < len(index.rows) and index.rows[itself] != exclude[m]:
            itself = len(index.rows)
        # The initial guess is the k-th best score of the previous slabs.
        taken, count, seen, look, guess = 0, 0, 0, _FIRST_LOOK * len(s), s[0]
        sums.value[:] = 0
        # Add terms, starting with the rarest, until the rest is at most `share` of the guessed k-th best.
        while taken < size and (guess <= 0.0 or remaining[taken] > share * guess):
            gram = terms.grams[first + taken]
            count = _accumulate(gram, terms.coef[first + taken], count, index, sums)
            seen += index.starts[gram + 1] - index.starts[gram]
            taken += 1
            if seen >= look:
                # The k-th best sum so far is close to a lower bound on the final k-th best.
                guess = max(guess, _kth_best(count, itself, index, sums, heap, heap_rows))
                look = _NEXT_LOOK * seen
        # First score the few candidates with a bound at the k-th best sum or above, to raise s[0].
        rest, above = remaining[taken] * _ROUNDING, np.inf
        cut = max(0.0, s[0], _kth_best(count, itself, index, sums, heap, heap_rows))
        while True:
            if rest >= cut:
                # Candidates with only remaining terms, or no terms, may be among the k best.
                count = len(sums.value)
                for p in range(count):
                    sums.met[p] = p
            candidates = _find(cut, above, rest, count, itself, index, sums)
            scores = np.empty(len(candidates))
            score_candidates(len(rows), table, index.positions[candidates], refs, weighting, pooling, scores)
            for i in range(len(candidates)):
                heap_push(scores[i], index.rows[candidates[i]], s, w, len(s))
            # All candidates that could reach `cut` are scored. If the k-th best score reaches it, no other can.
            if s[0] >= cut or cut == 0.0:
                break
            # Sums are upper bounds, so the k-th best score may be lower than the k-th best sum.
            above, cut = cut, max(0.0, s[0])
