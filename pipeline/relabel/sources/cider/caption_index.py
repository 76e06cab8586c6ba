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

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.errors import UsageError
from relabel.core.numeric.csr import ranges
from relabel.core.numeric.kernels import jit, select_top
from relabel.core.numeric.threads import run_chunks
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import References
from relabel.sources.cider.relevance import MAX_SCORE, Features, Weighting
from relabel.sources.relevance import pool

if TYPE_CHECKING:
    from relabel.sources.cider.relevance import CiderRelevance

I4 = NDArray[np.int32]
I8 = NDArray[np.int64]
F8 = NDArray[np.float64]
_SETS = 4  # sets whose scores a thread holds at a time
NO_NGRAM = 1 << 40
"""Larger than every n-gram id. Ids are cast to int64 for the comparison, so that each function compiles once."""


class Postings(NamedTuple):
    """Inverted index of N candidates, sorted by length.

    `rows`, `column`: (N,) int32; corpus row of each position, and its column in the order of the caller's candidates.
    `ids`: (C,) int32; N-grams that some candidate holds, ascending.
    `segments`: (C + 1,) int64; the segments of n-gram j are ``segments[j]:segments[j + 1]``.
    `begin`: (S + 1,) int64; the postings of segment s are ``begin[s]:begin[s + 1]``.
    `counts`, `bigrams`: (S,) int32; count and length that the postings of a segment share.
    `position`: (E,) int32.
    `inverse`: (E,) float64; 1 / norm of the posting's caption for the n-gram's order.
    """

    rows: NDArray[np.int32]
    column: NDArray[np.int32]
    ids: NDArray[np.int32]
    segments: NDArray[np.int64]
    begin: NDArray[np.int64]
    counts: NDArray[np.int32]
    bigrams: NDArray[np.int32]
    position: NDArray[np.int32]
    inverse: NDArray[np.float64]


class MergeState(NamedTuple):
    """Buffers of a merge of up to R sorted rows.

    `cursor`, `stop`: (R,) int64; current entry and end of each row.
    `counts`, `bigrams`, `weight`: (R,) int32, int32, float64; count, caption length and idf^2 tf / norm of the rows
        that hold the current n-gram, compacted to the front.
    """

    cursor: NDArray[np.int64]
    stop: NDArray[np.int64]
    counts: NDArray[np.int32]
    bigrams: NDArray[np.int32]
    weight: NDArray[np.float64]

    @classmethod
    def allocate(cls, size: int) -> MergeState:
        """Allocate buffers for sets of up to `size` captions."""
        i8, i4 = np.int64, np.int32
        return cls(np.empty(size, i8), np.empty(size, i8), np.empty(size, i4), np.empty(size, i4), np.empty(size))


def postings_of(
    features: Features, positions: NDArray[np.integer], rows: NDArray[np.int32], starts: NDArray[np.int64]
) -> Postings:
    """Invert candidate captions.

    `positions`: (N,) int; rows of `features` to invert, repeats allowed. `rows`: (N,) int32; their corpus rows.
    `starts`: (n + 1,) int64; see Weighting.
    """
    # Sorted by length, candidates of equal length are neighbours within an n-gram's list, so segments are long.
    column = np.argsort(features.bigrams[positions], kind="stable").astype(np.int32)
    positions = positions[column]
    sizes = np.diff(features.indptr)[positions]
    entry = ranges(features.indptr[positions], sizes)
    ids, counts = features.ids[entry], features.counts[entry]
    # N-gram, count and candidate are packed into one int64 per posting: one sort orders by all three.
    count_bits, position_bits = (int(v).bit_length() for v in (counts.max(initial=0), len(positions)))
    if int(starts[-1]).bit_length() + count_bits + position_bits > 63:
        raise UsageError(f"{len(positions)} captions are too many for one index", todo="Index them in pieces.")
    keys = ids.astype(np.int64) << (count_bits + position_bits)
    keys |= counts.astype(np.int64) << position_bits
    keys |= np.repeat(np.arange(len(positions)), sizes)
    keys.sort()
    position = (keys & ((1 << position_bits) - 1)).astype(np.int32)
    keys >>= position_bits  # from now on: n-gram and count
    bigrams = features.bigrams[positions][position]
    # A segment begins wherever the n-gram, the count or the length changes.
    fresh = np.ones(len(keys), bool)
    np.not_equal(keys[1:], keys[:-1], out=fresh[1:])
    fresh[1:] |= bigrams[1:] != bigrams[:-1]
    begin = np.flatnonzero(fresh)
    grams = (keys[begin] >> count_bits).astype(np.int32)
    segments = np.flatnonzero(np.diff(grams, prepend=-1))
    inverse = np.empty(len(keys))
    # Ids ascend by order, so the postings of one order are one slice.
    cuts = np.searchsorted(keys, starts << count_bits)
    for order, (a, b) in enumerate(pairwise(cuts.tolist())):
        inverse[a:b] = features.inverse[positions[position[a:b]], order]
    return Postings(
        np.ascontiguousarray(rows[column]),
        column,
        grams[segments],
        np.append(segments, len(begin)),
        np.append(begin, len(keys)),
        (keys[begin] & ((1 << count_bits) - 1)).astype(np.int32),
        bigrams[begin],
        position,
        inverse,
    )


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

    Returns int: references collected.
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

    `indptr`, `sets`: (M + 1,) int64, (indptr[-1],) int32; reference sets of rows of `refs`. `merge`: for the largest
    set. `out`: (M, N) float64; filled, columns by position in `postings`.
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


