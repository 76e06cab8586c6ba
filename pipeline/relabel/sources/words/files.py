"""Words on their way into an encoding, as files of its work: of each shard the words, of all words the vectors."""

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
    """(V, D): the vector of each word of a vocabulary, zeros where there is none."""
    out = np.zeros((len(vocabulary), vectors.shape[1]))
    at = np.array([index.get(w, -1) for w in vocabulary], np.int64)
    out[at >= 0] = vectors[at[at >= 0]]
    return out


def bags_table(bags: WordBags) -> pa.Table:
    """Make one row a caption: words list<string>, weights list<float64>."""
    offsets = pa.array(bags.indptr.astype(np.int32))
    words = pa.array(bags.vocabulary, pa.string()).take(pa.array(bags.words))
    lists = {"words": pa.ListArray.from_arrays(offsets, words)}
    lists["weights"] = pa.ListArray.from_arrays(offsets, pa.array(bags.weights))
    return pa.table(lists).take(pa.array(bags.text_of))


def read_bags(path: Path) -> WordBags:
    """Read what `bags_table` made."""
    table = pq.read_table(path).combine_chunks()
    words = pc.list_flatten(table["words"]).combine_chunks().dictionary_encode()
    words = words.chunk(0) if isinstance(words, pa.ChunkedArray) else words
    indptr = np.zeros(len(table) + 1, np.int64)
    np.cumsum(pc.list_value_length(table["words"]).to_numpy(), out=indptr[1:])
    weights = pc.list_flatten(table["weights"]).to_numpy()
    return WordBags(
        words.dictionary.to_pylist(), indptr, words.indices.to_numpy(), weights, np.arange(len(table), dtype=np.int64)
    )


def value_counts(words: pa.ChunkedArray) -> list[tuple[str, int]]:
    """Count distinct words, in the order in which they come."""
    found = pc.value_counts(words)
    return list(zip(found.field("values").to_pylist(), found.field("counts").to_pylist(), strict=True))


def make_vectors_table(found: WordVectors) -> pa.Table:
    """Make one row a word: word string, vector fixed_size_list<float32>; facts of the file beside the schema."""
    said = {"words": str(found.words), "duplicates": str(found.duplicates), "width": str(found.width)}
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(found.vectors.reshape(-1)), found.width)
    table = pa.table({"word": pa.array(list(found.index), pa.string()), "vector": vectors})
    return table.replace_schema_metadata(said)


def coverage(counts: Counter[str], known: set[str], zeros: int) -> dict[str, Any]:
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
