"""CIDEr and CIDEr-D over sparse rows, compiled.

Vedantam et al., CVPR 2015, eq. 2-4 and CIDEr-D. Let G be a reference set of R captions and c a candidate. tf is the
count of n-gram w in a caption, and |x|_k is the Euclidean norm of caption x's tf * idf over the n-grams of order k::

    r(G, c) = 10 / (n R) * sum_w 1/|c|_k  sum_r  gauss(len_c - len_r) min(tf_c, tf_r) tf_r idf_w^2 / |r|_k

gauss(d) = exp(-d^2 / (2 sigma^2)) and len is the number of bigrams, as in the released code. Plain CIDEr has tf_c in
place of min(tf_c, tf_r), and no gauss.

The inner sum depends on the candidate only through its count and its length. So the candidates are sorted by length,
and each n-gram's posting list is cut into segments of equal (count, length). A reference set costs one inner sum per
segment, plus one multiplication and one addition per posting.

`score_pairs` performs the operations of `score_sets` in the same order, so both give the same bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.jit import jit
from relabel.sources.cider.features import MAX_SCORE, Features, MergeState, Postings, Weighting

I4 = NDArray[np.int32]
I8 = NDArray[np.int64]
F8 = NDArray[np.float64]
NO_NGRAM = 1 << 40
"""Larger than every n-gram id. Ids are cast to int64 for the comparison, so that each function compiles once."""


@jit
def _sum_references(holders: int, merge: MergeState, weighting: Weighting, count: int, bigrams: int) -> float:
    """Sum over the references that hold an n-gram, for a candidate of this length that holds it `count` times."""
    # References that lack the n-gram would add exactly 0. The order is that of the set in every caller.
    total = 0.0
    for h in range(holders):
        shared = merge.counts[h] if weighting.clip and merge.counts[h] < count else count
        total += merge.weight[h] * shared * weighting.gauss[abs(bigrams - merge.bigrams[h])]
    return total


@jit
def collect_matching_refs(
    gram: np.int64, order: int, rows: I4, refs: Features, weighting: Weighting, merge: MergeState
) -> int:
    """Collect count, length and idf^2 tf / |r| of the references whose cursor is at `gram`, and advance these cursors.

    Returns
    -------
    int
        References collected.
    """
    holders = 0
    squared = weighting.idf[gram] * weighting.idf[gram]
    for r in range(len(rows)):
        at = merge.cursor[r]
        # Every id before a cursor is below `gram`, so a reference holds it exactly if it is the one at the cursor.
        if at < merge.stop[r] and refs.ids[at] == gram:
            merge.counts[holders] = refs.counts[at]
            merge.bigrams[holders] = refs.bigrams[rows[r]]
            merge.weight[holders] = squared * refs.counts[at] * refs.inverse[rows[r], order]
            merge.cursor[r] = at + 1
            holders += 1
    return holders


@jit
def score_sets(
    indptr: I8, sets: I4, refs: Features, postings: Postings, weighting: Weighting, merge: MergeState, out: F8
) -> None:
    """Score every candidate against M reference sets.

    Parameters
    ----------
    indptr, sets : (M + 1,) int64, (indptr[-1],) int32
        Reference sets of rows of `refs`.
    refs, postings, weighting
    merge : MergeState
        For the largest set.
    out : (M, N) float64
        Filled, columns by position in `postings`.
    """
    for m in range(len(indptr) - 1):
        rows = sets[indptr[m] : indptr[m + 1]]
        scores = out[m]
        scores[:] = 0.0
        for r in range(len(rows)):
            merge.cursor[r], merge.stop[r] = refs.indptr[rows[r]], refs.indptr[rows[r] + 1]
        order, low = 0, 0
        while True:
            # R-way merge: ids ascend within a row, so the smallest id at a cursor is the set's next n-gram.
            gram = np.int64(NO_NGRAM)
            for r in range(len(rows)):
                if merge.cursor[r] < merge.stop[r]:
                    gram = min(gram, np.int64(refs.ids[merge.cursor[r]]))
            # Binary search for the first candidate n-gram that is not below `gram`. Both lists ascend, so `low` never
            # decreases. NO_NGRAM ends the loop too: no candidate n-gram reaches it.
            high = len(postings.ids)
            while low < high:
                middle = (low + high) >> 1
                if postings.ids[middle] < gram:
                    low = middle + 1
                else:
                    high = middle
            if low == len(postings.ids):
                break
            while gram >= weighting.starts[order + 1]:  # ids ascend, hence so do orders
                order += 1
            holders = collect_matching_refs(gram, order, rows, refs, weighting, merge)
            # The cursors have moved on by now. N-grams that no candidate holds or whose idf is 0 contribute nothing.
            if postings.ids[low] != gram or weighting.idf[gram] == 0.0:
                continue
            # Candidates of equal (count, length) share the inner sum, so that is computed once per segment.
            for s in range(postings.segments[low], postings.segments[low + 1]):
                inner = _sum_references(holders, merge, weighting, postings.counts[s], postings.bigrams[s])
                for e in range(postings.begin[s], postings.begin[s + 1]):
                    scores[postings.position[e]] += inner * postings.inverse[e]
        scale = MAX_SCORE / (refs.inverse.shape[1] * len(rows))
        for p in range(len(scores)):  # rounding may exceed the maximum by an ulp
            scores[p] = min(scores[p] * scale, MAX_SCORE)


@jit
def score_pairs(
    indptr: I8,
    sets: I4,
    refs: Features,
    chosen: I4,
    candidates: Features,
    weighting: Weighting,
    merge: MergeState,
    out: F8,
) -> None:
    """Score reference set p against row ``chosen[p]`` of `candidates`: fill `out`, (P,) float64.

    The other parameters are those of `score_sets`.
    """
    for p in range(len(chosen)):
        rows, c = sets[indptr[p] : indptr[p + 1]], chosen[p]
        for r in range(len(rows)):
            merge.cursor[r], merge.stop[r] = refs.indptr[rows[r]], refs.indptr[rows[r] + 1]
        order, total = 0, 0.0
        # N-grams ascend as in `score_sets`. Those that the candidate lacks are skipped: their terms are 0.
        for e in range(candidates.indptr[c], candidates.indptr[c + 1]):
            gram = np.int64(candidates.ids[e])
            for r in range(len(rows)):
                # Establish the invariant of `collect_matching_refs`: nothing below `gram` is left at a cursor.
                while merge.cursor[r] < merge.stop[r] and refs.ids[merge.cursor[r]] < gram:
                    merge.cursor[r] += 1
            while gram >= weighting.starts[order + 1]:
                order += 1
            holders = collect_matching_refs(gram, order, rows, refs, weighting, merge)
            inner = _sum_references(holders, merge, weighting, candidates.counts[e], candidates.bigrams[c])
            total += inner * candidates.inverse[c, order]
        out[p] = min(total * (MAX_SCORE / (refs.inverse.shape[1] * len(rows))), MAX_SCORE)
