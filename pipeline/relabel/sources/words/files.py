"""Intermediate files of an encoding by word vectors: the words of each shard, and the vectors of all words."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.sources.words.bags import WordBags
from relabel.sources.words.vectors import WordVectors

_SHOWN = 20  # out-of-vocabulary words that a manifest lists


def vectors_of_words(index: dict[str, int], vectors: NDArray[np.float32], vocabulary: list[str]) -> NDArray[np.float64]:
    """Return the vector of each word of a vocabulary, zeros for words without one: (V, D) float64.

    Parameters
    ----------
    index : dict of str to int
        Row of each word in `vectors`.
    vectors : (N, D) float32
    vocabulary : list of str
        V words.

    Examples
    --------
    >>> import numpy as np
    >>> from relabel.sources.words.files import vectors_of_words
    >>> vectors_of_words({"dog": 0}, np.array([[1, 2]], np.float32), ["a", "dog"]).tolist()
    [[0.0, 0.0], [1.0, 2.0]]
    """
    out = np.zeros((len(vocabulary), vectors.shape[1]))
    rows = np.array([index.get(w, -1) for w in vocabulary], np.int64)
    # Words without a vector keep a row of zeros.
    out[rows >= 0] = vectors[rows[rows >= 0]]
    return out


def make_bags_table(bags: WordBags) -> pa.Table:
    """Return bags as a table with one row per caption: words list<string>, weights list<float64>."""
    # One list per distinct text, which `take` repeats for its captions.
    offsets = pa.array(bags.indptr.astype(np.int32))
    words = pa.array(bags.vocabulary, pa.string()).take(pa.array(bags.words))
    lists = {"words": pa.ListArray.from_arrays(offsets, words)}
    lists["weights"] = pa.ListArray.from_arrays(offsets, pa.array(bags.weights))
    return pa.table(lists).take(pa.array(bags.text_of))


def read_bags(path: Path) -> WordBags:
    """Read a file of `make_bags_table`."""
    table = pq.read_table(path).combine_chunks()
    words = pc.list_flatten(table["words"]).combine_chunks().dictionary_encode()
    # The result may be a chunked array of one chunk.
    words = words.chunk(0) if isinstance(words, pa.ChunkedArray) else words
    indptr = np.zeros(len(table) + 1, np.int64)
    np.cumsum(pc.list_value_length(table["words"]).to_numpy(), out=indptr[1:])
    weights = pc.list_flatten(table["weights"]).to_numpy()
    return WordBags(
        words.dictionary.to_pylist(), indptr, words.indices.to_numpy(), weights, np.arange(len(table), dtype=np.int64)
    )


def count_values(words: pa.ChunkedArray) -> list[tuple[str, int]]:
    """Return the number of occurrences of each distinct word, in order of first occurrence."""
    counts = pc.value_counts(words)
    return list(zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True))


def make_vectors_table(read: WordVectors) -> pa.Table:
    """Make one row per word: word (string) and vector (fixed_size_list<float32>), with facts as metadata."""
    facts = {"words": str(read.words), "duplicates": str(read.duplicates), "width": str(read.width)}
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(read.vectors.reshape(-1)), read.width)
    table = pa.table({"word": pa.array(list(read.index), pa.string()), "vector": vectors})
    return table.replace_schema_metadata(facts)


def coverage(counts: Counter[str], known: set[str], zeros: int) -> dict[str, Any]:
    """Return the facts of a manifest about words without a vector.

    Parameters
    ----------
    counts : Counter of str
        Number of times each word occurs.
    known : set of str
        Words with a vector.
    zeros : int
        Number of captions without any known word.
    """
    missing = {word: count for word, count in counts.items() if word not in known}
    tokens, lost = counts.total(), sum(missing.values())
    warnings = []
    if zeros:
        warnings.append(f"{zeros} captions have no known word: their relevance is 0")
    # Out-of-vocabulary tokens above 5% are worth a warning.
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
