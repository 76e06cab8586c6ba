"""The work of cbow: words of each shard, the vectors of all words, shards of their means, the index.

Words and their vectors are files that only the work needs: a file of word vectors is read once, whoever makes shards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from typing_extensions import override

from relabel.corpus import Corpus
from relabel.sources.cosine import StoredType, VectorUnits, vector_table, vectors_of
from relabel.sources.words.bags import WordBags
from relabel.sources.words.files import coverage, rows_of, vectors_table
from relabel.sources.words.shards import VECTORS, WordUnits
from relabel.sources.words.vectors import WordVectorsFile, read_word_vectors
from relabel.store.tasks import Advance
from relabel.store.workdir import Work

_CAPTIONS = 8192  # captions whose means are computed at once


class CbowUnits(WordUnits, VectorUnits):
    """Work on one encoding of cbow.

    Parameters
    ----------
    corpus, rows, rows_per_shard, index
        See VectorUnits.
    file : WordVectorsFile
    bags : callable
        Cuts the captions of some rows into weighted words.
    stored
        See CbowParams.
    tokenizer : str
        What the manifest calls the tokenizer.
    """

    def __init__(
        self,
        corpus: Corpus,
        rows: range,
        rows_per_shard: int,
        index: str | None,
        file: WordVectorsFile,
        bags: Callable[[range], WordBags],
        stored: StoredType,
        tokenizer: str,
    ) -> None:
        super().__init__(corpus, rows, rows_per_shard, index)
        self.take(file, bags, tokenizer)
        self.stored = stored
        self._read: tuple[dict[str, int], NDArray[np.float32]] | None = None

    @override
    @property
    def title(self) -> str:
        return f"mean word vectors ({self.file.name})"

    @override
    def known(self, counts: Counter[str]) -> pa.Table:
        return vectors_table(read_word_vectors(self.file, counts))

    def shard(self, work: Work, rows: range, advance: Advance) -> pa.Table:
        """Make row, vector: zeros for a caption without a known word."""
        bags, (index, vectors) = self.bags(work, rows), self._vectors(work)
        known = rows_of(index, vectors, bags.vocabulary)
        unit = np.empty((len(rows), known.shape[1]), np.float32)
        for a in range(0, len(rows), _CAPTIONS):
            some = slice(a, min(a + _CAPTIONS, len(rows)))
            unit[some] = bags.unit_vectors(known, some)
            advance(some.stop - some.start)
        return vector_table(rows, unit, self.stored)

    def finish(self, work: Work) -> None:
        """Note the facts."""
        super().finish(work)
        zeros = 0
        for column in self.column(work, "vector"):
            zeros += int((~vectors_of(pa.table({"vector": column})).any(axis=1)).sum())
        counts = self.counts(work)
        table = self.note(work)
        work.facts |= coverage(counts, set(table["word"].to_pylist()), zeros)
        work.excluded.add(VECTORS)

    def _vectors(self, work: Work) -> tuple[dict[str, int], NDArray[np.float32]]:
        """Read the vectors of all words, once."""
        if self._read is None:
            table = pq.read_table(work.folder / VECTORS)
            self._read = {word: i for i, word in enumerate(table["word"].to_pylist())}, vectors_of(table)
        return self._read
