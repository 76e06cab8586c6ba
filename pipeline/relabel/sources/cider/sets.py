"""CIDEr and CIDEr-D of reference sets against many candidates, with an inverted index of the candidates; compiled.

The inner sum over the references of a set depends only on the count and the length of a candidate. The posting list of
an n-gram is therefore divided into segments of equal (count, length). A set costs one inner sum per segment, plus one
multiplication and one addition per posting.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from relabel.core.numeric.csr import ranges
from relabel.core.numeric.kernels import jit
from relabel.core.numeric.threads import run_chunks
from relabel.core.types import Pooling, Scores
from relabel.corpus import References
from relabel.sources.cider.features import F8, I4, I8, MAX_SCORE, Features, SetEntries, Weighting, entries_of, orders_of
from relabel_train.scoring.references import pool

_SETS, _CELLS = 64, 1 << 20  # maximum numbers of sets, and of scores of single references, per chunk of a thread


class Postings(NamedTuple):
    """Inverted index of N candidates.

    `ids`: (C,) int32; ascending n-grams of the candidates.
    `segments`: (C + 1,) int64; the segments of the n-gram ``ids[j]`` are ``segments[j]:segments[j + 1]``.
    `begin`: (S + 1,) int64; the postings of segment s are ``begin[s]:begin[s + 1]``.
    `counts`, `bigrams`: (S,) int32; count and length of the postings of a segment.
    `candidate`: (E,) int32.
    `inverse`: (E,) float64; 1 / norm of the posting's caption for the n-gram's order.
    """

    ids: I4
    segments: I8
    begin: I8
    counts: I4
    bigrams: I4
    candidate: I4
    inverse: F8


def postings_of(features: Features, positions: I8, weighting: Weighting) -> Postings:
    """Build the inverted index of N captions, given by rows of `features`, (N,), with repeats."""
    by_length = np.argsort(features.bigrams[positions], kind="stable")
    sizes = np.diff(features.indptr)[positions[by_length]]
    entry, candidate = ranges(features.indptr[positions[by_length]], sizes), np.repeat(by_length, sizes)
    # Stable sorts by length, then by count, then by n-gram.
    order = np.argsort(np.minimum(features.counts[entry], 255).astype(np.uint8), kind="stable")
    shape = len(order), int(weighting.starts[-1])
    order = (
        csr_array((order, features.ids[entry[order]], np.arange(len(order) + 1, dtype=np.int32)), shape=shape)
        .tocsc()
        .data
    )
    entry, candidate = entry[order], candidate[order]
    ids, counts, bigrams = features.ids[entry], features.counts[entry], features.bigrams[positions[candidate]]
    # A segment starts when the n-gram, the count or the length changes.
    begin = np.flatnonzero(np.diff(ids, prepend=-1) | np.diff(counts, prepend=-1) | np.diff(bigrams, prepend=-1))
    first = np.flatnonzero(np.diff(ids[begin], prepend=-1))
    return Postings(
        ids[begin[first]],
        np.append(first, len(begin)),
        np.append(begin, len(ids)),
        counts[begin],
        bigrams[begin],
        candidate.astype(np.int32),
        features.inverse[positions[candidate], orders_of(ids, weighting)],
    )


def score_sets(
    sets: References, positions: I8, pooling: Pooling, features: Features, weighting: Weighting, threads: int
) -> Scores:
    """Score M sets of rows of `features` against N rows, (M, N) float64, with errors of at most 1e-12."""
    postings, out = postings_of(features, positions, weighting), np.empty((len(sets), len(positions)))
    wanted = np.zeros(len(weighting.idf), np.bool_)
    wanted[postings.ids] = weighting.idf[postings.ids] > 0
    # With pooling `max`, single references are scored.
    maximum = int(np.diff(sets.indptr).max(initial=1)) if pooling == "max" else 1

    def work(lo: int, hi: int) -> None:
        chunk = sets.take(np.arange(lo, hi))
        scored = References.single(chunk.rows) if pooling == "max" else chunk
        entries = entries_of(scored, features, weighting, wanted)
        entries.weight[:] /= np.diff(scored.indptr)[entries.owner]
        lists = np.searchsorted(postings.ids, entries.ids)
        # Consecutive entries of a set with the same n-gram are one term.
        begin = np.flatnonzero(np.diff(entries.owner, prepend=-1) | np.diff(lists, prepend=-1))
        scores = np.zeros((len(scored), len(positions)))
        _add_terms(np.append(begin, len(lists)), lists, entries, postings, weighting, scores)
        # Rounding may exceed the maximum by an ulp.
        np.minimum(pool(scores, chunk.indptr, "max") if pooling == "max" else scores, MAX_SCORE, out=out[lo:hi])

    run_chunks(work, len(sets), threads, max(1, min(_SETS, _CELLS // (maximum * max(1, len(positions))))))
    return out


@jit
def _add_terms(begin: I8, lists: I8, entries: SetEntries, postings: Postings, weighting: Weighting, out: F8) -> None:
    """Add all terms to `out`, (M, N). Term t has the entries ``begin[t]:begin[t + 1]``, all with the same list."""
    for t in range(len(begin) - 1):
        scores, j = out[entries.owner[begin[t]]], lists[begin[t]]
        for s in range(postings.segments[j], postings.segments[j + 1]):
            inner = 0.0
            for h in range(begin[t], begin[t + 1]):
                shared = postings.counts[s]
                if weighting.clip and entries.counts[h] < shared:
                    shared = entries.counts[h]
                inner += entries.weight[h] * shared * weighting.gauss[abs(postings.bigrams[s] - entries.bigrams[h])]
            for p in range(postings.begin[s], postings.begin[s + 1]):
                scores[postings.candidate[p]] += inner * postings.inverse[p]
