"""Exact search for the k nearest captions of a reference set by word mover's distance: prune, then refine.

The relaxed word mover's distance (Kusner et al., ICML 2015, section 4) moves every word of one caption to the nearest
word of the other, so it never exceeds the distance. Relaxed from the candidate's side, it is a sum over the candidate's
words of their distances to the nearest word of the reference. These distances are computed once per reference for all
words of candidates, so a candidate costs one addition per word (as in Atasu et al., IEEE Big Data 2017). Pooling and
relevance are monotone, so the bounds of a set's captions give a bound of the set. Candidates are then scored by
descending bound, until no bound reaches the k-th best relevance.

Kusner's word centroid distance is not used: on COCO's test captions it exceeds the relaxed distance for one pair in a
thousand only, and it costs more.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from typing_extensions import override

from relabel.core.numeric.csr import indptr_of, ranges
from relabel.core.numeric.heap import push, sort_heaps
from relabel.core.numeric.jit import jit
from relabel.core.numeric.threads import run_chunks
from relabel.core.progress import Advance
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import References
from relabel.sources.finder import EMPTY_SLOT, Finder, Search
from relabel.sources.wmd.distance import F8, I4, I8, Bags, distance, euclidean
from relabel.sources.wmd.set_distance import CODES, MAX, pool_to_caption, relevance_of_set
from relabel.store.workdir import Work

if TYPE_CHECKING:
    from relabel.sources.wmd.relevance import WmdRelevance

_QUERIES = 32  # queries per task of a thread
_SLACK = 1.0 - 1e-12  # keeps a bound below the distance: both sum the same numbers, in different orders


class Candidates(NamedTuple):
    """C candidates, ascending by row, and their W distinct words.

    Attributes
    ----------
    bags : (C,) int64
        Number of each candidate's bag.
    indptr, words, weights : (C + 1,) int64, (T,) int32, (T,) float64
        CSR rows of the candidates: words as positions in `columns`, and their share of the caption's mass.
    columns : (W,) int32
        Distinct words, ascending.
    """

    bags: I8
    indptr: I8
    words: I4
    weights: F8
    columns: I4


@dataclass(frozen=True, eq=False)
class WmdFinder(Finder):
    """Neighbours of reference sets by word mover's distance.

    Attributes
    ----------
    relevance : WmdRelevance
    search : Search
    pooling : Pooling
    runtime : Runtime
    """

    relevance: WmdRelevance
    search: Search
    pooling: Pooling
    runtime: Runtime

    @override
    def find(self, work: Work | None, queries: range, advance: Advance) -> tuple[Rows, Scores]:
        relevance, candidates = self.relevance, self.search.candidates
        sets = self.search.queries.take(np.arange(queries.start, queries.stop))
        if self.pooling == "paired":
            sets = References.single(sets.rows[sets.indptr[:-1]])
        shape = (len(sets), self.search.width)
        scores, best = np.full(shape, -1.0), np.full(shape, EMPTY_SLOT, np.int32)
        if 0 in shape:
            advance(len(sets))
            return best, scores
        # The kernel identifies candidates by their position, so excluded rows are converted; -1 if not a candidate.
        rows = self.search.exclude[queries.start : queries.stop]
        itself = np.minimum(np.searchsorted(candidates, rows), len(candidates) - 1)
        exclude = np.where(candidates[itself] == rows, itself, -1).astype(np.int64)
        members, bags = relevance.positions(sets.rows), relevance.bags

        def work_on(lo: int, hi: int) -> None:
            # The distances of all words of these queries to all words of candidates are computed once, and shared.
            refs = members[sets.indptr[lo] : sets.indptr[hi]]
            words = np.unique(bags.words[ranges(bags.indptr[refs], np.diff(bags.indptr)[refs])])
            apart = np.empty((len(words), len(self._candidates.columns)))
            _fill_distances(relevance.wide, words, self._candidates.columns, apart)
            indptr, heaps = sets.indptr[lo : hi + 1] - sets.indptr[lo], (scores[lo:hi], best[lo:hi])
            inputs = bags, relevance.wide, self._candidates, CODES[self.pooling], relevance.reach
            _search(indptr, refs, exclude[lo:hi], words, apart, *inputs, *heaps)

        run_chunks(work_on, len(sets), self.runtime.threads, _QUERIES, advance)
        sort_heaps(best, scores)
        return candidates[best], scores

    @cached_property
    def _candidates(self) -> Candidates:
        """Bags of the candidates, with their words renumbered."""
        bags, numbers = self.relevance.bags, self.relevance.positions(self.search.candidates)
        sizes = np.diff(bags.indptr)[numbers]
        entries = ranges(bags.indptr[numbers], sizes)
        columns, words = np.unique(bags.words[entries], return_inverse=True)
        weights = bags.counts[entries] / np.repeat(np.maximum(bags.totals[numbers], 1), sizes)
        return Candidates(numbers, indptr_of(sizes), words.astype(np.int32), weights, columns.astype(np.int32))


@jit
def _fill_distances(vectors: F8, words: I4, columns: I4, apart: F8) -> None:
    """Fill the (L, W) distances of `words` to `columns`."""
    for f in range(len(words)):
        for w in range(len(columns)):
            apart[f, w] = euclidean(vectors, words[f], columns[w])


@jit
def _search(
    sets: I8,
    members: I8,
    exclude: I8,
    words: I4,
    apart: F8,
    bags: Bags,
    vectors: F8,
    candidates: Candidates,
    pooling: int,
    reach: float,
    scores: F8,
    best: I4,
) -> None:
    """Find the best candidates of each set.

    Parameters
    ----------
    sets, members : (Q + 1,) int64, (sets[-1],) int64
        Set q is the bags ``members[sets[q]:sets[q + 1]]``.
    exclude : (Q,) int64
        Candidate that is the query itself, or -1.
    words, apart : (L,) int32, (L, W) float64
        All words of the sets, ascending, and their distances to the words in `candidates.columns`.
    bags, vectors, candidates, pooling, reach
    scores, best : (Q, K) float64 and int32, 1 <= K
        Empty heaps. Filled with the relevance and the position of the best candidates.
    """
    count = len(candidates.bags)
    bound, near = np.empty(count), np.empty(len(candidates.columns))
    for q in range(len(sets) - 1):
        refs, s, c = members[sets[q] : sets[q + 1]], scores[q], best[q]
        least = np.empty((count, len(refs)))
        # least[n, r] bounds the distance of candidate n to reference r from below; bound[n] bounds n's relevance from
        # above. The heap first holds the K best bounds.
        for r in range(len(refs)):
            _lower_bounds(refs[r], words, apart, bags, candidates, near, least[:, r])
        for n in range(count):
            bound[n] = relevance_of_set(pool_to_caption(least[n], 0, len(refs), pooling), len(refs), pooling, reach)
            if n == exclude[q]:
                bound[n] = -1.0
            elif bound[n] > s[0]:
                push(bound[n], n, s, c, len(s))
        # Score the candidates of the K best bounds: their least relevance rules out most of the others.
        first = c.copy()
        s[:], c[:] = -1.0, EMPTY_SLOT
        for n in first:
            if n < count:  # else an empty slot of the heap
                score = _score_candidate(refs, n, least[n], bags, vectors, candidates, pooling, reach, -1.0)
                push(score, n, s, c, len(s))
                bound[n] = -1.0  # done
        # Score the others by descending bound. Equality is kept: at equal relevance the smaller row wins.
        left = np.flatnonzero(bound >= max(s[0], 0.0))
        for n in left[np.argsort(-bound[left])]:
            if bound[n] < s[0]:  # bounds descend, so no later candidate can enter either
                break
            score = _score_candidate(refs, n, least[n], bags, vectors, candidates, pooling, reach, s[0])
            if score >= 0.0:
                push(score, n, s, c, len(s))


@jit
def _lower_bounds(ref: int, words: I4, apart: F8, bags: Bags, candidates: Candidates, near: F8, least: F8) -> None:
    """Fill `least`, (C,), with lower bounds of the distances of a reference to all candidates."""
    # near[w] is the distance of word w to the nearest word of the reference.
    near[:] = np.inf
    for e in range(bags.indptr[ref], bags.indptr[ref + 1]):
        row = apart[np.searchsorted(words, bags.words[e])]
        for w in range(len(near)):
            near[w] = min(near[w], row[w])
    for n in range(len(least)):
        # A plan moves each word of the candidate at least that far. An empty bag is infinitely far; a reference without
        # words leaves `near` infinite, hence the sum, too.
        start, stop, total = candidates.indptr[n], candidates.indptr[n + 1], 0.0
        for e in range(start, stop):
            total += candidates.weights[e] * near[candidates.words[e]]
        least[n] = total * _SLACK if start < stop else np.inf


@jit
def _score_candidate(
    refs: I8,
    n: int,
    bounds: F8,
    bags: Bags,
    vectors: F8,
    candidates: Candidates,
    pooling: int,
    reach: float,
    enough: float,
) -> float:
    """Return the relevance of a candidate, or -1 as soon as it is certain to be below `enough`.

    `bounds` holds lower bounds of the distances, which are replaced by the distances one by one.
    """
    nearest = np.inf
    for r in range(len(refs)):
        # `max` takes the nearest reference, and another one is at least as near.
        if pooling == MAX and bounds[r] >= nearest:
            continue
        bounds[r] = distance(bags, vectors, refs[r], candidates.bags[n])
        nearest = min(nearest, bounds[r])
        # Distances and remaining bounds together bound the relevance from above.
        if relevance_of_set(pool_to_caption(bounds, 0, len(refs), pooling), len(refs), pooling, reach) < enough:
            return -1.0
    return float(relevance_of_set(pool_to_caption(bounds, 0, len(refs), pooling), len(refs), pooling, reach))
