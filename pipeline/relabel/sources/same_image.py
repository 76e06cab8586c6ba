"""same_image: 1 for a caption of the image itself, 0 for any other. What every binary loss assumes; the baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from relabel.core.runtime import Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import Corpus, References
from relabel.sources.base import OpenEncoding, Source, SourceParams, SourceSpec
from relabel.sources.relevance import LookupArrays, Relevance
from relabel.sources.shards import NoTasks
from relabel.store.workdir import Work


class SameImageParams(SourceParams):
    """Parameters of same_image: none of its own. All poolings give the same number."""

    source: Literal["same_image"] = "same_image"
    pooling: Pooling = "max"


@dataclass(frozen=True)
class SameImageRelevance(Relevance):
    """r = [the caption's image is the image of the references]."""

    corpus: Corpus
    rows: range
    pooling: Pooling

    @override
    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        image = self.corpus.image
        owner = image[references.rows[references.indptr[:-1]]]
        return np.asarray(owner == image[captions], np.float64)

    @override
    def block(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        image = self.corpus.image
        owner = image[references.rows[references.indptr[:-1]]]
        return np.asarray(owner[:, None] == image[captions][None], np.float64)

    @override
    def write_lookup(self, work: Work) -> LookupArrays:
        return LookupArrays("baseline", "bool", self.failed)

    @override
    def query(self, text: str, captions: Rows) -> Scores:
        """Return zeros: a new text belongs to no image."""
        return np.zeros(len(captions))


class SameImage(Source[SameImageParams]):
    """The binary baseline."""

    spec = SourceSpec(
        name="same_image",
        kind="baseline",
        bounds=(0.0, 1.0),
        symmetric=True,
        version=1,
        params=SameImageParams,
        neighbours_blocker="it knows image ids alone",
    )

    @override
    def query_blocker(self) -> str | None:
        return "a new text belongs to no image"

    def fingerprint_params(self, corpus: Corpus, rows: range, runtime: Runtime) -> dict[str, Any]:
        """Nothing but the corpus decides."""
        return {"source": self.spec.name}

    def tasks(self, corpus: Corpus, rows: range, rows_per_shard: int, runtime: Runtime) -> NoTasks:
        """Nothing to do: image ids are in the corpus."""
        return NoTasks()

    @override
    def open(self, encoding: OpenEncoding) -> SameImageRelevance:
        return SameImageRelevance(encoding.corpus, encoding.rows, self.params.pooling)
