"""The work of cbow: words of each shard, the vectors of all words, shards of their means, the index.

Words and their vectors are files that only the work needs: a file of word vectors is read once, whoever makes shards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.corpus import Corpus
from relabel.sources.vector_units import VectorUnits
from relabel.sources.vectors import StoredType, vector_table, vectors_of
from relabel.sources.word_bags import WordBags
from relabel.sources.word_tables import bags_table, coverage, read_bags, rows_of, value_counts, vectors_table
from relabel.sources.word_vectors import WordVectorsFile, read_word_vectors
from relabel.store.units import Advance, Phase, Unit
from relabel.store.work import Work

VECTORS = "words.parquet"
"""The words that have a vector, and their vectors."""
_CAPTIONS = 8192  # captions whose means are computed at once


class CbowUnits(VectorUnits):
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
        self.file, self.bags, self.stored, self.tokenizer = file, bags, stored, tokenizer
        self._read: tuple[dict[str, int], NDArray[np.float32]] | None = None
        self.words = {name.replace("part-", "words-"): name for name in self.parts}

    @property
    def title(self) -> str:
        """See ShardUnits.title."""
        return f"mean word vectors ({self.file.name})"

    def before(self, work: Work) -> Iterator[Phase]:
        """Cut captions into words, then read the vectors of all words."""
        units = [Unit(words, len(self.parts[part])) for words, part in self.words.items()]
        yield Phase(f"words ({self.tokenizer})", "captions", units)
        yield Phase(f"word vectors ({self.file.name})", "files", [Unit(VECTORS, 1)])

    def other(self, work: Work, unit: Unit, advance: Advance) -> None:
        """Make the words of a shard, or the vectors of all words."""
        if unit.file in self.words:
            work.table(unit.file, lambda: bags_table(self.bags(self.parts[self.words[unit.file]])))
        elif unit.file == VECTORS:
            work.table(VECTORS, lambda: vectors_table(read_word_vectors(self.file, self._counts(work))))
        else:
            return super().other(work, unit, advance)
        return None

    def shard(self, work: Work, rows: range, advance: Advance) -> pa.Table:
        """Make row, vector: zeros for a caption without a known word."""
        name = next(words for words, part in self.words.items() if self.parts[part] == rows)
        bags, (index, vectors) = read_bags(work.folder / name), self._vectors(work)
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
        table = pq.read_table(work.folder / VECTORS)
        said = {name.decode(): int(value) for name, value in table.schema.metadata.items()}
        work.runtime["vectors"] = self.file.where
        work.facts |= {
            "tokenizer": self.tokenizer,
            "vectors": {"name": self.file.name, "words": said["words"], "duplicates": said["duplicates"]},
            "width": said["width"],
            **coverage(self._counts(work), set(table["word"].to_pylist()), zeros),
        }
        for name in (*self.words, VECTORS):
            work.drop(name)

    def _counts(self, work: Work) -> Counter[str]:
        """How often each word is there, in the order in which they come."""
        counts: Counter[str] = Counter()
        for name in self.words:
            words = pq.read_table(work.folder / name, columns=["words"])["words"]
            for word, count in value_counts(pc.list_flatten(words)):
                counts[word] += count
        return counts

    def _vectors(self, work: Work) -> tuple[dict[str, int], NDArray[np.float32]]:
        """Read the vectors of all words, once."""
        if self._read is None:
            table = pq.read_table(work.folder / VECTORS)
            self._read = {word: i for i, word in enumerate(table["word"].to_pylist())}, vectors_of(table)
        return self._read
