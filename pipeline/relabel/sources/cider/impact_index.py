"""Inverted index of candidates by n-gram for a pruned search, compiled.

A posting takes four bytes. Its impact is rounded up, because it is only used for upper bounds (see `search`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.kernels import jit
from relabel.sources.cider.features import I4, I8, Features, Weighting

F4 = NDArray[np.float32]
U4 = NDArray[np.uint32]
IMPACT_BITS = 12
"""Number of bits of a posting for the impact. The other 20 bits are the candidate's position."""
MAX_CANDIDATES = 1 << (32 - IMPACT_BITS)
"""Maximum number of candidates of an index: 1,048,576."""


class ImpactIndex(NamedTuple):
    """Inverted index of C candidates.

    `rows`, `positions`: (C,) int32; corpus row (ascending) and row of the encoding of each candidate.
    `starts`: (V + 1,) int64; the postings of n-gram w are ``starts[w]:starts[w + 1]``.
    `postings`: (E,) uint32; candidate * 2^12 + impact, ascending for each n-gram. The impact is idf tf / |c| for the
        n-gram's order, at most 1, in steps of 1 / 4095, rounded up.
    `peak`: (V,) float32; maximum impact of each n-gram before rounding up.
    `bigrams`: (C,) int32; length of each candidate, as in Features.
    """

    rows: I4
    positions: I4
    starts: I8
    postings: U4
    peak: F4
    bigrams: I4


def impact_index_of(features: Features, weighting: Weighting, positions: I4, rows: I4) -> ImpactIndex:
    """Build the index of candidates, given by rows of `features` and of the corpus."""
    grams = int(weighting.starts[-1])
    starts, peak = np.zeros(grams + 1, np.int64), np.zeros(grams, np.float32)
    _count_postings(features, positions, starts)
    postings = np.empty(int(starts.sum()), np.uint32)
    _write_postings(features, weighting, positions, starts, postings, peak)
    return ImpactIndex(rows, positions, starts, postings, peak, features.bigrams[positions])


@jit
def _count_postings(features: Features, positions: I4, starts: I8) -> None:
    """Count the captions with n-gram w in ``starts[w]``."""
    # An n-gram has one entry per caption, independent of its count.
    for p in range(len(positions)):
        for e in range(features.indptr[positions[p]], features.indptr[positions[p] + 1]):
            starts[features.ids[e]] += 1


@jit
def _write_postings(
    features: Features, weighting: Weighting, positions: I4, starts: I8, postings: U4, peak: F4
) -> None:
    """Convert counts to starts, and write the postings."""
    # After the cumulative sum, starts[w] is the end of list w. Lists are filled from the end with captions in reverse
    # order, so positions are ascending, and starts[w] becomes the start of the list.
    for w in range(1, len(starts)):
        starts[w] += starts[w - 1]
    for p in range(len(positions) - 1, -1, -1):
        c, order = positions[p], 0
        for e in range(features.indptr[c], features.indptr[c + 1]):
            w = features.ids[e]
            while w >= weighting.starts[order + 1]:  # ids are ascending, so orders are too
                order += 1
            # An entry of a unit vector, limited because rounding may exceed 1.
            value = min(features.counts[e] * features.inverse[c, order] * weighting.idf[w], 1.0)
            starts[w] -= 1
            # Rounded up to keep an upper bound.
            postings[starts[w]] = (p << IMPACT_BITS) | np.int64(np.ceil(value * ((1 << IMPACT_BITS) - 1)))
            peak[w] = max(peak[w], value)
