"""Contract: same_image is 1 for a caption of the references' image and 0 for any other, under every pooling."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.relabel.sources.encodings import encode

from relabel.core.types import Pooling
from relabel.corpus import Corpus, References
from relabel.corpus.build import Caption
from relabel.sources.relevance import Relevance
from relabel.sources.same_image import SameImage, SameImageParams

IMAGES = [5, 1, 7, 2]


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    # All texts are equal, so only the image can decide.
    return Corpus.from_captions(
        Caption(f"c:{m}-{k}", f"i:{m}", "test", "a dog") for m, n in enumerate(IMAGES) for k in range(n)
    )


@pytest.fixture
def relevance(corpus: Corpus, tmp_path: Path) -> Relevance:
    relevance, manifest = encode(SameImage(SameImageParams()), corpus, tmp_path / "same_image", size=4)
    assert not manifest.files
    return relevance


@pytest.mark.parametrize("pooling", [None, "first", "max", "mean", "set"])
def test_block_and_pairs_equal_the_definition(corpus: Corpus, relevance: Relevance, pooling: Pooling | None) -> None:
    owner = [m for m, n in enumerate(IMAGES) for _ in range(n)]
    sets = [*corpus.references(range(4)), np.array([7], np.int32), np.array([14, 13], np.int32)]
    images = [0, 1, 2, 3, 2, 3]
    references, captions = References.of(sets), np.arange(len(corpus), dtype=np.int32)[::-1]
    block = relevance.block(references, captions, pooling)
    assert block.shape == (6, 15)
    assert block.dtype == np.float64
    for i, image in enumerate(images):
        for j, caption in enumerate(captions):
            expected = 1.0 if owner[caption] == image else 0.0
            assert block[i, j] == expected
            assert relevance.pairs(references.take(np.array([i])), captions[[j]], pooling) == [expected]
