"""Contract: a source that only scores pairs gets its other methods from the defaults of `Relevance`. Blocks of any size
equal its pairs, and positions are those of the encoded rows.

Contract: same_image is 1 for a caption of the references' image and 0 for any other, under every pooling.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.relabel.sources.encodings import corpus_of, encode

from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import References
from relabel.sources.relevance import Relevance
from relabel.sources.same_image import SameImage, SameImageParams
from relabel_train.scoring.references import pool


class Differences(Relevance):
    """Difference of caption row and reference row, pooled; records the number of single pairs per call."""

    def __init__(self) -> None:
        super().__init__(corpus_of([["a text"] * 4] * 5), range(4, 20), "max")
        self.calls = list[int]()

    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        self.calls.append(len(references.rows))
        sizes = np.diff(references.indptr)
        each = np.repeat(captions, sizes) - references.rows.astype(float)
        return pool(each, references.indptr, pooling or self.pooling)

    def query(self, text: str, captions: Rows) -> Scores:
        raise NotImplementedError


@pytest.mark.parametrize("pooling", ["first", "max", "mean"])
@pytest.mark.parametrize("most", [1, 7, 1 << 18])
def test_a_block_equals_its_pairs(pooling: Pooling, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check steps of at most `most` single pairs, but at least one reference set."""
    monkeypatch.setattr("relabel.sources.relevance._BLOCK", most)
    relevance, captions = Differences(), np.array([5, 4, 19], np.int32)
    sets = References(np.array([0, 1, 4, 6]), np.array([4, 5, 6, 7, 18, 19], np.int32))
    expected = [
        [relevance.pairs(sets.take(np.array([i])), captions[j : j + 1], pooling)[0] for j in range(3)] for i in range(3)
    ]
    relevance.calls.clear()
    assert relevance.block(sets, captions, pooling).tolist() == expected
    assert max(relevance.calls) <= max(most, 3 * len(captions))
    assert relevance.block(sets.take(np.array([], np.int64)), captions).shape == (0, 3)


@pytest.mark.parametrize("pooling", [None, "first", "max", "mean", "set"])
def test_same_image_equals_its_definition(pooling: Pooling | None, tmp_path: Path) -> None:
    corpus = corpus_of([["a dog"] * count for count in (5, 1, 7, 2)])  # only the image can decide
    relevance, manifest = encode(SameImage(SameImageParams()), corpus, tmp_path / "same_image", size=4)
    assert not manifest.files
    references = References.of([*corpus.references(range(4)), np.array([7]), np.array([14, 13])])
    captions, images = np.arange(len(corpus), dtype=np.int32)[::-1], [0, 1, 2, 3, 2, 3]
    block = relevance.block(references, captions, pooling)
    assert (block.shape, block.dtype) == ((6, 15), np.float64)
    for i, image in enumerate(images):
        for j, caption in enumerate(captions):
            expected = 1.0 if corpus.image[caption] == image else 0.0
            assert block[i, j] == expected
            assert relevance.pairs(references.take(np.array([i])), captions[[j]], pooling) == [expected]
