"""The two sides of a pruned search: candidates inverted by n-gram, and the n-grams of one reference set; compiled.

A posting of the inverted index takes four bytes. Its impact is rounded up, because it is used for upper bounds only
(see `maxscore`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.kernels import jit
from relabel.sources.cider.caption_index import NO_NGRAM, MergeState, collect_matching_refs
from relabel.sources.cider.relevance import MAX_SCORE, Features, Weighting

I4 = NDArray[np.int32]
I8 = NDArray[np.int64]
F8 = NDArray[np.float64]
F4 = NDArray[np.float32]
U4 = NDArray[np.uint32]
IMPACT_BITS = 12
"""Bits of a posting that hold its impact; the other 20 hold the candidate's position."""
MAX_CANDIDATES = 1 << (32 - IMPACT_BITS)
"""Largest number of candidates of one index: 1,048,576."""
_END = np.iinfo(np.int32).max  # larger than every n-gram of the terms


class ImpactIndex(NamedTuple):
    """Inverted index of C candidates, by position.

    `rows`, `positions`: (C,) int32; corpus row, ascending, and row of the encoding of each candidate.
    `starts`: (V + 1,) int64; the postings of n-gram w are ``starts[w]:starts[w + 1]``.
    `postings`: (E,) uint32; candidate * 2^12 + impact, ascending within an n-gram. The impact is idf tf / |c| for the
        n-gram's order, which is at most 1, in steps of 1 / 4095, rounded up.
    `peak`: (V,) float32; largest impact of each n-gram, before rounding up.
    `largest`: (C, n) float32; bound of tf / |c| per unit of `Terms.per_count`, by order: 1 / |c| if counts are clipped,
        else the largest tf / |c|.
    `bigrams`: (C,) int32.
    """

    rows: I4
    positions: I4
    starts: I8
    postings: U4
    peak: F4
    largest: F4
    bigrams: I4


class Terms(NamedTuple):
    """The T n-grams of one reference set, called terms, and the H (n-gram, reference) pairs that occur.

    `grams`, `orders`, `by_rarity`: (T,) int32; N-grams, ascending and followed by a larger number; their orders, from
        0; and the terms sorted from the rarest to the most frequent.
    `begin`: (T + 1,) int32; the references that hold term t are ``begin[t]:begin[t + 1]``.
    `counts`, `bigrams`, `weight`: (H,) int32, int32, float64; as in MergeState.
    `coef`: (T + 1,) float64; coef_w of `maxscore`: bounds a term's contribution when multiplied by the candidate's
        impact.
    `per_count`: (T + 1,) float64; bounds a term's contribution when multiplied by `ImpactIndex.largest`.
    `remaining`: (T + 1,) float64; bound of the sum of all terms from the t-th rarest on.
    """

    grams: I4
    orders: I4
    by_rarity: I4
    begin: I4
    counts: I4
    bigrams: I4
    weight: F8
    coef: F8
    per_count: F8
    remaining: F8

    @classmethod
    def allocate(cls, size: int) -> Terms:
        """Allocate buffers for sets whose captions hold up to `size` n-grams in total."""
        grams, orders, by_rarity, begin, counts, bigrams = np.empty((6, size + 1), np.int32)
        return cls(grams, orders, by_rarity, begin, counts, bigrams, *np.empty((4, size + 1)))


def impact_index_of(features: Features, weighting: Weighting, positions: I4, rows: I4) -> ImpactIndex:
    """Invert candidate captions by n-gram.

    `positions`, `rows`: (C,) int32; rows of `features`, ascending, and their corpus rows.
    """
    grams, orders = int(weighting.starts[-1]), features.inverse.shape[1]
    starts = np.zeros(grams + 1, np.int64)
    _count_postings(features, positions, starts)
    postings = np.empty(int(starts.sum()), np.uint32)
    peak, largest = np.zeros(grams, np.float32), np.zeros((len(positions), orders), np.float32)
    _write_postings(features, weighting, positions, starts, postings, peak, largest)
    return ImpactIndex(rows, positions, starts, postings, peak, largest, features.bigrams[positions])


@jit
def _count_postings(features: Features, positions: I4, starts: I8) -> None:
    """Count the captions that hold n-gram w, in ``starts[w]``."""
    # A caption lists an n-gram once, whatever its count, so its entries are its postings.
    for p in range(len(positions)):
        for e in range(features.indptr[positions[p]], features.indptr[positions[p] + 1]):
            starts[features.ids[e]] += 1


