"""Contract: a word bag holds a caption's words with their weights for any text. The vector of a bag is the weighted
sum of its words' vectors, scaled to length 1.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from relabel.sources.words.shards import WordBags


def words_of(bags: WordBags, caption: int) -> list[str]:
    text = bags.text_of[caption]
    return [bags.vocabulary[w] for w in bags.words[bags.indptr[text] : bags.indptr[text + 1]]]


def check(texts: list[str]) -> None:
    bags = WordBags.from_texts(texts)
    assert "" not in bags.vocabulary
    assert len(bags.indptr) - 1 == len(set(texts))
    for i, text in enumerate(texts):
        assert words_of(bags, i) == [w for w in text.split(" ") if w]
    counted = Counter(w for t in texts for w in t.split(" ") if w)
    assert dict(zip(bags.vocabulary, bags.counts().tolist(), strict=True)) == counted


@settings(deadline=None)
@given(st.lists(st.text(alphabet="ab é\U0001f415", max_size=8), min_size=1, max_size=8))
def test_any_texts(texts: list[str]) -> None:
    check(texts)


def test_unit_vectors_are_weighted_sums() -> None:
    texts = [[("a", 1.0), ("b", 2.0)], [], [("b", 1.0), ("b", 1.0), ("c", 1.0)]]
    bags = WordBags.from_weighted_words(texts, np.array([2, 0, 1, 0]))
    vectors = {"a": np.array([1.0, 0]), "b": np.array([0.5, -1]), "c": np.array([0.0, 0])}
    table = np.array([vectors[w] for w in bags.vocabulary])
    computed = bags.unit_vectors(table, slice(0, 4))
    for row, text in zip(computed, [texts[2], texts[0], texts[1], texts[0]], strict=True):
        total = np.zeros(2)
        for word, weight in text:
            total += weight * vectors[word]
        length = np.sqrt((total**2).sum())
        np.testing.assert_allclose(row, total / length if length else total, atol=1e-7)
    np.testing.assert_array_equal(bags.unit_vectors(table, slice(1, 3)), computed[1:3])
    assert bags.counts().tolist() == [2, 4, 1]  # a, b, c over all captions
