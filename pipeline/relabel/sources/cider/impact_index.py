"""The two sides of a pruned search: candidates inverted by n-gram, and the n-grams of one reference set.

A posting of the inverted index is four bytes. Its impact is rounded up, since it serves for upper bounds alone (see
`maxscore`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.jit import jit
from relabel.sources.cider.features import Features, MergeState, Weighting
from relabel.sources.cider.kernels import LARGEST, NO_NGRAM, collect_matching_refs

I4 = NDArray[np.int32]
I8 = NDArray[np.int64]
F8 = NDArray[np.float64]
F4 = NDArray[np.float32]
U4 = NDArray[np.uint32]
IMPACT_BITS = 12
_HASH = np.int64(2654435761)  # Knuth's multiplicative hashing
LONGEST = 1 << (32 - IMPACT_BITS)
"""Candidates that one screen can hold."""


class Screen(NamedTuple):
    """Inverted index of C candidates, by position.

    Attributes
    ----------
    rows, places : (C,) int32
        Corpus row, ascending, and place in the encoding of each position.
    starts : (V + 1,) int64
        The postings of n-gram w are ``starts[w]:starts[w + 1]``.
    postings : (E,) uint32
        position * 2^12 + impact, ascending within an n-gram; the impact idf tf / |c| of the n-gram's order, which is
        at most 1, in steps of 1 / 4095, rounded up.
    peak : (V,) float32
        Largest impact of each n-gram, not rounded up.
    largest : (C, n) float32
        What one occurrence on the reference's side can at most be worth, by order: 1 / |c| where counts are clipped,
        else largest tf / |c|.
    bigrams : (C,) int32
    """

    rows: I4
    places: I4
    starts: I8
    postings: U4
    peak: F4
    largest: F4
    bigrams: I4


class Terms(NamedTuple):
    """The T n-grams of one reference set, and the H (n-gram, reference) pairs that occur.

    Attributes
    ----------
    grams, orders, sequence : (T,) int32
        Ascending n-grams, order from 0, and their numbers from the rarest on.
    begin : (T + 1,) int32
        The holders of term t are ``begin[t]:begin[t + 1]``.
    counts, bigrams, weight : (H,) int32, int32, float64
        As in MergeState.
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
    def allocate(cls, size: int) -> Terms:
        """Allocate for sets whose captions hold up to `size` n-grams in all."""
        grams, orders, sequence, begin, counts, bigrams = np.empty((6, size + 1), np.int32)
        weight, coef, own, rest = np.empty((4, size + 1))
        slots = np.empty(max(16, 1 << (4 * size).bit_length()), np.int32)
        return cls(grams, orders, sequence, begin, counts, bigrams, weight, coef, own, rest, slots)


def screen_of(features: Features, weighting: Weighting, places: I4, rows: I4) -> Screen:
    """Invert some captions.

    Parameters
    ----------
    features : Features
    weighting : Weighting
    places, rows : (C,) int32
        Rows of `features`, ascending, and their corpus rows.
    """
    grams, orders = int(weighting.starts[-1]), features.inverse.shape[1]
    starts = np.zeros(grams + 1, np.int64)
    _count(features, places, starts)
    postings = np.empty(int(starts.sum()), np.uint32)
    peak, largest = np.zeros(grams, np.float32), np.zeros((len(places), orders), np.float32)
    _fill(features, weighting, places, starts, postings, peak, largest)
    return Screen(rows, places, starts, postings, peak, largest, features.bigrams[places])


@jit
def _count(features: Features, places: I4, starts: I8) -> None:
    """Count the captions that hold n-gram w, in ``starts[w]``."""
    for p in range(len(places)):
        for e in range(features.indptr[places[p]], features.indptr[places[p] + 1]):
            starts[features.ids[e]] += 1


@jit
def _fill(
    features: Features,
    weighting: Weighting,
    places: I4,
    starts: I8,
    postings: U4,
    peak: F4,
    largest: F4,
) -> None:
    """Turn counts into starts and write the postings, from the last caption to the first, each list from its end."""
    # After the cumulative sum, starts[w] is the end of list w; writing backwards leaves its start there.
    for w in range(1, len(starts)):
        starts[w] += starts[w - 1]
    for p in range(len(places) - 1, -1, -1):
        c, order = places[p], 0
        for e in range(features.indptr[c], features.indptr[c + 1]):
            w = features.ids[e]
            while w >= weighting.starts[order + 1]:
                order += 1
            own = features.counts[e] * features.inverse[c, order]
            value = min(own * weighting.idf[w], 1.0)
            starts[w] -= 1
            postings[starts[w]] = (p << IMPACT_BITS) | np.int64(np.ceil(value * ((1 << IMPACT_BITS) - 1)))
            peak[w] = max(peak[w], value)
            largest[p, order] = max(largest[p, order], features.inverse[c, order] if weighting.clip else own)


@jit
def collect_terms(
    rows: I4, refs: Features, screen: Screen, weighting: Weighting, merge: MergeState, terms: Terms
) -> int:
    """Collect the n-grams of a reference set that candidates hold, ascending, and their holders.

    Returns
    -------
    int
        Terms collected.
    """
    for r in range(len(rows)):
        merge.cursor[r], merge.stop[r] = refs.indptr[rows[r]], refs.indptr[rows[r] + 1]
    scale = LARGEST / (refs.inverse.shape[1] * len(rows))
    order, size = 0, 0
    terms.begin[0] = 0
    while True:
        # R-way merge: the smallest id at a cursor is the set's next n-gram.
        gram = np.int64(NO_NGRAM)
        for r in range(len(rows)):
            if merge.cursor[r] < merge.stop[r]:
                gram = min(gram, np.int64(refs.ids[merge.cursor[r]]))
        if gram == NO_NGRAM:
            return size
        while gram >= weighting.starts[order + 1]:
            order += 1
        holders, at = collect_matching_refs(gram, order, rows, refs, weighting, merge), terms.begin[size]
        if screen.starts[gram] == screen.starts[gram + 1] or weighting.idf[gram] == 0.0:
            continue
        # `coef` bounds the sum over references for a candidate's impact; `own` bounds it for one occurrence.
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
def order_by_rarity(size: int, screen: Screen, terms: Terms) -> None:
    """Order the terms from the rarest on, and sum their bounds from the most frequent on."""
    # Insertion sort by posting-list length: a set has few terms. Ties stay in the order of n-grams.
    for t in range(size):
        count, at = screen.starts[terms.grams[t] + 1] - screen.starts[terms.grams[t]], t
        while at > 0:
            before = terms.grams[terms.sequence[at - 1]]
            if screen.starts[before + 1] - screen.starts[before] <= count:
                break
            terms.sequence[at] = terms.sequence[at - 1]
            at -= 1
        terms.sequence[at] = t
    # Suffix sums: the most that all terms from position i on add to a candidate.
    terms.rest[size] = 0.0
    for i in range(size - 1, -1, -1):
        t = terms.sequence[i]
        terms.rest[i] = terms.rest[i + 1] + terms.coef[t] * screen.peak[terms.grams[t]]


@jit
def build_hash(size: int, terms: Terms) -> int:
    """Fill the hash table; return its mask."""
    # At most a quarter of the slots is taken, so linear probing ends after a step or two.
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
def exact_score(c: int, mask: int, scale: float, terms: Terms, features: Features, weighting: Weighting) -> float:
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
    return min(total * scale, LARGEST)
