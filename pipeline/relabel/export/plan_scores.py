"""Exact blocks for batches of captions: row i is the image of caption i, column j caption j."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.corpus import Corpus, References
from relabel.sources.base import Pooling, Relevance, Rows, Scores, pool
from relabel.sources.vectors import VectorRelevance

Block = NDArray[np.float32]


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
    left, right = (relevance.vectors[r - relevance.rows.start].astype(np.float64) for r in (references.rows, rows))
    scores: Scores = pool(left @ right.T, references.indptr, pooling)
    slack = 4 * left.shape[1] * 2.0**-53  # twice what two orders of summing products of unit vectors can differ by
    found = scores.astype(np.float32)
    for i, j in np.argwhere((scores - slack).astype(np.float32) != (scores + slack).astype(np.float32)).tolist():
        if not np.isnan(scores[i, j]):
            found[i, j] = relevance.pairs(references.take(np.array([i])), rows[j : j + 1], pooling)[0]
    return found