@dataclass(frozen=True, eq=False)
class CaptionIndex:
    """Inverted index of N candidate captions, for reference sets of encoded rows.

    Beside its result, a call holds the scores of 4 sets per thread: 32 N bytes, times the set size for `max`.
    """

    relevance: CiderRelevance
    postings: Postings

    def __len__(self) -> int:
        return len(self.postings.rows)

    def block(self, references: References, pooling: Pooling | None = None) -> Scores:
        """Score M sets against all candidates: (M, N) float64, columns in the order of the caller's captions."""
        out = np.empty((len(references), len(self)))

        def write(lo: int, hi: int, scores: Scores) -> None:
            out[lo:hi, self.postings.column] = scores

        self._score_sets(references, pooling, write)
        return out

    def topk(self, references: References, k: int, pooling: Pooling | None = None) -> tuple[Rows, Scores]:
        """Find the k most relevant candidates of each of M reference sets, without the (M, N) matrix.

        `references`: of encoded rows. Sets of one caption give the neighbours of captions. `k`: at least 1; cut to N.
        Returns `rows`, (M, K) int32: corpus rows by (-score, row); `scores`, (M, K) float64.
        """
        width = min(k, len(self))
        rows, best = np.empty((len(references), width), np.int32), np.empty((len(references), width))

        def select(lo: int, hi: int, scores: Scores) -> None:
            select_top(scores, self.postings.rows, rows[lo:hi], best[lo:hi])

        if width:
            self._score_sets(references, pooling, select)
        return rows, best

    def _score_sets(
        self, references: References, pooling: Pooling | None, use: Callable[[int, int, Scores], None]
    ) -> None:
        """Call use(lo, hi, scores) with the scores of sets lo to hi - 1 at a time, columns by position."""
        relevance = self.relevance
        mode = pooling or relevance.pooling
        sets = relevance.set_positions(references, mode)
        sizes = np.diff(sets.indptr)

        def work(lo: int, hi: int) -> None:
            merge = MergeState.allocate(int(sizes.max(initial=1)))
            held = np.empty((_SETS * int(sizes[lo:hi].max()) if mode == "max" else _SETS, len(self)))
            for a in range(lo, hi, _SETS):
                b = min(a + _SETS, hi)
                indptr = sets.indptr[a : b + 1]
                if mode == "max":  # every reference is a set of its own; `pool` joins their scores
                    indptr = np.arange(indptr[0], indptr[-1] + 1)
                scores = held[: len(indptr) - 1]
                score_sets(indptr, sets.rows, relevance.features, self.postings, relevance.weighting, merge, scores)
                use(a, b, pool(scores, sets.indptr[a : b + 1] - sets.indptr[a], "max") if mode == "max" else scores)

        run_chunks(work, len(sets), relevance.threads, step=16 * _SETS)