@jit
def _write_postings(
    features: Features,
    weighting: Weighting,
    positions: I4,
    starts: I8,
    postings: U4,
    peak: F4,
    largest: F4,
) -> None:
    """Turn counts into starts and write the postings."""
    # After the cumulative sum, starts[w] is the end of list w. Each list is filled from its end by captions from the
    # last to the first: positions ascend within the list, and starts[w] ends as its start.
    for w in range(1, len(starts)):
        starts[w] += starts[w - 1]
    for p in range(len(positions) - 1, -1, -1):
        c, order = positions[p], 0
        for e in range(features.indptr[c], features.indptr[c + 1]):
            w = features.ids[e]
            while w >= weighting.starts[order + 1]:  # ids ascend, hence so do orders
                order += 1
            frequency = features.counts[e] * features.inverse[c, order]
            value = min(frequency * weighting.idf[w], 1.0)  # an entry of a unit vector; rounding may exceed 1
            starts[w] -= 1
            # The ceiling keeps the stored impact an upper bound of the exact one.
            postings[starts[w]] = (p << IMPACT_BITS) | np.int64(np.ceil(value * ((1 << IMPACT_BITS) - 1)))
            peak[w] = max(peak[w], value)
            largest[p, order] = max(largest[p, order], features.inverse[c, order] if weighting.clip else frequency)


@jit
def collect_terms(
    rows: I4, refs: Features, index: ImpactIndex, weighting: Weighting, merge: MergeState, terms: Terms
) -> int:
    """Collect the n-grams of a reference set that candidates hold, ascending, and the references that hold them.

    Returns int: terms collected.
    """
    for r in range(len(rows)):
        merge.cursor[r], merge.stop[r] = refs.indptr[rows[r]], refs.indptr[rows[r] + 1]
    scale = MAX_SCORE / (refs.inverse.shape[1] * len(rows))
    order, size = 0, 0
    terms.begin[0] = 0
    while True:
        # R-way merge: the smallest id at a cursor is the set's next n-gram.
        gram = np.int64(NO_NGRAM)
        for r in range(len(rows)):
            if merge.cursor[r] < merge.stop[r]:
                gram = min(gram, np.int64(refs.ids[merge.cursor[r]]))
        if gram == NO_NGRAM:
            terms.grams[size] = _END
            return size
        while gram >= weighting.starts[order + 1]:
            order += 1
        # The call moves the cursors on, so it comes before the n-gram may be skipped.
        holders, at = collect_matching_refs(gram, order, rows, refs, weighting, merge), terms.begin[size]
        if index.starts[gram] == index.starts[gram + 1] or weighting.idf[gram] == 0.0:
            continue
        # Bounds with gauss <= 1. min(tf_c, tf_r) <= tf_c gives `coef` per impact. Under clipping, min(tf_c, tf_r) <=
        # tf_r gives `per_count` per 1 / |c|; without clipping it is per tf_c / |c|.
        coef, per_count = 0.0, 0.0
        for h in range(holders):
            terms.counts[at + h], terms.bigrams[at + h] = merge.counts[h], merge.bigrams[h]
            terms.weight[at + h] = merge.weight[h]
            coef += merge.weight[h]
            per_count += merge.weight[h] * (merge.counts[h] if weighting.clip else 1)
        terms.grams[size], terms.orders[size] = gram, order
        # `weight` has idf^2, and an impact has one idf already.
        terms.coef[size], terms.per_count[size] = coef * scale / weighting.idf[gram], per_count * scale
        size += 1
        terms.begin[size] = at + holders


@jit
def order_by_rarity(size: int, index: ImpactIndex, terms: Terms) -> None:
    """Sort the terms from the rarest to the most frequent, and sum their bounds from the end."""
    grams = terms.grams[:size]
    # Ties stay in the order of n-grams.
    terms.by_rarity[:size] = np.argsort(index.starts[grams + 1] - index.starts[grams], kind="mergesort")
    # Suffix sums: the terms from position i on add at most remaining[i] to any candidate.
    terms.remaining[size] = 0.0
    for i in range(size - 1, -1, -1):
        t = terms.by_rarity[i]
        terms.remaining[i] = terms.remaining[i + 1] + terms.coef[t] * index.peak[terms.grams[t]]


@jit
def exact_score(c: int, scale: float, terms: Terms, features: Features, weighting: Weighting) -> float:
    """Score the candidate in row c of the encoding: the bits of `score_pairs`."""
    # The same operations in the same order as in `score_pairs`. N-grams that no reference holds are skipped: they add
    # exactly 0 there. Both lists of n-grams ascend, so they are merged.
    total, t = 0.0, 0
    for e in range(features.indptr[c], features.indptr[c + 1]):
        gram, count = features.ids[e], features.counts[e]
        while terms.grams[t] < gram:
            t += 1
        if terms.grams[t] == gram:
            inner = 0.0
            for h in range(terms.begin[t], terms.begin[t + 1]):
                shared = terms.counts[h] if weighting.clip and terms.counts[h] < count else count
                inner += terms.weight[h] * shared * weighting.gauss[abs(features.bigrams[c] - terms.bigrams[h])]
            total += inner * features.inverse[c, terms.orders[t]]
    return min(total * scale, MAX_SCORE)
