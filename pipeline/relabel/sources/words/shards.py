"""Bags of words of captions, and the first step of encodings with word vectors: the vectors of all words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.core.numeric.csr import indptr_of
from relabel.core.tables import plural
from relabel.sources.shards import Shards
from relabel.sources.words.vectors import WordVectors, WordVectorsFile
from relabel.store.workdir import Step, Work, table_task

VECTORS_FILE = "words.parquet"
"""File of all words of the captions that have a vector, in file order, with their vectors."""
_SHOWN = 20  # maximum number of out-of-vocabulary words in a manifest


@dataclass(frozen=True, eq=False)
class WordBags:
    """Bags of words of N captions: U distinct texts with T words in total, V of them distinct.

    `vocabulary`: V words.
    `indptr`: (U + 1,) int64.
    `words`: (T,) int32; text u has the words ``words[indptr[u]:indptr[u + 1]]``, with repetitions.
    `text_of`: (N,) int64; distinct text of each caption.
    """

    vocabulary: list[str]
    indptr: NDArray[np.int64]
    words: NDArray[np.int32]
    text_of: NDArray[np.int64]

    @classmethod
    def from_texts(cls, texts: Sequence[str]) -> WordBags:
        """Create bags of words from texts with single spaces between words."""
        encoded = pa.array(texts, pa.string()).dictionary_encode()
        # Split each distinct text once, with Arrow to avoid Python strings.
        lists = pc.split_pattern(encoded.dictionary, " ")
        # Drop the word "" of an empty text.
        kept = pc.not_equal(pc.list_flatten(lists), "")
        sizes = np.bincount(pc.filter(pc.list_parent_indices(lists), kept).to_numpy(), minlength=len(lists))
        flat = pc.filter(pc.list_flatten(lists), kept).dictionary_encode()
        words = flat.indices.to_numpy()
        indices = encoded.indices.to_numpy()
        return cls(flat.dictionary.to_pylist(), indptr_of(sizes), words, indices)

    def counts(self) -> NDArray[np.int64]:
        """Return the number of occurrences of each word in all captions, (V,) int64."""
        # Distinct texts are weighted by their number of captions.
        copies = np.bincount(self.text_of, minlength=len(self.indptr) - 1)
        each = np.repeat(copies, np.diff(self.indptr))
        return np.bincount(self.words, each, len(self.vocabulary)).astype(np.int64)

    def unit_vectors(self, vectors: NDArray[np.float64], captions: slice) -> NDArray[np.float32]:
        """Return the normalized sum of the word vectors of each caption. The mean has the same direction.

        `vectors`: (V, D) float64; vector of each word of `vocabulary`, or zeros. `captions`: selects n of the N
        captions. Returns (n, D) float32: unit vectors, or zeros for captions without known words.
        """
        from scipy.sparse import csr_array

        shape = len(self.indptr) - 1, len(self.vocabulary)
        matrix = csr_array((np.ones(len(self.words)), self.words, self.indptr), shape)
        # Captions with equal texts share a product.
        texts, back = np.unique(self.text_of[captions], return_inverse=True)
        total: Any = matrix[texts] @ vectors
        length = np.linalg.norm(total, axis=1, keepdims=True)
        unit = np.divide(total, length, out=np.zeros_like(total), where=length > 0).astype(np.float32)
        return np.asarray(unit[back])


def count_words(shards: Shards, split: Callable[[range], WordBags]) -> Counter[str]:
    """Count the words of all captions, in order of first occurrence. `split`: returns the bags of a range of rows."""
    counts: Counter[str] = Counter()
    for rows in shards.files.values():
        bags = split(rows)
        counts.update(dict(zip(bags.vocabulary, bags.counts().tolist(), strict=True)))
    return counts


def vectors_step(file: WordVectorsFile, look_up: Callable[[], WordVectors]) -> Step:
    """Return the step that writes the vectors of all words. Their file is then read only once, by one worker.

    Columns: word (string) and vector (fixed_size_list<float32>); counts are stored in the schema's metadata.
    """

    def make() -> pa.Table:
        read = look_up()
        facts = {"words": str(read.words), "duplicates": str(read.duplicates), "width": str(read.width)}
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(read.vectors.reshape(-1)), read.width)
        table = pa.table({"word": pa.array(list(read.index), pa.string()), "vector": vectors})
        return table.replace_schema_metadata(facts)

    return Step(f"word vectors ({file.name})", "files", [table_task(VECTORS_FILE, make)])


def record_vectors(work: Work, file: WordVectorsFile, tokenizer: str) -> pa.Table:
    """Add a description of the word vectors to the manifest, and return their table."""
    table = pq.read_table(work.folder / VECTORS_FILE)
    metadata: dict[str, Any] = {name.decode(): int(value) for name, value in table.schema.metadata.items()}
    work.provenance["vectors"] = file.where
    work.metadata |= {
        "tokenizer": tokenizer,
        "vectors": {"name": file.name, "words": metadata["words"], "duplicates": metadata["duplicates"]},
        "width": metadata["width"],
    }
    return table


def vectors_of_words(index: dict[str, int], vectors: NDArray[np.float32], vocabulary: list[str]) -> NDArray[np.float64]:
    """Return the vector of each word of a vocabulary, or zeros: (V, D) float64."""
    out = np.zeros((len(vocabulary), vectors.shape[1]))
    rows = np.array([index.get(w, -1) for w in vocabulary], np.int64)
    out[rows >= 0] = vectors[rows[rows >= 0]]
    return out


def record_oov(work: Work, counts: Counter[str], known: set[str], zeros: int) -> None:
    """Add statistics of out-of-vocabulary words to the manifest, with warnings.

    `counts`: number of occurrences of each word. `known`: words with a vector. `zeros`: number of captions without
    known words.
    """
    missing = {word: count for word, count in counts.items() if word not in known}
    tokens, lost = counts.total(), sum(missing.values())
    if zeros:
        work.warn(f"{plural(zeros, 'caption has', 'captions have')} no known word: relevance 0")
    if lost > 0.05 * tokens:
        work.warn(f"{lost / tokens:.1%} of the tokens have no vector")
    work.metadata |= {
        "oov": {
            "tokens": lost,
            "of_tokens": tokens,
            "rate": round(lost / tokens, 6) if tokens else 0.0,
            "words": len(missing),
            "of_words": len(counts),
            "most_frequent": [list(item) for item in sorted(missing.items(), key=lambda m: -m[1])[:_SHOWN]],
        },
        "without_vector": zeros,
    }
