"""Contract: a source that only scores pairs gets its other methods from the defaults of `Relevance`. Blocks of any size
equal its pairs, and positions are those of the encoded rows.
"""

from __future__ import annotations

import numpy as np
import pytest

from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import Corpus, References
from relabel.corpus.build import Caption
from relabel.sources.relevance import Relevance, pool


class Differences(Relevance):
    """Difference of caption row and reference row, pooled; records the number of single pairs per call."""

    def __init__(self) -> None:
        self.corpus = Corpus.from_captions(Caption(f"c:{i}", f"i:{i // 4}", "test", "text") for i in range(20))
        self.rows, self.pooling, self.calls = range(4, 20), "max", list[int]()

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
