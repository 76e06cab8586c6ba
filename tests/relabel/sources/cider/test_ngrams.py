"""Contract: n-gram ids, counts and document frequencies equal those of a Counter, and ids ascend as documented."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from relabel.corpus import References
from relabel.sources.cider import ngrams as module
from relabel.sources.cider.ngrams import NgramOccurrences, Vocabulary, number_ngrams

TEXTS = ["b a b a b", "", "a", "a b c", "naïve 猫 🐈 \u200fשלום", "nul\x00byte nul", "b a", "c c c c c c"]


def counters(n: int) -> list[Counter[str]]:
    split = [t.split() for t in TEXTS]
    return [Counter(" ".join(w[i : i + k]) for k in range(1, n + 1) for i in range(len(w) - k + 1)) for w in split]


def spelled(ngrams: NgramOccurrences, first: int, stop: int) -> list[dict[str, int]]:
    indptr, ids, counts = ngrams.counts(first, stop)
    texts = ngrams.vocabulary.texts().to_pylist()
    rows = list(pairwise(indptr.tolist()))
    for a, b in rows:
        assert (np.diff(ids[a:b]) > 0).all()
    return [{texts[i]: int(c) for i, c in zip(ids[a:b], counts[a:b], strict=True)} for a, b in rows]


@pytest.mark.parametrize("n", [1, 2, 4, 6])
def test_counts_are_those_of_a_counter(n: int) -> None:
    ngrams = number_ngrams(TEXTS, str.split, n)
    assert spelled(ngrams, 0, len(TEXTS)) == [dict(c) for c in counters(n)]
    assert spelled(ngrams, 3, 6) == [dict(c) for c in counters(n)[3:6]]


def test_every_ngram_has_one_id_and_ids_ascend_by_order_prefix_and_last_word() -> None:
    ngrams = number_ngrams(TEXTS, str.split, 4)
    texts = ngrams.vocabulary.texts().to_pylist()
    assert set(texts) == set().union(*counters(4))
    assert len(set(texts)) == len(texts) == len(ngrams.vocabulary)
    words = texts[: ngrams.vocabulary.starts[1]]
    assert words == sorted(words, key=str.encode)
    for order in range(1, 4):
        ids = range(ngrams.vocabulary.starts[order], ngrams.vocabulary.starts[order + 1])
        keys = [(int(ngrams.vocabulary.prefix[i]), int(ngrams.vocabulary.last[i])) for i in ids]
        assert keys == sorted(set(keys))
        assert [texts[i] for i in ids] == [f"{texts[p]} {texts[w]}" for p, w in keys]
        assert all(len(texts[i].split()) == order + 1 for i in ids)


@pytest.mark.parametrize("chunk", [1, 2, 50_000])
def test_document_frequency_counts_a_document_once(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHUNK", chunk)
    ngrams = number_ngrams(TEXTS, str.split, 3)
    documents = [[0, 6, 2], [3], [1, 5], [7, 0]]
    df = ngrams.document_frequency(References.of(documents))
    expected: Counter[str] = Counter()
    for document in documents:
        expected.update(set().union(*(counters(3)[c] for c in document)))
    assert dict(zip(ngrams.vocabulary.texts().to_pylist(), df.tolist(), strict=True)) == {
        t: expected[t] for t in ngrams.vocabulary.texts().to_pylist()
    }


def test_captions_without_words() -> None:
    ngrams = number_ngrams(["", ""], str.split, 4)
    assert len(ngrams.vocabulary) == 0
    assert ngrams.counts(0, 2)[0].tolist() == [0, 0, 0]
    assert ngrams.document_frequency(References.of([[0], [1]])).shape == (0,)


@pytest.mark.parametrize("n", [1, 3, 6])
def test_a_vocabulary_read_from_its_file_finds_the_ngrams_it_holds(n: int, tmp_path: Path) -> None:
    numbering = number_ngrams(TEXTS, str.split, n)
    pq.write_table(numbering.vocabulary.table(np.zeros(len(numbering.vocabulary), np.int32)), tmp_path / "v.parquet")
    vocabulary, texts = Vocabulary.read(tmp_path / "v.parquet"), numbering.vocabulary.texts().to_pylist()
    queries = number_ngrams([*TEXTS[2:5], "b c a b", "unseen a b", ""], str.split, 4).vocabulary
    ids = vocabulary.find(queries)
    for ngram, id_ in zip(queries.texts().to_pylist(), ids.tolist(), strict=True):
        assert id_ == (texts.index(ngram) if ngram in texts else -1)
    assert (np.diff(ids[ids >= 0]) > 0).all()


def test_an_empty_vocabulary_finds_nothing(tmp_path: Path) -> None:
    pq.write_table(number_ngrams([""], str.split, 4).vocabulary.table(np.empty(0, np.int32)), tmp_path / "v.parquet")
    assert Vocabulary.read(tmp_path / "v.parquet").find(number_ngrams(["a b"], str.split, 4).vocabulary).tolist() == [
        -1,
        -1,
        -1,
    ]
