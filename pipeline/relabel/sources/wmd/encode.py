"""Encoding of wmd: words of each shard, then the vectors of all words, then shards of bags of words that have a vector.

The vectors are part of the encoding, so opening it does not need the file of word vectors.
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
        Splits the captions of a range of rows into words.
    stop_words : StopWords
    tokenizer : str
        Name of the tokenizer in the manifest.
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

    @property
    @override
    def title(self) -> str:
        return f"bags of words ({self.file.name})"

    def make_shard(self, work: Work, rows: range, advance: Advance) -> pa.Table:
        """Make one shard: row int32, words and counts list<int32>; words are lines of `VECTORS_FILE`, ascending."""
        bags = self.read_shard_bags(work, rows)
        if self._index is None:
            words = pq.read_table(work.folder / VECTORS_FILE, columns=["word"])["word"].to_pylist()
            self._index = {word: i for i, word in enumerate(words)}
        line = np.array([self._index.get(w, -1) for w in bags.vocabulary], np.int64)
        indptr, ids, counts = count_words(bags.indptr, line[bags.words])
        offsets = pa.array(indptr.astype(np.int32))
        return pa.table(
            {
                "row": np.arange(rows.start, rows.stop, dtype=np.int32),
                "words": pa.ListArray.from_arrays(offsets, pa.array(ids.astype(np.int32))),
                "counts": pa.ListArray.from_arrays(offsets, pa.array(counts.astype(np.int32))),
            }
        )

    @override
    def finish(self, work: Work) -> None:
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
        """Look up the vectors of all words that are not stop words."""
        wanted = [word for word in counts if word not in self.stop_words]
        table = read_word_vectors(self.file, wanted)
        if not table.index:
            message = f"no word of these captions has a vector: {len(wanted):,} words looked up, such as "
            message += ", ".join(repr(word) for word in wanted[:3]) if wanted else "none, because all are stop words"
            todo = "Use vectors of the captions' language, spelled like the tokens (in lower case for ptb)."
            raise CheckError(message, where=self.file.where, todo=todo)
        return make_vectors_table(replace(table, vectors=scale_to_unit_length(table.vectors)) if self.unit else table)


def scale_to_unit_length(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale (V, D) vectors to length 1; vectors of zeros stay zeros.

    Examples
    --------
    >>> import numpy as np
    >>> from relabel.sources.wmd.encode import scale_to_unit_length
    >>> scale_to_unit_length(np.array([[3, 4], [0, 0]], np.float32))
    array([[0.6, 0.8],
           [0. , 0. ]], dtype=float32)
    """
    wide = vectors.astype(np.float64)
    length = np.linalg.norm(wide, axis=1, keepdims=True)
    unit: NDArray[np.float32] = np.divide(wide, length, out=np.zeros_like(wide), where=length > 0).astype(np.float32)
    return unit


def count_words(indptr: NDArray[Any], words: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Count the distinct words of each text; negative words are left out.

    Parameters
    ----------
    indptr : (N + 1,) int
    words : (indptr[-1],) int64
        Words of text n at ``indptr[n]:indptr[n + 1]``, with repeats.

    Returns
    -------
    indptr, words, counts : (N + 1,), (T,) and (T,) int64
        Words ascending within a text.

    Examples
    --------
    >>> import numpy as np
    >>> from relabel.sources.wmd.encode import count_words
    >>> count_words(np.array([0, 4, 5]), np.array([7, 2, 7, -1, 2]))
    (array([0, 2, 3]), array([2, 7, 2]), array([1, 2, 1]))
    """
    text = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))[words >= 0]
    base = int(words.max(initial=0)) + 1
    keys, counts = np.unique(text * base + words[words >= 0], return_counts=True)
    bounds = np.searchsorted(keys, np.arange(len(indptr)) * base)
    return bounds.astype(np.int64), keys % base, counts.astype(np.int64)
