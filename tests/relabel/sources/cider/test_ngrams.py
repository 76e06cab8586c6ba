"""Contract: document frequencies of n-grams equal those of a Counter, and ids ascend as documented."""

from __future__ import annotations

from collections import Counter

import pytest

from relabel.corpus import References
from relabel.sources.cider import ngrams as module
from relabel.sources.cider.ngrams import number_ngrams

TEXTS = ["b a b a b", "", "a", "a b c", "naïve 猫 🐈 \u200fשלום", "nul\x00byte nul", "b a", "c c c c c c"]


def counters(n: int) -> list[Counter[str]]:
    split = [t.split() for t in TEXTS]
    return [Counter(" ".join(w[i : i + k]) for k in range(1, n + 1) for i in range(len(w) - k + 1)) for w in split]


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
