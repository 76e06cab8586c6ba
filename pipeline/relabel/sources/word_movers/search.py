"""The k nearest captions of a reference set by word mover's distance, exact: prune, then refine.

Relaxed word mover's distance (Kusner et al., ICML 2015, section 4) lets every word of one caption go to the nearest
word of the other: never more than the distance itself. Towards a reference it is a sum over the candidate's words of
their distance to the nearest word of the reference. That distance is noted once a reference for every word of the
vocabulary, so that a candidate costs one addition a word (as in Atasu et al., IEEE Big Data 2017). Bounds of a set's
captions make a bound of the set, since pooling and relevance are monotone. Candidates are then taken best bound first,
until no bound reaches the k-th best relevance; each meets the relaxation from the other side before it is solved.

Kusner's word centroid distance is left out: on COCO's test captions it exceeds the relaxed distance for one pair in a
thousand, and costs more.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.sources.ngrams.kernels import jit
from relabel.sources.word_movers.bags import Bags, apart
from relabel.sources.word_movers.movers import comes_first, moved, residual
from relabel.sources.word_movers.sets import MAX, relevance_of_set, to_caption
from relabel.sources.word_movers.transport import Room

F8 = NDArray[np.float64]
I4 = NDArray[np.int32]
I8 = NDArray[np.int64]
_SURE = 1.0 - 1e-12  # a bound and a distance are sums of the same numbers in another order


class Candidates(NamedTuple):
    """Candidates C, ascending by row, and how far their words W are from words of queries.

    Attributes
    ----------
    places : (C,) int64
        Which bag each candidate is.
    indptr, words, weights : (C + 1,) int64, (T,) int32, (T,) float64
        Their words, by place in `columns`, and the share of each.
    columns : (W,) int32
        The distinct words of all candidates.
    line : (V,) int32
        Where a word of a query stands in `table`; -1 where it does not.
    table : (F, W) float64
        Distances from words of queries to the words of candidates.
    """

    places: I8
    indptr: I8
    words: I4
    weights: F8
    columns: I4
    line: I4
    table: F8


class Scratch(NamedTuple):
    """What one thread works in, for reference sets of at most R captions and Q words.

    Attributes
    ----------
    near : (W,) float64
        From each word of candidates to the nearest word of a reference.
    bounds : (R, C) float64
        Lower bounds of distances.
    best : (C,) float64
        Upper bounds of relevance; -1 for candidates that are settled.
    rare : (Q, W) float64
        Distances of words that are not in the table.
    line : (Q,) int64
        Of each word of the set: its line in the table, or -1 - its line in `rare`.
    starts : (R + 1,) int64
        Where a reference's words begin in `line`.
    found : (R,) float64
        Distances of one candidate, or what bounds them.
    room : Room
    at : (2, n) int64
    """

    near: F8
    bounds: F8
    best: F8
    rare: F8
    line: I8
    starts: I8
    found: F8
    room: Room
    at: I8

    @classmethod
    def of(cls, bags: Bags, candidates: Candidates, references: int, words: int, rare: int) -> Scratch:
        """Make room."""
        count, width = len(candidates.places), len(candidates.columns)
        return cls(
            np.empty(width),
            np.empty((references, count)),
            np.empty(count),
            np.empty((max(1, rare), width)),
            np.empty(max(1, words), np.int64),
            np.empty(references + 1, np.int64),
            np.empty(references),
            Room.of(bags.largest),
            np.empty((2, bags.largest), np.int64),
        )


@jit
def fill_table(vectors: F8, words: I4, columns: I4, table: F8) -> None:
    """Fill the (F, W) distances of some words to columns."""
    for f in range(len(words)):
        for w in range(len(columns)):
            table[f, w] = apart(vectors, words[f], columns[w])


@jit
def search(
    sets: I8,
    members: I8,
    exclude: I8,
    bags: Bags,
    vectors: F8,
    candidates: Candidates,
    pooling: int,
    reach: float,
    scratch: Scratch,
    scores: F8,
    chosen: I8,
) -> None:
    """Find the best candidates of each set.

    Parameters
    ----------
    sets, members : (Q + 1,) int64, (sets[-1],) int64
        Set q is the bags ``members[sets[q]:sets[q + 1]]``.
    exclude : (Q,) int64
        A candidate that is the query itself; -1 for none.
    bags, vectors, candidates, pooling, reach, scratch
    scores, chosen : (Q, K) float64 and int64, 1 <= K
        Filled: relevance and number of the best candidates, by (-relevance, number).
    """
    for q in range(len(sets) - 1):
        refs = members[sets[q] : sets[q + 1]]
        _lines(refs, bags, vectors, candidates, scratch)
        _bounds(len(refs), candidates, scratch)
        s, c = scores[q], chosen[q]
        size = len(refs)
        s[:], c[:] = -1.0, len(candidates.places)
        for n in range(len(candidates.places)):
            for r in range(size):
                scratch.found[r] = scratch.bounds[r, n]
            bound = relevance_of_set(to_caption(scratch.found, 0, size, pooling), size, pooling, reach)
            scratch.best[n] = bound
            if n == exclude[q]:
                scratch.best[n] = -1.0
            elif bound > s[0]:
                _push(s, c, bound, n)
        first = c.copy()
        s[:], c[:] = -1.0, len(candidates.places)
        for n in first:
            if n < len(candidates.places):
                scratch.best[n] = -1.0
                _push(s, c, _exact(refs, n, bags, candidates, pooling, reach, -1.0, scratch), n)
        left = np.flatnonzero(scratch.best >= max(s[0], 0.0))
        for n in left[np.argsort(-scratch.best[left])]:
            if scratch.best[n] < s[0]:
                break
            found = _exact(refs, n, bags, candidates, pooling, reach, s[0], scratch)
            if found >= s[0]:
                _push(s, c, found, n)
        _sort(s, c)


@jit
def _lines(refs: I8, bags: Bags, vectors: F8, candidates: Candidates, scratch: Scratch) -> None:
    """Find the table's line of every word of a set; work out those of rare words."""
    at, rare = 0, 0
    for r in range(len(refs)):
        scratch.starts[r] = at
        for e in range(bags.indptr[refs[r]], bags.indptr[refs[r] + 1]):
            line = np.int64(candidates.line[bags.words[e]])
            if line < 0:
                for w in range(len(candidates.columns)):
                    scratch.rare[rare, w] = apart(vectors, bags.words[e], candidates.columns[w])
                line = np.int64(-1 - rare)
                rare += 1
            scratch.line[at] = line
            at += 1
    scratch.starts[len(refs)] = at


