"""The k best candidates of a reference set without scoring them all: exact, compiled.

With the words of `kernels`, a candidate c can be worth at most ::

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

from relabel.sources.ngrams.kernels import _LARGEST, _NOTHING, _hold, jit
from relabel.sources.ngrams.screen import IMPACT_BITS, Screen
from relabel.sources.ngrams.structures import Features, Merge, Weighting

I4 = NDArray[np.int32]
I8 = NDArray[np.int64]
F8 = NDArray[np.float64]
U2 = NDArray[np.uint16]
_HASH = np.int64(2654435761)  # Knuth's multiplicative hashing
_FULL = 65535  # of a sum: stays, and is worth more than 10
_RAISE = 1 + 1e-5  # more than float32 peaks and norms can lose by rounding
_UNIT = 6000.0  # of a sum: 1.0 of relevance
_TRUST = 0.7  # the part of a promised k-th best, below which the least that could matter is set
_FIRST_LOOK, _NEXT_LOOK = 40, 4  # the k-th best sum is looked up after 40 k postings, then whenever they quadrupled


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
    def room(cls, candidates: int, weighting: Weighting) -> Sums:
        """Make room."""
        value, met, done = np.zeros(candidates, np.uint16), *np.empty((2, candidates + 1), np.int32)
        penalty, left = np.empty(len(weighting.gauss)), np.empty(len(weighting.starts) - 1)
        return cls(value, met, np.zeros(candidates, np.bool_), done, penalty, left)


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
        terms.coef[size], terms.own[size] = coef * scale / weighting.idf[gram], own * scale
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
def _add(gram: int, coef: float, least: int, count: int, screen: Screen, sums: Sums) -> int:
    """Add what an n-gram can be worth, at least one step, to the sums of all that hold it.

    Append those whose sums thereby reach `least` to the `count` that are met; return the new count.
    """
    value, met = sums.value, sums.met
    factor = np.int64(np.ceil(coef * (_UNIT / ((1 << IMPACT_BITS) - 1) * 65536)))
    for e in range(screen.starts[gram], screen.starts[gram + 1]):
        posting = np.int64(screen.postings[e])
        p = posting >> IMPACT_BITS
        before = np.int64(value[p])
        added = (factor * (posting & ((1 << IMPACT_BITS) - 1)) >> 16) + 1
        after = min(int(before + added), _FULL)
        value[p] = after
        met[count] = p
        count += int((before < least) & (after >= least))
    return count


@jit
def _keep(least: int, count: int, sums: Sums) -> int:
    """Forget those met whose sums are below `least`; return how many are left."""
    kept = 0
    for i in range(count):
        p = sums.met[i]
        sums.met[kept] = p
        kept += int(sums.value[p] >= least)
    return kept


@jit
def _kth(count: int, itself: int, screen: Screen, sums: Sums, heap: F8) -> float:
    """Find about the k-th best sum of those met, 0 where they are fewer; `heap` is room for k."""
    heap[:] = 0.0
    width = len(heap)
    for i in range(count):
        p = sums.met[i]
        if sums.value[p] <= heap[0] * _UNIT or p == itself:
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
    least = (cut - rest) * _UNIT
    for i in range(count):
        p = sums.met[i]
        if sums.value[p] < least or sums.scored[p] or p == itself:
            continue
        bound = sums.value[p] / _UNIT
        for order in range(len(sums.left)):
            bound += sums.left[order] * screen.largest[p, order]
        if bound * sums.penalty[screen.bigrams[p]] * _RAISE >= cut:
            sums.scored[p], sums.done[done] = True, p
            done += 1
            score = _exact(screen.places[p], mask, scale, terms, refs, weighting)
            _push(score, screen.rows[p], s, w, len(s))
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
        Of the k-th best sum, that may be left out: from 0 (nothing) to below 1. Nothing but time depends on it.
    merge, terms, sums
        Room.
    best_rows, best_scores : (M, K) int32 and float64
        Heaps with the worst on top; -1 is the score of an empty place, and the largest int32 its row.
    """
    heap = np.empty(best_rows.shape[1])
    for m in range(len(indptr) - 1):
        rows, s, w = sets[indptr[m] : indptr[m + 1]], best_scores[m], best_rows[m]
        size = _gather(rows, refs, screen, weighting, merge, terms)
        _rank(size, screen, terms)
        mask, scale = _index(size, terms), _LARGEST / (refs.inverse.shape[1] * len(rows))
        for d in range(len(sums.penalty)):
            sums.penalty[d] = 0.0
            for r in range(len(rows)):
                sums.penalty[d] = max(sums.penalty[d], weighting.gauss[abs(d - refs.bigrams[rows[r]])])
        itself = np.searchsorted(screen.rows, exclude[m])
        if itself < len(screen.rows) and screen.rows[itself] != exclude[m]:
            itself = len(screen.rows)
        taken, done, count, seen, look, guess = 0, 0, 0, 0, _FIRST_LOOK * len(s), s[0]
        least = _least(guess, share)
        sums.value[:] = 0
        while True:
            while taken < size and (guess <= 0.0 or terms.rest[taken] > share * guess):
                t = terms.sequence[taken]
                count = _add(terms.grams[t], terms.coef[t], least, count, screen, sums)
                seen += screen.starts[terms.grams[t] + 1] - screen.starts[terms.grams[t]]
                taken += 1
                if seen >= look:
                    guess = max(guess, _kth(count, itself, screen, sums, heap))
                    least = max(least, _least(guess, share))
                    count = _keep(least, count, sums)
                    look = _NEXT_LOOK * seen
            sums.left[:] = 0.0
            for i in range(taken, size):
                t = terms.sequence[i]
                sums.left[terms.orders[t]] += terms.own[t]
            rest = terms.rest[taken] * _RAISE
            cut = max(0.0, s[0], _kth(count, itself, screen, sums, heap))
            while True:
                done = _score_above(
                    cut, rest, count, done, itself, mask, scale, screen, terms, sums, refs, weighting, s, w
                )
                if s[0] >= cut or cut == 0.0:
                    break
                cut = max(0.0, s[0])  # the sums promised more than the scores hold
            if least <= max(1.0, (s[0] - rest) * _UNIT) and (taken == size or rest < s[0]):
                break
            # The guess was too high: one that was not met could win. Note all that have a sum, and go on from there.
            guess, least, count = s[0], 1, 0
            for p in range(len(screen.rows)):
                sums.met[count] = p
                count += int(sums.value[p] > 0)
        if s[0] <= 0.0:
            for p in range(len(screen.rows)):
                if sums.value[p] == 0 and p != itself and not _push(0.0, screen.rows[p], s, w, len(s)):
                    break
        for i in range(done):
            sums.scored[sums.done[i]] = False


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
