"""same_image: 1 for a caption of the image itself, 0 for any other. What every binary loss assumes; the baseline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from relabel.corpus import Corpus, References
from relabel.runtime import Runtime
from relabel.sources.base import NO_PARTS, Kind, Pooling, Relevance, Rows, Scores, Source, SourceParams
from relabel.store.manifest import Manifest
from relabel.store.units import Advance, Phase, Unit, Units
from relabel.store.work import Work


class SameImageParams(SourceParams):
    """Parameters of same_image: none of its own. All poolings give the same number."""

    source: Literal["same_image"] = "same_image"
    pooling: Pooling = "max"


class NoUnits(Units):
    """An encoding without files."""

    def phases(self, work: Work) -> Iterator[Phase]:
        """None."""
        yield from ()

    def make(self, work: Work, unit: Unit, advance: Advance) -> None:
        """There is no unit to make."""
        raise NotImplementedError(unit.file)


@dataclass(frozen=True)
class SameImageRelevance(Relevance):
    """r = [the caption's image is the image of the references]."""

    corpus: Corpus
    rows: range
    pooling: Pooling

    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        """See Relevance.pairs."""
        image = self.corpus.image
        owner = image[references.rows[references.indptr[:-1]]]
        return np.asarray(owner == image[captions], np.float64)

    def block(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        """See Relevance.block."""
        image = self.corpus.image
        owner = image[references.rows[references.indptr[:-1]]]
        return np.asarray(owner[:, None] == image[captions][None], np.float64)

    def query(self, text: str, captions: Rows) -> Scores:
        """Return zeros: a new text belongs to no image."""
        return np.zeros(len(captions))


class SameImage(Source[SameImageParams]):
    """The binary baseline."""

    name: ClassVar[str] = "same_image"
    kind: ClassVar[Kind] = "baseline"
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)
    symmetric: ClassVar[bool] = True
    version: ClassVar[int] = 1
    no_neighbours: ClassVar[str | None] = "it knows image ids alone"
    params_model: ClassVar[type[SourceParams]] = SameImageParams

    def semantic(self, corpus: Corpus, rows: range, runtime: Runtime) -> dict[str, Any]:
        """Nothing but the corpus decides."""
        return {"source": self.name}

    def units(self, corpus: Corpus, rows: range, rows_per_shard: int, runtime: Runtime) -> NoUnits:
        """Nothing to do: image ids are in the corpus."""
        return NoUnits()

    def open(
        self,
        corpus: Corpus,
        folder: Path,
        manifest: Manifest,
        runtime: Runtime,
        parts: Mapping[str, Relevance] = NO_PARTS,
    ) -> SameImageRelevance:
        """See Source.open."""
        return SameImageRelevance(corpus, range(*manifest.facts["rows"]), self.params.pooling)
