"""Source `same_image`: relevance 1 for captions of the same image, 0 for all other captions.

Binary losses assume this relevance. It is the baseline of every evaluation.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from typing_extensions import override

from relabel.core.runtime import Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import Corpus, References
from relabel.sources.base import Encoding, Source, SourceParams, SourceSpec
from relabel.sources.relevance import LookupArrays, Relevance
from relabel.store.workdir import Work
from relabel_train.scoring.same_image import same_image


class SameImageParams(SourceParams):
    """Parameters of same_image. All poolings give the same scores."""

    source: Literal["same_image"] = "same_image"
    pooling: Pooling = "max"


class SameImageRelevance(Relevance):
    """Relevance r = 1 if the caption belongs to the image of the references, otherwise 0."""

    @override
    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        return self._mark(references, captions, block=False)

    @override
    def block(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        return self._mark(references, captions, block=True)

    def _mark(self, references: References, captions: Rows, block: bool) -> Scores:
        image = self.corpus.image
        return same_image(image[references.firsts], image[captions], block).astype(np.float64)

    @override
    def write_lookup(self, work: Work) -> LookupArrays:
        return LookupArrays("baseline", "bool", self.failed)

    @override
    def query(self, text: str, captions: Rows) -> Scores:
        """Return zeros, because a new text does not belong to an image."""
        return np.zeros(len(captions))


class SameImage(Source[SameImageParams]):
    """Binary baseline. It does not need an encoding."""

    spec = SourceSpec(
        name="same_image",
        kind="baseline",
        bounds=(0.0, 1.0),
        symmetric=True,
        params=SameImageParams,
        refused={"neighbours": "it only uses image ids", "query": "a new text does not belong to an image"},
    )

    def fingerprint_params(self, corpus: Corpus, rows: range, runtime: Runtime) -> dict[str, Any]:
        """Return only the name of the source; everything else depends on the corpus."""
        return {"source": self.spec.name}

    @override
    def open(self, encoding: Encoding) -> SameImageRelevance:
        return SameImageRelevance(encoding.corpus, encoding.rows, self.params.pooling)
