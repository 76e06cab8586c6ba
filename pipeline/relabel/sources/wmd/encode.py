"""The work of wmd: words of each shard, the vectors of all words, shards of bags of known words.

The vectors stay: whoever opens the encoding needs them, and no file of word vectors beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.errors import CheckError
from relabel.core.progress import Advance
from relabel.corpus import Corpus
from relabel.sources.cosine import vectors_from_table
from relabel.sources.wmd.relevance import reach_of
from relabel.sources.wmd.stop_words import StopWords
from relabel.sources.words.bags import WordBags
from relabel.sources.words.files import coverage, make_vectors_table
from relabel.sources.words.shards import VECTORS_FILE, WordTasks
from relabel.sources.words.vectors import WordVectorsFile, read_word_vectors
from relabel.store.workdir import Work


class WmdTasks(WordTasks):
    """Work on one encoding of wmd.

    Parameters
    ----------
    corpus, rows, rows_per_shard
        See ShardTasks.
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
        self.configure(file, bags, tokenizer)
        self.stop_words, self.unit = stop_words, unit
        self._index: dict[str, int] | None = None

    @override
    @property
    @override
    def title(self) -> str:
        return f"bags of words ({self.file.name})"

    def make_shard(self, work: Work, rows: range, advance: Advance) -> pa.Table:
        """Make row int32, words and counts list<int32>: known words by their line in `VECTORS_FILE`, ascending."""
        bags = self.read_shard_bags(work, rows)
        if self._index is None:
            words = pq.read_table(work.folder / VECTORS_FILE, columns=["word"])["word"].to_pylist()
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
        empty = sum(int((pc.list_value_length(c).to_numpy() == 0).sum()) for c in self.read_column(work, "words"))
        counts = self.count_words(work)
        left_out = {word: count for word, count in counts.items() if word in self.stop_words}
        kept = Counter({word: count for word, count in counts.items() if word not in left_out})
        table = self.record_vectors(work)
        work.facts |= {
            "reach": reach_of(vectors_from_table(table)),
            "vocabulary": len(table),
            "stop_words": {"list": self.stop_words.name, "tokens": sum(left_out.values()), "words": len(left_out)},
            **coverage(kept, set(table["word"].to_pylist()), empty),
        }

    @override
    def look_up_vectors(self, counts: Counter[str]) -> pa.Table:
        """Look up the words that are no stop words."""
        wanted = [word for word in counts if word not in self.stop_words]
        found = read_word_vectors(self.file, wanted)
        if not found.index:
            what = f"no word of these captions has a vector: {len(wanted):,} words looked up, such as "
            what += ", ".join(repr(word) for word in wanted[:3]) if wanted else "none, for all are stop words"
            todo = "Take vectors of the captions' language, spelled as the tokenizer spells (lower case for ptb)."
            raise CheckError(what, where=self.file.where, todo=todo)
        return make_vectors_table(replace(found, vectors=unit_length(found.vectors)) if self.unit else found)


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
