"""Relevance of an opened encoding: scores of reference sets and captions, and optional capabilities.

A subclass implements `Relevance.pairs` and `Relevance.query`. All other methods have a default that is slower than a
specialised implementation (`block`, `set_pairs`) or raises because the capability is absent (`finder`, `write_lookup`).
`relabel.sources` describes the classes and methods of a source.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.core.errors import UsageError
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import Corpus, References
from relabel.sources.finder import Finder, Search
from relabel.store.workdir import Work

_BLOCK = 1 << 18  # maximum number of pairs of single captions per call of `pairs` in `block_of_pairs`


@dataclass(frozen=True)
class LookupArrays:
    """Description of the arrays that a label wrote to a lookup.

    Attributes
    ----------
    kind : str
        A kind of `relabel_train.lookup.format`.
    dtype : str
        dtype of the stored values.
    failed : (F,) int32
        Corpus rows without an encoding.
    sizes : dict of str to int
        Sizes required by the kind.
    params : dict
        Additional entries of `params` in `lookup.json`.
    """

    kind: str
    dtype: str
    failed: Rows
    sizes: dict[str, int] = field(default_factory=dict)
    params: dict[str, Any] = field(default_factory=dict)


def positions_in(rows: Rows, encoded: range) -> NDArray[np.int64]:
    """Return the positions of corpus rows, (N,), in a range of encoded rows. Raises IndexError for other rows.

    Examples
    --------
    >>> import numpy as np
    >>> from relabel.sources.relevance import positions_in
    >>> positions_in(np.array([12, 10]), range(10, 20))
    array([2, 0])
    """
    positions = np.asarray(rows, np.int64) - encoded.start
    if len(positions) and not 0 <= positions.min() <= positions.max() < len(encoded):
        first, last = positions.min() + encoded.start, positions.max() + encoded.start
        raise IndexError(f"rows {first} to {last} are not all among the encoded rows {encoded.start} to {encoded.stop}")
    return positions


@dataclass(frozen=True, eq=False, repr=False)
class Relevance(ABC):
    """An opened encoding that scores captions of its corpus.

    Attributes
    ----------
    corpus : Corpus
    rows : range
        Encoded corpus rows. Methods raise IndexError for other rows.
    pooling : Pooling
        Default pooling of the methods.
    failed : (F,) int32
        Ascending corpus rows that could not be encoded. The relevance of a pair is NaN if its caption, or a reference
        that the pooling uses, has failed. A failed row does not have neighbours and is not a neighbour of other rows.
    """

    corpus: Corpus
    rows: range
    pooling: Pooling
    failed: Rows = field(default_factory=lambda: np.empty(0, np.int32), kw_only=True)

    def __repr__(self) -> str:
        failed = f", {len(self.failed):,} failed" if len(self.failed) else ""
        rows = f"rows {self.rows.start:,} to {self.rows.stop - 1:,}"
        return f"<{type(self).__name__}: {len(self.rows):,} captions ({rows}){failed}, pooling {self.pooling}>"

    @abstractmethod
    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        """Score P pairs of a reference set and a caption.

        These are the exact scores of the source. `block` approximates them, and neighbours are sorted by them. The
        score of a pair must not depend on the other pairs of the call, on threads or on the device.

        Parameters
        ----------
        references : References
            P non-empty sets of corpus rows.
        captions : (P,) int32
            Corpus rows of the candidates.
        pooling : Pooling, optional
            Overrides the default pooling.

        Returns
        -------
        (P,) float64, in the range of the source.
        """

    def block(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        """Score each of M reference sets against each of N captions.

        Returns
        -------
        (M, N) float64. Each score differs from that of `pairs` by at most `block_error`.
        """
        return block_of_pairs(self, references, captions, pooling)

    @property
    def block_error(self) -> float:
        """Upper bound on the difference between `block` and `pairs`."""
        return 1e-6

    def set_pairs(self, references: References, others: References, pooling: Pooling | None = None) -> Scores:
        """Score P pairs of two reference sets, for example of two images.

        Each caption of the second set is scored against the first set. The scores are then pooled over the second set,
        by the same pooling or, for `set`, by their mean. Sources with their own measure of two sets override this
        method.

        Parameters
        ----------
        references, others : References
            P non-empty sets each.
        pooling : Pooling, optional

        Returns
        -------
        (P,) float64
        """
        pooling = pooling or self.pooling
        if pooling == "first":
            others = others.first()
        each = references.take(np.repeat(np.arange(len(others)), others.sizes))
        return others.pool(self.pairs(each, others.rows, pooling), "mean" if pooling == "set" else pooling)

    @abstractmethod
    def query(self, text: str, captions: Rows) -> Scores:
        """Score N captions against one new text as the only reference.

        Parameters
        ----------
        text : str
            Raw text.
        captions : (N,) int32
            Corpus rows.
        """

    def finder(self, search: Search, pooling: Pooling | None, runtime: Runtime) -> Finder:
        """Return a finder of exact neighbours. Raises UsageError if the source does not support neighbours."""
        raise UsageError(
            f"{type(self).__name__} has no exact neighbours",
            hint="Use a source of vectors or features, such as sbert or cider.",
        )

    def positions(self, rows: Rows) -> NDArray[np.int64]:
        """Return the positions of corpus rows in the encoded rows. Raises IndexError if a row is not encoded."""
        return positions_in(rows, self.rows)

    def set_positions(self, references: References, pooling: Pooling) -> References:
        """Return reference sets as positions in the encoded rows. `first` keeps only the first caption of each set."""
        sets = references.first() if pooling == "first" else references
        return References(sets.indptr, self.positions(sets.rows).astype(np.int32))

    def unit_vectors(self) -> NDArray[np.float32] | None:
        """Return unit vectors with the relevance as their cosine, (len(rows), D) float32; None for other sources."""
        return None

    def write_lookup(self, work: Work) -> LookupArrays:
        """Write the arrays of a lookup. Raises UsageError if the source does not support lookups."""
        raise UsageError("it scores pair by pair", hint="Run `relabel export batches` instead.")

    def pairs_to_score(self, references: References, captions: Rows, total: int) -> int:
        """Estimate how many of `total` pairs are scored one by one, from a sample of P pairs."""
        return total


def block_of_pairs(relevance: Relevance, references: References, captions: Rows, pooling: Pooling | None) -> Scores:
    """Score each of M reference sets against each of N captions with `pairs`: (M, N) float64."""
    out = np.empty((len(references), len(captions)))
    # A pair expands to at most `maximum` pairs of single captions.
    maximum = int(np.diff(references.indptr).max(initial=1))
    step = max(1, _BLOCK // max(1, len(captions) * maximum))
    for a in range(0, len(references), step):
        sets = np.arange(a, min(a + step, len(references)))
        repeated = references.take(np.repeat(sets, len(captions)))
        scores = relevance.pairs(repeated, np.tile(captions, len(sets)), pooling)
        out[a : a + step] = scores.reshape(len(sets), len(captions))
    return out


def block_of_sets(relevance: Relevance, references: References, others: References, pooling: Pooling | None) -> Scores:
    """Score each of M reference sets against each of N other sets with `set_pairs`: (M, N) float64."""
    repeated = (references.take(np.full(len(others), i)) for i in range(len(references)))
    return np.stack([relevance.set_pairs(sets, others, pooling) for sets in repeated])
