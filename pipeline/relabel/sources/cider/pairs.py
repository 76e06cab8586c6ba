"""CIDEr and CIDEr-D of pairs of a reference set and a candidate, compiled: the exact scores of the source.

Vedantam et al., CVPR 2015, eq. 2-4 and CIDEr-D. tf is the count of n-gram w in a caption, and |x|_k is the Euclidean
norm of caption x's tf * idf over the n-grams of order k in 1..n. The score of a candidate c and one reference r is ::

    r(r, c) = 10 / n * gauss(len_c - len_r) * sum_w min(tf_c, tf_r) tf_r idf_w^2 / (|r|_k |c|_k)

with gauss(d) = exp(-d^2 / (2 sigma^2)). len is the number of bigrams, as in the released code. Plain CIDEr has tf_c
instead of min(tf_c, tf_r), and no gauss. The score of a set is the mean over its references.

The n-grams of a set are stored in a hash table that is used for any number of candidates.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from relabel.core.numeric.kernels import MAX, MEAN, jit, pool_next
from relabel.core.types import Pooling
from relabel.corpus import References
from relabel.sources.cider.features import F8, I4, I8, MAX_SCORE, Features, Weighting


class SetTable(NamedTuple):
    """One set of up to R references: a hash table of their n-grams with chains of slots, and buffers.

    `bucket`: (B,) int32; first slot of each bucket, or -1. B is a power of 2: n-gram w is in bucket ``w & (B - 1)``.
    `ids`, `counts`, `reference`, `following`: (S,) int32; n-gram of each slot, its count, the number of the reference
        in the set, and the next slot of the bucket or -1.
    `bigrams`, `inverse`: (R,) int32 and (R, n) float64; as in Features.
    `part`, `total`: (R,) float64; sums of each reference over the n-grams of one order, and over orders.
    """

    bucket: I4
    ids: I4
    counts: I4
    reference: I4
    following: I4
    bigrams: I4
    inverse: F8
    part: F8
    total: F8

    @classmethod
    def allocate(cls, sets: References, refs: Features) -> SetTable:
        """Allocate a table with the capacity for any of the given sets of rows of `refs`."""
        slots = int(np.add.reduceat(np.diff(refs.indptr)[sets.rows], sets.indptr[:-1]).max())
        size, orders = int(np.diff(sets.indptr).max()), refs.inverse.shape[1]
        ids, counts, reference, following = np.empty((4, slots), np.int32)
        bucket, bigrams = np.empty(2 << slots.bit_length(), np.int32), np.empty(size, np.int32)
        part, total = np.empty((2, size))
        return cls(bucket, ids, counts, reference, following, bigrams, np.empty((size, orders)), part, total)


def code_of(pooling: Pooling) -> int:
    """Return the code of a pooling in the kernels. `set` is the mean over references."""
    return MAX if pooling == "max" else MEAN


@jit
def enter_set(rows: I4, refs: Features, table: SetTable) -> None:
    """Fill a table with a set of rows of `refs`, replacing its content."""
    table.bucket[:] = -1
    slot = 0
    for r in range(len(rows)):
        table.bigrams[r] = refs.bigrams[rows[r]]
        # A loop compiles faster than a row assignment, for which numba also compiles an error about shapes.
        for order in range(table.inverse.shape[1]):
            table.inverse[r, order] = refs.inverse[rows[r], order]
        for e in range(refs.indptr[rows[r]], refs.indptr[rows[r] + 1]):
            at = refs.ids[e] & (len(table.bucket) - 1)
            table.ids[slot], table.counts[slot], table.reference[slot] = refs.ids[e], refs.counts[e], r
            table.following[slot] = table.bucket[at]
            table.bucket[at] = slot
            slot += 1


@jit
def score_candidates(
    size: int, table: SetTable, rows: I4, candidates: Features, weighting: Weighting, pooling: int, out: F8
) -> None:
    """Score the set of `size` references in the table against rows of `candidates`, (N,): fill `out`, (N,)."""
    part, total, mask = table.part[:size], table.total[:size], len(table.bucket) - 1
    for p in range(len(rows)):
        c, order, common = rows[p], 0, False
        part[:] = 0.0
        total[:] = 0.0
        for e in range(candidates.indptr[c], candidates.indptr[c + 1]):
            gram = candidates.ids[e]
            if gram >= weighting.starts[order + 1]:
                # Without a common n-gram of an order, there is none of the next order.
                if not common:
                    break
                for r in range(size):
                    total[r] += part[r] * table.inverse[r, order] * candidates.inverse[c, order]
                    part[r] = 0.0
                order, common = order + 1, False
            slot = table.bucket[gram & mask]
            while slot >= 0:
                if table.ids[slot] == gram:
                    count, shared, common = table.counts[slot], candidates.counts[e], True
                    if weighting.clip and count < shared:
                        shared = count
                    part[table.reference[slot]] += weighting.idf[gram] * weighting.idf[gram] * count * shared
                slot = table.following[slot]
        pooled = 0.0
        for r in range(size):
            total[r] += part[r] * table.inverse[r, order] * candidates.inverse[c, order]
            gauss = weighting.gauss[abs(table.bigrams[r] - candidates.bigrams[c])]
            pooled = pool_next(pooled, total[r] * gauss * (MAX_SCORE / table.inverse.shape[1]), pooling)
        # Rounding may exceed the maximum by an ulp.
        out[p] = min(pooled / size if pooling == MEAN else pooled, MAX_SCORE)


@jit
def score_pairs(
    indptr: I8,
    sets: I4,
    refs: Features,
    table: SetTable,
    captions: I4,
    candidates: Features,
    weighting: Weighting,
    pooling: int,
    out: F8,
) -> None:
    """Score set p, rows ``sets[indptr[p]:indptr[p + 1]]`` of `refs`, against row ``captions[p]``: fill `out`, (P,)."""
    end = 0
    while end < len(captions):
        start, rows = end, sets[indptr[end] : indptr[end + 1]]
        # Enter consecutive equal sets only once.
        while end < len(captions) and np.array_equal(rows, sets[indptr[end] : indptr[end + 1]]):
            end += 1
        enter_set(rows, refs, table)
        score_candidates(len(rows), table, captions[start:end], candidates, weighting, pooling, out[start:end])
