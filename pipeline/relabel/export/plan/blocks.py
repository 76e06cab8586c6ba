"""Exact blocks for batches of captions: row i is the image of caption i, column j caption j."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.core.types import Pooling, Rows
from relabel.corpus import Corpus, References
from relabel.sources.relevance import Relevance

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
    return relevance.rounded_block(references, rows, pooling)
