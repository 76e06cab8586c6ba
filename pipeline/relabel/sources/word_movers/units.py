"""The work of wmd: words of each shard, the vectors of all words, shards of bags of known words.

The vectors stay: whoever opens the encoding needs them, and no file of word vectors beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.corpus import Corpus
from relabel.errors import CheckError
from relabel.sources.shards import ShardUnits
from relabel.sources.vectors import vectors_of
from relabel.sources.word_bags import WordBags
from relabel.sources.word_movers.relevance import reach_of
from relabel.sources.word_movers.stop_words import StopWords
from relabel.sources.word_tables import bags_table, coverage, read_bags, value_counts, vectors_table
from relabel.sources.word_vectors import WordVectorsFile, read_word_vectors
from relabel.store.units import Advance, Phase, Unit
from relabel.store.work import Work

VECTORS = "words.parquet"
"""The words that have a vector, in the order of their file, and their vectors."""


class WmdUnits(ShardUnits):
    """Work on one encoding of wmd.

    Parameters
    ----------
    corpus, rows, rows_per_shard
        See ShardUnits.
    file : WordVectorsFile
    bags : callable
        Cuts the captions of some rows into words.
    stop_words : StopWords
    tokenizer : str
        What the manifest calls the tokenizer.
    unit : bool
        Whether word vectors are scaled to length 1.
    """

    def __init__(
        self,
        corpus: Corpus,
        rows: range,
        rows_per_shard: int,
        file: WordVectorsFile,
        bags: Callable[[range], WordBags],
        stop_words: StopWords,
        tokenizer: str,
        unit: bool,
    ) -> None:
        super().__init__(corpus, rows, rows_per_shard)
        self.file, self.bags, self.stop_words, self.tokenizer = file, bags, stop_words, tokenizer
        self.unit = unit
        self.words = {name.replace("part-", "words-"): name for name in self.parts}
        self._index: dict[str, int] | None = None

    @property
    def title(self) -> str:
        """See ShardUnits.title."""
        return f"bags of words ({self.file.name})"

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
            work.table(VECTORS, lambda: self._vectors(self._counts(work)))
        else:
            return super().other(work, unit, advance)
        return None

    def shard(self, work: Work, rows: range, advance: Advance) -> pa.Table:
        """Make row int32, words and counts list<int32>: known words by their line in `VECTORS`, ascending."""
        name = next(words for words, part in self.words.items() if self.parts[part] == rows)
        bags = read_bags(work.folder / name)
        if self._index is None:
            words = pq.read_table(work.folder / VECTORS, columns=["word"])["word"].to_pylist()
            self._index = {word: i for i, word in enumerate(words)}
        known = np.array([self._index.get(w, -1) for w in bags.vocabulary], np.int64)
        indptr, ids, counts = counted(bags.indptr, known[bags.words])
        offsets = pa.array(indptr.astype(np.int32))
        return pa.table(
            {
                "row": np.arange(rows.start, rows.stop, dtype=np.int32),
                "words": pa.ListArray.from_arrays(offsets, pa.array(ids.astype(np.int32))),
                "counts": pa.ListArray.from_arrays(offsets, pa.array(counts.astype(np.int32))),
            }
        )

    def finish(self, work: Work) -> None:
        """Note the facts."""
        super().finish(work)
        empty = sum(int((pc.list_value_length(c).to_numpy() == 0).sum()) for c in self.column(work, "words"))
        table = pq.read_table(work.folder / VECTORS)
        said = {name.decode(): int(value) for name, value in table.schema.metadata.items()}
        counts = self._counts(work)
        left_out = {word: count for word, count in counts.items() if word in self.stop_words}
        kept = Counter({word: count for word, count in counts.items() if word not in left_out})
        work.runtime["vectors"] = self.file.where
        work.facts |= {
            "tokenizer": self.tokenizer,
            "vectors": {"name": self.file.name, "words": said["words"], "duplicates": said["duplicates"]},
            "width": said["width"],
            "reach": reach_of(vectors_of(table)),
            "vocabulary": len(table),
            "stop_words": {"list": self.stop_words.name, "tokens": sum(left_out.values()), "words": len(left_out)},
            **coverage(kept, set(table["word"].to_pylist()), empty),
        }
        for name in self.words:
            work.drop(name)

    def _counts(self, work: Work) -> Counter[str]:
        """How often each word is there, in the order in which they come."""
        counts: Counter[str] = Counter()
        for name in self.words:
            for word, count in value_counts(
                pc.list_flatten(pq.read_table(work.folder / name, columns=["words"])["words"])
            ):
                counts[word] += count
        return counts

    def _vectors(self, counts: Counter[str]) -> pa.Table:
        wanted = [word for word in counts if word not in self.stop_words]
        found = read_word_vectors(self.file, wanted)
        if not found.index:
            what = f"no word of these captions has a vector: {len(wanted):,} words looked up, such as "
            what += ", ".join(repr(word) for word in wanted[:3]) if wanted else "none, for all are stop words"
            todo = "Take vectors of the captions' language, spelled as the tokenizer spells (lower case for ptb)."
            raise CheckError(what, where=self.file.where, todo=todo)
        return vectors_table(replace(found, vectors=unit_length(found.vectors)) if self.unit else found)


def unit_length(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale (V, D) vectors to length 1; zeros stay zeros."""
    wide = vectors.astype(np.float64)
    length = np.linalg.norm(wide, axis=1, keepdims=True)
    unit: NDArray[np.float32] = np.divide(wide, length, out=np.zeros_like(wide), where=length > 0).astype(np.float32)
    return unit


def counted(indptr: NDArray[Any], words: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Count the distinct words of each text; negative words are left out.

    Returns
    -------
    indptr, words, counts : (N + 1,), (T,) and (T,) int64
        Words ascending.
    """
    text = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))[words >= 0]
    base = int(words.max(initial=0)) + 1
    keys, counts = np.unique(text * base + words[words >= 0], return_counts=True)
    bounds = np.searchsorted(keys, np.arange(len(indptr)) * base)
    return bounds.astype(np.int64), keys % base, counts.astype(np.int64)
