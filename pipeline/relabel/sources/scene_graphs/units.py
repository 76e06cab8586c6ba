"""The work of spice: captions parsed (see SpiceUnits), then the words of their tuples with METEOR's synonym sets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from relabel.sources.meteor_jar import jar
from relabel.sources.scene_graphs.synonyms import spelled, words_table
from relabel.sources.spice_units import SpiceUnits
from relabel.store.units import Advance, Phase, Unit
from relabel.store.work import Work

WORDS = "words.parquet"
"""Beside the shards: see `words_table`. An encoding is read without METEOR's jar."""


class SceneGraphUnits(SpiceUnits):
    """Work on one encoding of spice: the shards of SpiceUnits, and `words.parquet`."""

    derived: ClassVar[tuple[str, ...]] = (WORDS,)

    def after(self, work: Work) -> Iterator[Phase]:
        """Look words up."""
        yield from super().after(work)
        yield Phase("synonyms", "files", [Unit(WORDS, 1)])

    def other(self, work: Work, unit: Unit, advance: Advance) -> None:
        """Write the words, or see SpiceUnits."""
        if unit.file != WORDS:
            return super().other(work, unit, advance)
        return work.table(WORDS, lambda: self._words(work))

    def _words(self, work: Work) -> pa.Table:
        distinct: set[str] = set()
        for column in self.column(work, "tuples"):
            distinct.update(pc.unique(spelled(column)[2]).to_pylist())
        return words_table(distinct, jar())
