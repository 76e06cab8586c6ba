"""Cosine of external vectors: of captions, and of an image and a caption if images have their own vectors."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.runtime import Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import References
from relabel.sources.cosine import VectorRelevance
from relabel.sources.finder import Finder, Search
from relabel.sources.relevance import LookupArrays, positions_in
from relabel.store.arrays import write_array
from relabel.store.workdir import Work


@dataclass(frozen=True, eq=False, repr=False)
class ExternalVectorRelevance(VectorRelevance):
    """Cosine of external vectors. `refs` is the cosine of the references' image and the caption.

    `vectors` holds the vectors of the captions, followed by those of the images. The images have positions beyond the
    encoded rows.

    Attributes
    ----------
    first_image : int or None
        Number of the first image with a vector; None if images have none.
    """

    first_image: int | None = None

    @override
    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        return super().pairs(*self._sides(references, captions, pooling or self.pooling))

    @override
    def block(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        return super().block(*self._sides(references, captions, pooling or self.pooling))

    @override
    def rounded_block(
        self, references: References, captions: Rows, pooling: Pooling | None = None
    ) -> NDArray[np.float32]:
        return super().rounded_block(*self._sides(references, captions, pooling or self.pooling))

    @override
    def finder(self, search: Search, pooling: Pooling | None, runtime: Runtime) -> Finder:
        queries, _, how = self._sides(search.queries, search.candidates, pooling or self.pooling)
        return super().finder(replace(search, queries=queries), how, runtime)

    @override
    def write_lookup(self, work: Work) -> LookupArrays:
        if self.first_image is None:
            return super().write_lookup(work)
        captions = len(self.rows)
        write_array(work, "vectors", np.asarray(self.vectors[:captions], "<f4"))
        write_array(work, "image_vectors", np.asarray(self.vectors[captions:], "<f4"))
        return LookupArrays("image_vectors", "float32", self.failed)

    def _sides(self, references: References, captions: Rows, how: Pooling) -> tuple[References, Rows, Pooling]:
        """Replace sets by their images if the pooling compares these; raise if a row is not encoded."""
        # Rows beyond the captions are images here, so they must not be reachable as captions.
        for rows in (references.rows, captions):
            positions_in(rows, self.rows)
        if how != "refs" or self.first_image is None:
            return references, captions, how
        image: NDArray[np.int32] = self.corpus.image[references.rows[references.indptr[:-1]]]
        # A set becomes a single reference, the image, for which `paired` is the cosine itself.
        return References.single(self.rows.stop + image - self.first_image), captions, "paired"
