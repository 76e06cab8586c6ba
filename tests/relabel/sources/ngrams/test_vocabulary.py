"""The vectorised n-gram ids, counts and document frequencies are those of a Counter; ids ascend as documented."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from relabel.corpus import References
from relabel.sources.ngrams import vocabulary
from relabel.sources.ngrams.vocabulary import Grams, grams_of

TEXTS = ["b a b a b", "", "a", "a b c", "naïve 猫 🐈 \u200fשלום", "nul\x00byte nul", "b a", "c c c c c c"]


def counters(n: int) -> list[Counter[str]]:
    split = [t.split() for t in TEXTS]
    return [Counter(" ".join(w[i : i + k]) for k in range(1, n + 1) for i in range(len(w) - k + 1)) for w in split]


def spelled(grams: Grams, first: int, stop: int) -> list[dict[str, int]]:
    indptr, ids, counts = grams.counts(first, stop)
    texts = grams.texts().to_pylist()
    rows = list(pairwise(indptr.tolist()))
    for a, b in rows:
        assert (np.diff(ids[a:b]) > 0).all()
    return [{texts[i]: int(c) for i, c in zip(ids[a:b], counts[a:b], strict=True)} for a, b in rows]


@pytest.mark.parametrize("n", [1, 2, 4, 6])
def test_counts_are_those_of_a_counter(n: int) -> None:
    grams = grams_of(TEXTS, str.split, n)
    assert spelled(grams, 0, len(TEXTS)) == [dict(c) for c in counters(n)]
    assert spelled(grams, 3, 6) == [dict(c) for c in counters(n)[3:6]]


def test_every_ngram_has_one_id_and_ids_ascend_by_order_prefix_and_last_word() -> None:
    grams = grams_of(TEXTS, str.split, 4)
    texts = grams.texts().to_pylist()
    assert set(texts) == set().union(*counters(4))
    assert len(set(texts)) == len(texts) == len(grams)
    words = texts[: grams.starts[1]]
    assert words == sorted(words, key=str.encode)
    for order in range(1, 4):
        ids = range(grams.starts[order], grams.starts[order + 1])
        keys = [(int(grams.prefix[i]), int(grams.last[i])) for i in ids]
        assert keys == sorted(set(keys))
        assert [texts[i] for i in ids] == [f"{texts[p]} {texts[w]}" for p, w in keys]
        assert all(len(texts[i].split()) == order + 1 for i in ids)


@pytest.mark.parametrize("chunk", [1, 2, 50_000])
def test_document_frequency_counts_a_document_once(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "_CHUNK", chunk)
    grams = grams_of(TEXTS, str.split, 3)
    documents = [[0, 6, 2], [3], [1, 5], [7, 0]]
    df = grams.document_frequency(References.of(documents))
    expected: Counter[str] = Counter()
    for document in documents:
        expected.update(set().union(*(counters(3)[c] for c in document)))
    assert dict(zip(grams.texts().to_pylist(), df.tolist(), strict=True)) == {
        t: expected[t] for t in grams.texts().to_pylist()
    }


def test_captions_without_a_single_word() -> None:
    grams = grams_of(["", ""], str.split, 4)
    assert len(grams) == 0
    assert grams.counts(0, 2)[0].tolist() == [0, 0, 0]
    assert grams.document_frequency(References.of([[0], [1]])).shape == (0,)
