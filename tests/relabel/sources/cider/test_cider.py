"""Contract: the source cider writes the documented files and metadata. It rejects missing PTB tokens and an absent df
split, and handles one image, captions without words and odd characters.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.relabel.sources.encodings import encode

from relabel.core.errors import MissingError
from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.corpus.build import Caption
from relabel.sources.cider import Cider, CiderParams
from relabel.sources.cider.relevance import CiderRelevance
from relabel.store.manifest import Manifest

IMAGES = {
    "train": [["a red bus", "the red bus"], ["a blue bus"], ["a red kite"]],
    "test": [
        ["a man on a horse", "man man man"],
        ["two cats 🐈 שלום", "nul\x00 byte", "cats", "x", "y", "sixth caption"],
    ],
}


def small_corpus(images: dict[str, list[list[str]]] = IMAGES) -> Corpus:
    captions = [
        Caption(f"x:{split}{m}-{p}", f"x:{split}{m}", split, text)
        for split, sets in images.items()
        for m, texts in enumerate(sets)
        for p, text in enumerate(texts)
    ]
    return Corpus.from_captions(captions, [c.text for c in captions])


def encoded(
    corpus: Corpus, out: Path, rows: range, runtime: Runtime | None = None, size: int = 2, **params: Any
) -> tuple[Manifest, CiderRelevance]:
    relevance, manifest = encode(Cider(CiderParams(**params)), corpus, out, rows, size, runtime or Runtime(threads=2))
    return manifest, relevance


def vocabulary(out: Path) -> dict[str, int]:
    table = pq.read_table(out / "vocabulary.parquet")
    assert table["id"].to_pylist() == list(range(table.num_rows))
    return dict(zip(table["ngram"].to_pylist(), table["df"].to_pylist(), strict=True))


def test_shards_hold_every_row_and_spell_its_ngrams(tmp_path: Path) -> None:
    corpus = small_corpus()
    manifest, _ = encoded(corpus, tmp_path / "e", corpus.rows(["test"]), n=2)
    assert manifest.parts == [f"part-{i:05d}-of-00004.parquet" for i in range(4)]
    texts = pq.read_table(tmp_path / "e" / "vocabulary.parquet")["ngram"].to_pylist()
    shards = [pq.read_table(tmp_path / "e" / name) for name in manifest.parts]
    assert [row for s in shards for row in s["row"].to_pylist()] == list(corpus.rows(["test"]))
    row = shards[0].slice(0, 1).to_pylist()[0]
    ngram_counts = {texts[i]: c for i, c in zip(row["ngrams"], row["counts"], strict=True)}
    expected = {"a": 2, "man": 1, "on": 1, "horse": 1, "a man": 1, "man on": 1, "on a": 1, "a horse": 1}
    assert (row["row"], row["words"], ngram_counts) == (corpus.rows(["test"]).start, 5, expected)
    assert {"🐈", "שלום", "nul\x00 byte"} <= set(texts)


@pytest.mark.parametrize(
    ("df", "documents", "expected"),
    [
        ("encoded", 2, {"a": 1, "man": 1, "cats": 1, "red": None, "sixth": 0}),
        ("test", 2, {"a": 1, "man": 1, "cats": 1, "red": None, "sixth": 0}),
        ("train", 3, {"a": 3, "man": 0, "cats": 0, "red": 2, "bus": 2, "sixth": 0}),
        ("corpus", 5, {"a": 4, "man": 1, "cats": 1, "red": 2, "bus": 2, "sixth": 0}),
    ],
)
def test_document_frequencies(tmp_path: Path, df: str, documents: int, expected: dict[str, int | None]) -> None:
    """Check that the first five captions of an image are one document, and that an n-gram in no document has df 0."""
    corpus = small_corpus()
    manifest, _ = encoded(corpus, tmp_path / "e", corpus.rows(["test"]), df=df)
    frequencies = vocabulary(tmp_path / "e")
    assert (manifest.metadata["documents"], manifest.metadata["warnings"]) == (documents, [])
    assert {word: frequencies.get(word) for word in expected} == expected


def test_one_image_warns_and_has_relevance_0(tmp_path: Path) -> None:
    corpus = small_corpus({"test": [["a b c d", "a b c d"]]})
    manifest, relevance = encoded(corpus, tmp_path / "e", range(2))
    assert manifest.metadata["documents"] == 1
    assert "one image" in manifest.metadata["warnings"][0]
    assert relevance.pairs(corpus.references([0]), np.array([1], np.int32)).tolist() == [0]


def test_captions_without_words_are_counted(tmp_path: Path) -> None:
    corpus = small_corpus().with_tokens(["", "a b", "c", "a", "b", "a", "", "c", "d", "e", "f", "g"])
    manifest, relevance = encoded(corpus, tmp_path / "e", range(12))
    assert manifest.metadata["warnings"] == ["2 captions have no words under this tokenizer: their relevance is 0"]
    assert relevance.block(corpus.references(range(5)), np.array([0, 6], np.int32)).max() == 0


def test_ptb_without_tokens_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    bare = Corpus.from_captions([Caption("x:1", "x:1", "test", "a"), Caption("x:2", "x:2", "test", "b")])
    with pytest.raises(MissingError, match=r"no PTB tokens.*relabel ingest.*lower_split"):
        encoded(bare, tmp_path / "e", range(2))
    encoded(bare, tmp_path / "e", range(2), tokenizer="lower_split")


@pytest.mark.java
def test_a_new_text_is_tokenised_as_the_captions(tmp_path: Path) -> None:
    corpus = small_corpus()
    rows = corpus.rows(["test"])
    _, relevance = encoded(corpus, tmp_path / "e", rows)
    relevances = relevance.query("A MAN, on a horse!", np.array([rows.start, rows.start + 1], np.int32))
    assert relevances[0] == pytest.approx(10, abs=1e-9)
    assert 0 < relevances[1] < 5
