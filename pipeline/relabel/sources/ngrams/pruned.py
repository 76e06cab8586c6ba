"""The k best candidates of a reference set without scoring them all: exact, compiled.

With the words of `kernels`, a candidate c can be worth at most ::

    r(G, c) <= penalty(len_c) * sum_w coef_w tf_c / |c|_k,    coef_w = 10 / (n R) sum_r idf_w^2 tf_r / |r|_k

where penalty(len) = max_r gauss(len - len_r), as min(tf_c, tf_r) <= tf_c; for a single reference this is hardly ever
more than r itself. The most frequent n-grams ("a", "on a") own most postings and add least, since idf^2 is small. So
the sum is taken from the rarest n-gram on and stops where all that is left out could add but a share of what the k-th
best has by then (MaxScore: Turtle and Flood, "Query evaluation: strategies and optimizations", 1995). What is left
out is bounded once for all candidates (`peak`: a candidate that was not met cannot win) and once a candidate (by its
own norms). Those that can still reach the k-th best are scored exactly, and the k-th best exact score tells whether
they were enough. Sums are float32, and every bound is raised by more than their rounding can take away.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.sources.ngrams.kernels import _LARGEST, _NOTHING, _hold, jit
from relabel.sources.ngrams.screen import Screen
from relabel.sources.ngrams.structures import Features, Merge, Weighting

I4 = NDArray[np.int32]
I8 = NDArray[np.int64]
F4 = NDArray[np.float32]
F8 = NDArray[np.float64]
_HASH = np.int64(2654435761)  # Knuth's multiplicative hashing
_FIRST_LOOK, _NEXT_LOOK = 16, 3  # the k-th best sum is looked up after 16 k postings, then whenever they tripled
_LEAST = 1e-30  # of a coefficient: times the least impact it is still a number of float32


class Terms(NamedTuple):
    """Room for the n-grams of one reference set, T of them, and for the H references that hold them.

    Attributes
    ----------
    grams, orders, sequence : (T,) int32
        Ascending n-grams, order from 0, and their numbers from the rarest on.
    begin : (T + 1,) int32
        The holders of term t are ``begin[t]:begin[t + 1]``.
    counts, bigrams, weight : (H,) int32, int32, float64
        See Merge.
    coef, own, rest : (T + 1,) float64
        coef_w; what `Screen.largest` is multiplied with; bound of the terms from the t-th rarest on.
    slots : (S,) int32
        Hash table of terms, -1 where empty; S is a power of two.
    """

    grams: I4
    orders: I4
    sequence: I4
    begin: I4
    counts: I4
    bigrams: I4
    weight: F8
    coef: F8
    own: F8
    rest: F8
    slots: I4

    @classmethod
    def room(cls, size: int) -> Terms:
        """Make room for sets whose captions hold up to `size` n-grams in all."""
        grams, orders, sequence, begin, counts, bigrams = np.empty((6, size + 1), np.int32)
        weight, coef, own, rest = np.empty((4, size + 1))
        slots = np.empty(max(16, 1 << (4 * size).bit_length()), np.int32)
        return cls(grams, orders, sequence, begin, counts, bigrams, weight, coef, own, rest, slots)


class Sums(NamedTuple):
    """Room for sums over C candidates.

    Attributes
    ----------
    value : (C,) float32
        Zeros before and after a search.
    met : (C + 1,) int32
        Positions whose value is above zero, ~position once they are scored.
    penalty : (longest + 1,) float32
    left : (n,) float64
        Sum of `own` over the terms left out, by order.
    """

    value: F4
    met: I4
    penalty: F4
    left: F8

    @classmethod
    def room(cls, candidates: int, weighting: Weighting) -> Sums:
        """Make room."""
        value, met = np.zeros(candidates, np.float32), np.empty(candidates + 1, np.int32)
        return cls(value, met, np.empty(len(weighting.gauss), np.float32), np.empty(len(weighting.starts) - 1))


@jit
def _gather(rows: I4, refs: Features, screen: Screen, weighting: Weighting, merge: Merge, terms: Terms) -> int:
    """Note the n-grams of a reference set that candidates hold, ascending, and who holds them; count them."""
    for r in range(len(rows)):
        merge.cursor[r], merge.stop[r] = refs.indptr[rows[r]], refs.indptr[rows[r] + 1]
    scale = _LARGEST / (refs.inverse.shape[1] * len(rows))
    order, size = 0, 0
    terms.begin[0] = 0
    while True:
        gram = np.int64(_NOTHING)
        for r in range(len(rows)):
            if merge.cursor[r] < merge.stop[r]:
                gram = min(gram, np.int64(refs.ids[merge.cursor[r]]))
        if gram == _NOTHING:
            return size
        while gram >= weighting.starts[order + 1]:
            order += 1
        holders, at = _hold(gram, order, rows, refs, weighting, merge), terms.begin[size]
        if screen.starts[gram] == screen.starts[gram + 1] or weighting.idf[gram] == 0.0:
            continue
        coef, own = 0.0, 0.0
        for h in range(holders):
            terms.counts[at + h], terms.bigrams[at + h] = merge.counts[h], merge.bigrams[h]
            terms.weight[at + h] = merge.weight[h]
            coef += merge.weight[h]
            own += merge.weight[h] * (merge.counts[h] if weighting.clip else 1)
        terms.grams[size], terms.orders[size] = gram, order
        terms.coef[size], terms.own[size] = max(coef * scale, _LEAST), max(own * scale, _LEAST)
        size += 1
        terms.begin[size] = at + holders


@jit
def _rank(size: int, screen: Screen, terms: Terms) -> None:
    """Order the terms from the rarest on, and sum their bounds from the most frequent on."""
    for t in range(size):
        count, at = screen.starts[terms.grams[t] + 1] - screen.starts[terms.grams[t]], t
        while at > 0:
            before = terms.grams[terms.sequence[at - 1]]
            if screen.starts[before + 1] - screen.starts[before] <= count:
                break
            terms.sequence[at] = terms.sequence[at - 1]
            at -= 1
        terms.sequence[at] = t
    terms.rest[size] = 0.0
    for i in range(size - 1, -1, -1):
        t = terms.sequence[i]
        terms.rest[i] = terms.rest[i + 1] + terms.coef[t] * screen.peak[terms.grams[t]]


@jit
def _index(size: int, terms: Terms) -> int:
    """Fill the hash table; return its mask."""
    mask = 15
    while mask < 4 * size:
        mask = 2 * mask + 1
    terms.slots[: mask + 1] = -1
    for t in range(size):
        at = (terms.grams[t] * _HASH >> 8) & mask
        while terms.slots[at] >= 0:
            at = (at + 1) & mask
        terms.slots[at] = t
    return mask


@jit
def _exact(c: int, mask: int, scale: float, terms: Terms, features: Features, weighting: Weighting) -> float:
    """Score the candidate at place c: the operations of `score_pairs` in its order, less the zeros it adds."""
    total = 0.0
    for e in range(features.indptr[c], features.indptr[c + 1]):
        gram, count = features.ids[e], features.counts[e]
        at = (gram * _HASH >> 8) & mask
        while terms.slots[at] >= 0:
            t = terms.slots[at]
            if terms.grams[t] == gram:
                inner = 0.0
                for h in range(terms.begin[t], terms.begin[t + 1]):
                    shared = terms.counts[h] if weighting.clip and terms.counts[h] < count else count
                    inner += terms.weight[h] * shared * weighting.gauss[abs(features.bigrams[c] - terms.bigrams[h])]
                total += inner * features.inverse[c, terms.orders[t]]
                break
            at = (at + 1) & mask
    return min(total * scale, _LARGEST)


@jit
def _push(score: float, row: int, scores: F8, rows: I4, width: int) -> bool:
    """Put a candidate in the place of the worst of a heap of `width`, unless it is worse still."""
    if score < scores[0] or (score == scores[0] and row > rows[0]):
        return False
    at, child = 0, 1
    while child < width:
        other = child + 1
        if other < width and (
            scores[other] < scores[child] or (scores[other] == scores[child] and rows[other] > rows[child])
        ):
            child = other
        if score < scores[child] or (score == scores[child] and row > rows[child]):
            break
        scores[at], rows[at] = scores[child], rows[child]
        at, child = child, 2 * child + 1
    scores[at], rows[at] = score, row
    return True


@jit
def _kth(count: int, itself: int, screen: Screen, sums: Sums, heap: F4) -> float:
    """Find about the k-th best of the sums so far, 0 where there are fewer; `heap` is room for k."""
    heap[:] = 0.0
    width = len(heap)
    for i in range(count):
        p = max(sums.met[i], ~sums.met[i])
        value = sums.value[p]
        if value <= heap[0] or p == itself:
            continue
        value *= sums.penalty[screen.bigrams[p]]
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
def search(
    indptr: I8,
    sets: I4,
    exclude: I4,
    refs: Features,
    screen: Screen,
    weighting: Weighting,
    share: float,
    merge: Merge,
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
        Of the k-th best sum, that may be left out; in 0..1. Nothing but time depends on it; 0 leaves nothing out.
    merge, terms, sums
        Room.
    best_rows, best_scores : (M, K) int32 and float64
        Heaps with the worst on top; -1 is the score of an empty place, and the largest int32 its row.
    """
    width, heap = best_rows.shape[1], np.empty(best_rows.shape[1], np.float32)
    value, met = sums.value, sums.met
    for m in range(len(indptr) - 1):
        rows, s, w = sets[indptr[m] : indptr[m + 1]], best_scores[m], best_rows[m]
        size = _gather(rows, refs, screen, weighting, merge, terms)
        _rank(size, screen, terms)
        mask, scale = _index(size, terms), _LARGEST / (refs.inverse.shape[1] * len(rows))
        raised = 1.0 + 3e-7 * (size + 16)
        for d in range(len(sums.penalty)):
            most = 0.0
            for r in range(len(rows)):
                most = max(most, weighting.gauss[abs(d - refs.bigrams[rows[r]])])
            sums.penalty[d] = most
        itself = np.searchsorted(screen.rows, exclude[m]) if exclude[m] >= 0 else len(screen.rows)
        if itself < len(screen.rows) and screen.rows[itself] != exclude[m]:
            itself = len(screen.rows)
        taken, count, seen, look, guess = 0, 0, 0, _FIRST_LOOK * width, s[0]
        while True:
            while taken < size and (guess <= 0.0 or terms.rest[taken] * raised > share * guess):
                t = terms.sequence[taken]
                gram, coef = terms.grams[t], np.float32(terms.coef[t])
                for e in range(screen.starts[gram], screen.starts[gram + 1]):
                    p = screen.position[e]
                    before = value[p]
                    met[count] = p
                    count += before == np.float32(0.0)
                    value[p] = before + coef * screen.impact[e]
                seen += screen.starts[gram + 1] - screen.starts[gram]
                taken += 1
                if seen >= look:
                    guess = max(guess, _kth(count, itself, screen, sums, heap))
                    look = _NEXT_LOOK * seen
            sums.left[:] = 0.0
            for i in range(taken, size):
                t = terms.sequence[i]
                sums.left[terms.orders[t]] += terms.own[t]
            cut = max(0.0, s[0], _kth(count, itself, screen, sums, heap))
            while True:
                for i in range(count):
                    p = met[i]
                    if p < 0 or (value[p] + terms.rest[taken]) * raised < cut or p == itself:
                        continue
                    bound = np.float64(value[p])
                    for order in range(len(sums.left)):
                        bound += sums.left[order] * screen.largest[p, order]
                    if bound * sums.penalty[screen.bigrams[p]] * raised >= cut:
                        met[i] = ~p  # scored
                        score = _exact(screen.places[p], mask, scale, terms, refs, weighting)
                        _push(score, screen.rows[p], s, w, width)
                if s[0] >= cut or cut == 0.0:
                    break
                cut = max(0.0, s[0])  # the sums promised more than the scores hold
            guess = s[0]
            if taken == size or terms.rest[taken] * raised < guess:
                break  # else a candidate that was not met could win
        if s[0] <= 0.0:
            for p in range(len(screen.rows)):
                if value[p] == 0.0 and p != itself and not _push(0.0, screen.rows[p], s, w, width):
                    break
        for i in range(count):
            value[max(met[i], ~met[i])] = 0.0


@jit
def settle(best_rows: I4, best_scores: F8) -> None:
    """Turn heaps into lists by (-score, row)."""
    for m in range(len(best_rows)):
        s, w = best_scores[m], best_rows[m]
        for width in range(len(s) - 1, 0, -1):
            score, row, s_top, w_top = s[width], w[width], s[0], w[0]
            _push(score, row, s[:width], w[:width], width)
            s[width], w[width] = s_top, w_top


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
                    _push(best, row, best_scores[m], best_rows[m], best_rows.shape[1])
                best = -1.0
