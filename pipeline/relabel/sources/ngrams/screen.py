"""Candidates inverted for screening: for every n-gram, who holds it and how much it can be worth there.

One posting is four bytes, rounded up: they serve for upper bounds alone (see `pruned`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.sources.ngrams.kernels import jit
from relabel.sources.ngrams.structures import Features, Weighting

I4 = NDArray[np.int32]
I8 = NDArray[np.int64]
F4 = NDArray[np.float32]
U4 = NDArray[np.uint32]
IMPACT_BITS = 12
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
