"""Cosine of given vectors: of captions, and of an image with a caption where images have vectors of their own."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from relabel.corpus import References
from relabel.neighbours.base import Finder, Search
from relabel.runtime import Runtime
from relabel.sources.base import Pooling, Rows, Scores
from relabel.sources.vectors import VectorRelevance


@dataclass(frozen=True, eq=False)
class GivenRelevance(VectorRelevance):
    """See VectorRelevance. `refs` is the cosine of the vector of the references' image and the caption's.

    `vectors` holds those of the captions, then those of the images, which stand for rows beyond the encoded ones.

    Attributes
    ----------
    first_image : int or None
        Number of the first image that has a vector; None where none has.
    """

    first_image: int | None = None

    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        """See Relevance.pairs."""
        return super().pairs(*self._sides(references, captions, pooling or self.pooling))

    def block(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        """See Relevance.block."""
        return super().block(*self._sides(references, captions, pooling or self.pooling))

    def finder(self, search: Search, pooling: Pooling | None, runtime: Runtime) -> Finder:
        """See Relevance.finder."""
        queries, _, how = self._sides(search.queries, search.candidates, pooling or self.pooling)
        return super().finder(replace(search, queries=queries), how, runtime)

    def _sides(self, references: References, captions: Rows, how: Pooling) -> tuple[References, Rows, Pooling]:
        """Turn sets into their images where they count; refuse rows that are not encoded."""
        for rows in (references.rows, captions):
            if len(rows) and not self.rows.start <= rows.min() <= rows.max() < self.rows.stop:
                raise IndexError(f"rows {rows.min()} to {rows.max()} are not all among the encoded {self.rows}")
        if how != "refs" or self.first_image is None:
            return references, captions, how
        image: NDArray[np.int32] = self.corpus.image[references.rows[references.indptr[:-1]]]
        return References.single(self.rows.stop + image - self.first_image), captions, "paired"
