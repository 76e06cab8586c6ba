"""Relevance of an opened encoding: the scores of reference sets and captions, and optional capabilities.

A subclass implements `Relevance.pairs` and `Relevance.query`. All other methods have a default. It is either slower
than a specialised implementation (`block`, `set_pairs`) or states that the capability is absent (`finder`,
`write_lookup`). `relabel.sources` shows a complete source.
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

_BLOCK = 1 << 18  # pairs of single captions that `block_of_pairs` scores in one call of `pairs`


@dataclass(frozen=True)
class LookupArrays:
    """Description of the arrays that a label has written into a lookup.

    Attributes
    ----------
    kind : str
        A kind of `relabel_train.lookup.format`.
    dtype : str
        Type of the stored values.
    failed : (F,) int32
        Corpus rows without an encoding.
    sizes : dict of str to int
        Sizes that the kind needs.
    params : dict
        Further entries of `params` in `lookup.json`.
    """

    kind: str
    dtype: str
    failed: Rows
    sizes: dict[str, int] = field(default_factory=dict)
    params: dict[str, Any] = field(default_factory=dict)


def positions_in(rows: Rows, encoded: range) -> NDArray[np.int64]:
    """Return the positions of corpus rows, (N,), within a range of encoded rows; IndexError for a row beyond it.

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
    """An opened encoding. It scores any captions of its corpus.

    Attributes
    ----------
    corpus : Corpus
    rows : range
        Encoded corpus rows. Any other row in a call is an IndexError.
    pooling : Pooling
        Default of the calls that take a pooling.
    failed : (F,) int32
        Corpus rows that could not be encoded, ascending. The relevance of a pair is NaN if its caption or one of the
        references that count has failed. A failed row does not have neighbours and is not a neighbour of any row.
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

        These scores define the source: `block` approximates them, and neighbours are ordered by them. The score of a
        pair must not depend on the other pairs of the call, nor on threads or device.

        Parameters
        ----------
        references : References
            P sets of corpus rows, none of them empty.
        captions : (P,) int32
            Corpus rows of the candidates.
        pooling : Pooling, optional
            Overrides the default pooling.

        Returns
        -------
        (P,) float64, in the source's range.
        """

    def block(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        """Score each of M reference sets against each of N captions.

        Returns
        -------
        (M, N) float64, within `block_error` of `pairs` on each pair.
        """
        return block_of_pairs(self, references, captions, pooling)

    @property
    def block_error(self) -> float:
        """Bound of the difference between `block` and `pairs`."""
        return 1e-6

    def set_pairs(self, references: References, others: References, pooling: Pooling | None = None) -> Scores:
        """Score P pairs of two reference sets, for example of two images.

        Each caption of the second set is scored against the first set. The scores are then pooled over the second set
        as over references, and by their mean for `set`. A source with its own measure of two sets overrides this
        method.

        Parameters
        ----------
        references, others : References
            P sets each, none of them empty.
        pooling : Pooling, optional

        Returns
        -------
        (P,) float64
        """
        how = pooling or self.pooling
        if how == "first":
            others = others.first()
        each = references.take(np.repeat(np.arange(len(others)), others.sizes))
        return others.pool(self.pairs(each, others.rows, how), "mean" if how == "set" else how)

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
        """Return a finder of exact neighbours; UsageError for a source of pairs or of image ids only."""
        raise UsageError(
            f"{type(self).__name__} has no exact neighbours",
            todo="Use a source of vectors or features, such as sbert or cider.",
        )

    def positions(self, rows: Rows) -> NDArray[np.int64]:
        """Return the positions of corpus rows among the encoded rows. Raises IndexError if a row is not encoded."""
        return positions_in(rows, self.rows)

    def set_positions(self, references: References, pooling: Pooling) -> References:
        """Return reference sets as positions among the encoded rows; `first` keeps the first caption of each."""
        sets = references.first() if pooling == "first" else references
        return References(sets.indptr, self.positions(sets.rows).astype(np.int32))

    def unit_vectors(self) -> NDArray[np.float32] | None:
        """Return vectors that have the relevance as cosine, (len(rows), D) float32; None for other sources."""
        return None

    def write_lookup(self, work: Work) -> LookupArrays:
        """Write the arrays from which a lookup computes the same relevance; UsageError if this kind has no lookup."""
        raise UsageError("it scores pair by pair", todo="Run `relabel export batches` instead.")

    def pairs_to_score(self, references: References, captions: Rows, total: int) -> int:
        """Estimate the number of pairs, of `total` pairs like the given P, that are scored one by one."""
        return total


def block_of_pairs(relevance: Relevance, references: References, captions: Rows, pooling: Pooling | None) -> Scores:
    """Score each of M reference sets against each of N captions by `pairs`: (M, N) float64."""
    out = np.empty((len(references), len(captions)))
    # The size of the biggest set bounds the number of single captions that one pair expands to.
    largest = int(np.diff(references.indptr).max(initial=1))
    step = max(1, _BLOCK // max(1, len(captions) * largest))
    for a in range(0, len(references), step):
        sets = np.arange(a, min(a + step, len(references)))
        repeated = references.take(np.repeat(sets, len(captions)))
        scores = relevance.pairs(repeated, np.tile(captions, len(sets)), pooling)
        out[a : a + step] = scores.reshape(len(sets), len(captions))
    return out


def block_of_sets(relevance: Relevance, references: References, others: References, pooling: Pooling | None) -> Scores:
    """Score each of M reference sets against each of N others by `set_pairs`: (M, N) float64."""
    repeated = (references.take(np.full(len(others), i)) for i in range(len(references)))
    return np.stack([relevance.set_pairs(one, others, pooling) for one in repeated])
