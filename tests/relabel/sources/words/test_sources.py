"""Contract: what cbow and wmd share. Words without a vector change nothing, and are counted. A caption without a known
word has relevance 0. A new text scores as a caption, by the file of vectors that the encoding was made with, and any
other file is refused.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.relabel.sources.encodings import corpus_of, encode, in_images, write_vectors

from relabel.core.errors import CheckError
from relabel.core.runtime import Runtime
from relabel.core.tables import plural
from relabel.corpus import References
from relabel.sources.base import Encoding
from relabel.sources.cbow import Cbow, CbowParams
from relabel.sources.wmd import Wmd, WmdParams

WORDS = ["dog", "dogs", "runs", "cat", "sleeps", "sofa", "two", "the", "red", "bus"]
TEXTS = [
    *("the dog runs", "two dogs dogs sleeps sofa", "the cat sleeps on a sofa"),
    *("qwx zzz", "a red bus", "The Dog runs the unseen", "on the of", "cat cat dog"),
]
CORPUS, EVERY = corpus_of(in_images(TEXTS, 2)), np.arange(len(TEXTS), dtype=np.int32)
STOP_WORDS = {"cbow": (), "wmd": ("the", "on", "a", "of")}


def source_of(label: str, folder: Path) -> Any:
    params = {"vectors": str(folder / "words.txt"), "tokenizer": "lower_split"}
    return Cbow(CbowParams(**params)) if label == "cbow" else Wmd(WmdParams(**params))


@pytest.mark.parametrize(("label", "unknown"), [("cbow", [3]), ("wmd", [3, 6])])
def test_words_without_a_vector_are_counted_and_change_nothing(label: str, unknown: list[int], tmp_path: Path) -> None:
    write_vectors(tmp_path / "words.txt", WORDS)
    relevance, manifest = encode(source_of(label, tmp_path), CORPUS, tmp_path / "encoding")
    known_only = corpus_of([[" ".join(w for w in t.lower().split() if w in WORDS) for t in TEXTS]])
    same, _ = encode(source_of(label, tmp_path), known_only, tmp_path / "same")
    block = relevance.block(References.single(EVERY), EVERY)
    np.testing.assert_array_equal(block, same.block(References.single(EVERY), EVERY))
    assert np.flatnonzero(~block.any(axis=1)).tolist() == unknown
    words = [word for text in TEXTS for word in text.lower().split() if word not in STOP_WORDS[label]]
    lost = Counter(word for word in words if word not in WORDS)
    expected = {"tokens": lost.total(), "of_tokens": len(words), "rate": round(lost.total() / len(words), 6)}
    expected |= {"words": len(lost), "of_words": len(set(words))}
    assert manifest.metadata["oov"] == expected | {"most_frequent": [list(item) for item in lost.most_common()]}
    assert manifest.metadata["without_vector"] == len(unknown)
    assert manifest.warnings[0] == f"{plural(len(unknown), 'caption has', 'captions have')} no known word: relevance 0"
    if label == "wmd":
        left_out = sum(text.lower().split().count(word) for text in TEXTS for word in STOP_WORDS[label])
        assert manifest.metadata["stop_words"] == {"tokens": left_out, "words": 4}


@pytest.mark.parametrize("label", STOP_WORDS)
def test_a_new_text_scores_as_a_caption(label: str, tmp_path: Path) -> None:
    write_vectors(tmp_path / "words.txt", WORDS)
    source, runtime, rows = source_of(label, tmp_path), Runtime(data=tmp_path, threads=1), EVERY[:4]
    part, manifest = encode(source, CORPUS, tmp_path / "encoding", range(4), runtime=runtime)
    whole, _ = encode(source, CORPUS, tmp_path / "whole")
    for row, text in enumerate(TEXTS):  # `bus` and other words do not occur in the encoded rows
        expected = whole.pairs(References.single(np.full(4, row, np.int32)), rows, "first")
        np.testing.assert_allclose(part.query(text, rows), expected, atol=1e-6)
    assert not part.query("qwx \udc80", rows).any()
    write_vectors(tmp_path / "words.txt", WORDS, seed=1)
    reopened = source.open(Encoding(CORPUS, tmp_path / "encoding", manifest, runtime))
    with pytest.raises(CheckError, match="the encoding was made with other word vectors"):
        reopened.query("a red bus", rows)
