"""The work of cbow: words of each shard, the vectors of all words, shards of their means, the index.

Words and their vectors are files that only the work needs: a file of word vectors is read once, whoever makes shards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.corpus import Corpus
from relabel.sources.vector_units import VectorUnits
from relabel.sources.vectors import StoredType, vector_table, vectors_of
from relabel.sources.word_bags import WordBags
from relabel.sources.word_vectors import WordVectors, WordVectorsFile, read_word_vectors
from relabel.store.units import Advance, Phase, Unit
from relabel.store.work import Work

VECTORS = "words.parquet"
"""The words that have a vector, and their vectors."""
_SHOWN = 20  # out-of-vocabulary words that a manifest lists
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
            work.table(unit.file, lambda: _bags_table(self.bags(self.parts[self.words[unit.file]])))
        elif unit.file == VECTORS:
            work.table(VECTORS, lambda: _vectors_table(read_word_vectors(self.file, self._counts(work))))
        else:
            return super().other(work, unit, advance)
        return None

    def shard(self, work: Work, rows: range, advance: Advance) -> pa.Table:
        """Make row, vector: zeros for a caption without a known word."""
        name = next(words for words, part in self.words.items() if self.parts[part] == rows)
        bags, (index, vectors) = _read_bags(work.folder / name), self._vectors(work)
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
            **_coverage(self._counts(work), set(table["word"].to_pylist()), zeros),
        }
        for name in (*self.words, VECTORS):
            work.drop(name)

    def _counts(self, work: Work) -> Counter[str]:
        """How often each word is there, in the order in which they come."""
        counts: Counter[str] = Counter()
        for name in self.words:
            words = pq.read_table(work.folder / name, columns=["words"])["words"]
            for word, count in _value_counts(pc.list_flatten(words)):
                counts[word] += count
        return counts

    def _vectors(self, work: Work) -> tuple[dict[str, int], NDArray[np.float32]]:
        """Read the vectors of all words, once."""
        if self._read is None:
            table = pq.read_table(work.folder / VECTORS)
            self._read = {word: i for i, word in enumerate(table["word"].to_pylist())}, vectors_of(table)
        return self._read


def rows_of(index: dict[str, int], vectors: NDArray[np.float32], vocabulary: list[str]) -> NDArray[np.float64]:
    """(V, D): the vector of each word of a vocabulary, zeros where there is none."""
    out = np.zeros((len(vocabulary), vectors.shape[1]))
    at = np.array([index.get(w, -1) for w in vocabulary], np.int64)
    out[at >= 0] = vectors[at[at >= 0]]
    return out


def _bags_table(bags: WordBags) -> pa.Table:
    """Make one row a caption: words list<string>, weights list<float64>."""
    offsets = pa.array(bags.indptr.astype(np.int32))
    words = pa.array(bags.vocabulary, pa.string()).take(pa.array(bags.words))
    lists = {"words": pa.ListArray.from_arrays(offsets, words)}
    lists["weights"] = pa.ListArray.from_arrays(offsets, pa.array(bags.weights))
    return pa.table(lists).take(pa.array(bags.text_of))


def _read_bags(path: Path) -> WordBags:
    table = pq.read_table(path).combine_chunks()
    words = pc.list_flatten(table["words"]).combine_chunks().dictionary_encode()
    words = words.chunk(0) if isinstance(words, pa.ChunkedArray) else words
    indptr = np.zeros(len(table) + 1, np.int64)
    np.cumsum(pc.list_value_length(table["words"]).to_numpy(), out=indptr[1:])
    weights = pc.list_flatten(table["weights"]).to_numpy()
    return WordBags(
        words.dictionary.to_pylist(), indptr, words.indices.to_numpy(), weights, np.arange(len(table), dtype=np.int64)
    )


def _value_counts(words: pa.ChunkedArray) -> list[tuple[str, int]]:
    found = pc.value_counts(words)
    return list(zip(found.field("values").to_pylist(), found.field("counts").to_pylist(), strict=True))


def _vectors_table(found: WordVectors) -> pa.Table:
    said = {"words": str(found.words), "duplicates": str(found.duplicates), "width": str(found.width)}
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(found.vectors.reshape(-1)), found.width)
    table = pa.table({"word": pa.array(list(found.index), pa.string()), "vector": vectors})
    return table.replace_schema_metadata(said)


def _coverage(counts: Counter[str], known: set[str], zeros: int) -> dict[str, Any]:
    """What has no vector: facts for the manifest."""
    missing = {word: count for word, count in counts.items() if word not in known}
    tokens, lost = counts.total(), sum(missing.values())
    warnings = []
    if zeros:
        warnings.append(f"{zeros} captions have no known word: their relevance is 0")
    if lost > 0.05 * tokens:
        warnings.append(f"{lost / tokens:.1%} of the tokens have no vector")
    return {
        "oov": {
            "tokens": lost,
            "of_tokens": tokens,
            "rate": round(lost / tokens, 6) if tokens else 0.0,
            "words": len(missing),
            "of_words": len(counts),
            "most_frequent": [list(item) for item in sorted(missing.items(), key=lambda m: -m[1])[:_SHOWN]],
        },
        "without_vector": zeros,
        "warnings": warnings,
    }
