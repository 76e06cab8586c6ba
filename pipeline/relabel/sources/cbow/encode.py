"""Encoding of cbow: the words of each shard, the vectors of all words, shards of their means, and the index.

Words and their vectors are intermediate files. The file of word vectors is read once, by one worker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.progress import Advance
from relabel.core.runtime import Device
from relabel.corpus import Corpus
from relabel.sources.cosine import StoredType, VectorTasks, make_vector_table, vectors_from_table
from relabel.sources.words.bags import WordBags
from relabel.sources.words.files import coverage, make_vectors_table, vectors_of_words
from relabel.sources.words.shards import VECTORS_FILE, WordTasks
from relabel.sources.words.vectors import WordVectorsFile, read_word_vectors
from relabel.store.workdir import Work

_CAPTIONS = 8192  # captions per product, which bounds the memory for sums


class CbowTasks(WordTasks, VectorTasks):
    """Work on an encoding of cbow.

    Parameters
    ----------
    corpus : Corpus
    rows : range
        Corpus rows to encode.
    rows_per_shard : int
    index : str or None
        Index factory string; None for no index.
    device : "auto", "cpu" or "cuda"
        Device that the index is built on.
    file : WordVectorsFile
    bags : callable
        Splits the captions of a range of rows into weighted words.
    stored : "float32" or "float16"
        Type of the stored values.
    tokenizer : str
        Name of the tokenizer in the manifest.
    """

    def __init__(
        self,
        corpus: Corpus,
        rows: range,
        rows_per_shard: int,
        index: str | None,
        device: Device,
        file: WordVectorsFile,
        bags: Callable[[range], WordBags],
        stored: StoredType,
        tokenizer: str,
    ) -> None:
        super().__init__(corpus, rows, rows_per_shard, index, device)
        self.configure(file, bags, tokenizer)
        self.stored = stored
        self._loaded: tuple[dict[str, int], NDArray[np.float32]] | None = None

    @override
    @property
    def title(self) -> str:
        """Title of the progress bar of the shards."""
        return f"mean word vectors ({self.file.name})"

    @override
    def look_up_vectors(self, counts: Counter[str]) -> pa.Table:
        """Read the vectors of the words that occur."""
        return make_vectors_table(read_word_vectors(self.file, counts))

    def make_shard(self, work: Work, rows: range, advance: Advance) -> pa.Table:
        """Make the columns row and vector; the vector is zeros for a caption without a known word."""
        bags, (index, vectors) = self.read_shard_bags(work, rows), self._vectors(work)
        word_vectors = vectors_of_words(index, vectors, bags.vocabulary)
        unit = np.empty((len(rows), word_vectors.shape[1]), np.float32)
        # Sums are in float64, so they are computed for some captions at a time.
        for a in range(0, len(rows), _CAPTIONS):
            part = slice(a, min(a + _CAPTIONS, len(rows)))
            unit[part] = bags.unit_vectors(word_vectors, part)
            advance(part.stop - part.start)
        return make_vector_table(rows, unit, self.stored)

    def finish(self, work: Work) -> None:
        """Record the word vectors and the coverage in the manifest."""
        super().finish(work)
        zeros = 0
        for column in self.read_column(work, "vector"):
            # A vector of zeros marks a caption without a known word.
            zeros += int((~vectors_from_table(pa.table({"vector": column})).any(axis=1)).sum())
        counts = self.count_words(work)
        table = self.record_vectors(work)
        work.facts |= coverage(counts, set(table["word"].to_pylist()), zeros)
        # The vectors of words are needed only to make the shards.
        work.excluded.add(VECTORS_FILE)

    def _vectors(self, work: Work) -> tuple[dict[str, int], NDArray[np.float32]]:
        """Return the row of each word and the vectors of all words, read once."""
        if self._loaded is None:
            table = pq.read_table(work.folder / VECTORS_FILE)
            self._loaded = {word: i for i, word in enumerate(table["word"].to_pylist())}, vectors_from_table(table)
        return self._loaded
