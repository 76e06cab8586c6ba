"""Exact blocks for batches of captions: row i is the image of caption i, column j caption j."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.corpus import Corpus, References
from relabel.sources.base import Pooling, Relevance, Rows, Scores, pool
from relabel.sources.vectors import VectorRelevance

Block = NDArray[np.float32]
_CELLS = 1 << 22  # cosines held at once: 32 MiB


def owners(corpus: Corpus, rows: Rows, pooling: Pooling) -> Rows:
    """Name what stands for each caption's image: the caption itself (`paired`), else the image by number."""
    return rows if pooling == "paired" else corpus.image[rows]


def references_of(corpus: Corpus, named: NDArray[np.integer[Any]], pooling: Pooling) -> References:
    """Make the reference sets that `owners` names."""
    if pooling == "paired":
        return References.single(named.astype(np.int32))
    return corpus.references(named.tolist())


def block_of(relevance: Relevance, rows: Rows, pooling: Pooling) -> Block:
    """Score a batch.

    Returns
    -------
    (B, B) float32
        What `Relevance.pairs` gives for each pair, rounded once: the same bits whatever threads and BLAS do.
    """
    references = references_of(relevance.corpus, owners(relevance.corpus, rows, pooling), pooling)
    if isinstance(relevance, VectorRelevance):
        return _cosines(relevance, references, rows, pooling)
    return relevance.block(references, rows, pooling).astype(np.float32)


def _cosines(relevance: VectorRelevance, references: References, rows: Rows, pooling: Pooling) -> Block:
    """Round cosines as `pairs` would.

    A BLAS adds in an order of its own, so float64 sums differ in their last bits. Of those only a sum that stands
    between two float32 can come to be rounded otherwise: it is asked of `pairs`, alone.
    """
    first, count = relevance.rows.start, len(references)
    right = relevance.vectors[rows - first].astype(np.float64).T
    slack = 4 * len(right) * 2.0**-53  # twice what two orders of summing products of unit vectors can differ by
    found = np.empty((count, len(rows)), np.float32)
    step = max(1, _CELLS * count // max(1, len(references.rows) * len(rows)))
    for a in range(0, count, step):
        some = references.take(np.arange(a, min(a + step, count)))
        cosines = relevance.vectors[some.rows - first].astype(np.float64) @ right
        scores: Scores = pool(cosines, some.indptr, pooling)
        part = found[a : a + step]
        part[:] = scores
        unsure = (scores - slack).astype(np.float32) != (scores + slack).astype(np.float32)
        for i, j in np.argwhere(unsure & ~np.isnan(scores)).tolist():
            part[i, j] = relevance.pairs(some.take(np.array([i])), rows[j : j + 1], pooling)[0]
    return found
