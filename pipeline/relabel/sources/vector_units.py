"""What the work of the vectors sources shares: a FAISS index beside the shards, as a unit of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from relabel.corpus import Corpus
from relabel.sources.shards import ShardUnits
from relabel.sources.vectors import INDEX, write_index
from relabel.store.units import Advance, Phase, Unit
from relabel.store.work import Work


class VectorUnits(ShardUnits):
    """Work on shards of unit vectors (see `vector_table`).

    Parameters
    ----------
    corpus, rows, rows_per_shard
        See ShardUnits.
    index : str or None
        A faiss index factory string; None for no index.
    """

    derived: ClassVar[tuple[str, ...]] = (INDEX,)
    plain: ClassVar[bool] = True

    def __init__(self, corpus: Corpus, rows: range, rows_per_shard: int, index: str | None) -> None:
        super().__init__(corpus, rows, rows_per_shard)
        self.index = index

    def after(self, work: Work) -> Iterator[Phase]:
        """Index all vectors."""
        if self.index is not None:
            yield Phase(f"index ({self.index})", "captions", [Unit(INDEX, len(self.rows))])

    def other(self, work: Work, unit: Unit, advance: Advance) -> None:
        """Make the index."""
        if unit.file != INDEX:
            return super().other(work, unit, advance)
        return write_index(work, self.index, advance)
