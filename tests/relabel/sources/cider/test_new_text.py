"""A new text scores as if it were a reference: known n-grams match, unknown ones count in its norm with df 0."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from relabel.corpus import References
from relabel.sources.cider.relevance import CiderRelevance

IMAGES = [["a cat on a mat", "a cat"], ["a dog on a sofa", "the dog"], ["two men", "two men ride", ""]]


@pytest.mark.parametrize("variant", ["cider_d", "cider"])
@pytest.mark.parametrize(
    "text", ["a cat on a sofa", "an unseen zebra on a mat", "mat mat on on a", "two", "nothing known", "", "x " * 50]
)
def test_equals_explicit_loops(
    opened: Callable[..., CiderRelevance], loop_cider: Callable[..., float], text: str, variant: str
) -> None:
    relevance = opened(IMAGES, tokenizer="lower_split", variant=variant)
    documents = [[c.split() for c in image] for image in IMAGES]
    found = relevance.query(text, np.arange(7, dtype=np.int32))
    for j in range(7):
        words = relevance.corpus.texts[j].split()
        expected = loop_cider([text.split()], words, documents, sigma=6.0 if variant == "cider_d" else None)
        assert found[j] == pytest.approx(expected, abs=1e-12)


def test_the_text_of_an_encoded_caption_scores_as_that_caption(opened: Callable[..., CiderRelevance]) -> None:
    relevance = opened(IMAGES, tokenizer="lower_split")
    rows = np.arange(7, dtype=np.int32)
    for row in rows:
        block = relevance.block(References.single(rows[row : row + 1]), rows)
        assert relevance.query(relevance.corpus.texts[row].upper(), rows) == pytest.approx(block[0], abs=1e-12)