@jit
def _bounds(references: int, candidates: Candidates, scratch: Scratch) -> None:
    """Relax from the candidates' side: fill `bounds`."""
    near, indptr, words, weights = scratch.near, candidates.indptr, candidates.words, candidates.weights
    for r in range(references):
        near[:] = np.inf
        for e in range(scratch.starts[r], scratch.starts[r + 1]):
            line = scratch.line[e]
            row = candidates.table[line] if line >= 0 else scratch.rare[-1 - line]
            for w in range(len(near)):
                near[w] = min(near[w], row[w])
        bounds = scratch.bounds[r]
        for n in range(len(bounds)):
            total = 0.0
            for e in range(indptr[n], indptr[n + 1]):
                total += weights[e] * near[words[e]]
            bounds[n] = total * _SURE if indptr[n] < indptr[n + 1] else np.inf


@jit
def _exact(
    refs: I8,
    n: int,
    bags: Bags,
    candidates: Candidates,
    pooling: int,
    reach: float,
    least: float,
    scratch: Scratch,
) -> float:
    """Relevance of a candidate; where it is below `least`, anything below `least`."""
    found, size, c = scratch.found, len(refs), candidates.places[n]
    for r in range(size):
        found[r] = max(scratch.bounds[r, n], _other_side(refs[r], r, n, bags, candidates, scratch))
    if relevance_of_set(to_caption(found, 0, size, pooling), size, pooling, reach) < least:
        return -1.0
    nearest = np.inf
    for r in range(size):
        if pooling == MAX and found[r] >= nearest:
            continue
        found[r] = _distance(refs[r], r, n, c, bags, candidates, scratch)
        nearest = min(nearest, found[r])
        if relevance_of_set(to_caption(found, 0, size, pooling), size, pooling, reach) < least:
            return -1.0
    score: float = relevance_of_set(to_caption(found, 0, size, pooling), size, pooling, reach)
    return score


@jit
def _other_side(ref: int, r: int, n: int, bags: Bags, candidates: Candidates, scratch: Scratch) -> float:
    """Relax from the reference's side."""
    start, stop = candidates.indptr[n], candidates.indptr[n + 1]
    if bags.totals[ref] == 0 or start == stop:
        return np.inf
    total = 0.0
    for e in range(scratch.starts[r], scratch.starts[r + 1]):
        line = scratch.line[e]
        row = candidates.table[line] if line >= 0 else scratch.rare[-1 - line]
        least = np.inf
        for w in range(start, stop):
            least = min(least, row[candidates.words[w]])
        total += bags.counts[bags.indptr[ref] + e - scratch.starts[r]] * least
    return float(total / bags.totals[ref] * _SURE)


@jit
def _distance(ref: int, r: int, n: int, c: int, bags: Bags, candidates: Candidates, scratch: Scratch) -> float:
    """Word mover's distance, to the bit what `movers.distances` gives."""
    m, k = residual(bags, ref, c, scratch.room, scratch.at)
    if m <= 0:
        return np.inf if m < 0 else 0.0
    own, other = 0, 1
    if not comes_first(bags, ref, c):
        own, other = 1, 0
    of_line = scratch.starts[r] - bags.indptr[ref]
    of_word = candidates.indptr[n] - bags.indptr[c]
    for i in range(m if own == 0 else k):
        line = scratch.line[scratch.at[own, i] + of_line]
        row = candidates.table[line] if line >= 0 else scratch.rare[-1 - line]
        for j in range(k if own == 0 else m):
            apart_ij = row[candidates.words[scratch.at[other, j] + of_word]]
            if own == 0:
                scratch.room.cost[i, j] = apart_ij
            else:
                scratch.room.cost[j, i] = apart_ij
    one: float = moved(bags, ref, c, scratch.room, m, k)
    return one


@jit
def _push(scores: F8, chosen: I8, score: float, n: int) -> None:
    """Put a candidate into a heap with the worst on top, in the place of the worst, if it is better."""
    if score < scores[0] or (score == scores[0] and n > chosen[0]):
        return
    at, child, size = 0, 1, len(scores)
    while child < size:
        right = child + 1
        if right < size and (
            scores[right] < scores[child] or (scores[right] == scores[child] and chosen[right] > chosen[child])
        ):
            child = right
        if score < scores[child] or (score == scores[child] and n > chosen[child]):
            break
        scores[at], chosen[at] = scores[child], chosen[child]
        at, child = child, 2 * child + 1
    scores[at], chosen[at] = score, n


@jit
def _sort(scores: F8, chosen: I8) -> None:
    """Order by (-score, number)."""
    by_number = np.argsort(chosen)
    order = by_number[np.argsort(-scores[by_number], kind="mergesort")]
    scores[:], chosen[:] = scores[order], chosen[order]
