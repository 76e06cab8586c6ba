"""Contract: score_texts scores texts outside any corpus as captions, and document frequencies are those of the sets."""

from __future__ import annotations

import numpy as np
import pytest

from relabel.core.runtime import Runtime
from relabel.sources.cider import Cider, CiderParams
from relabel.sources.texts import score_texts

SETS = [
    ["a dog runs on grass", "a brown dog is running"],
    ["two cats sleep on a sofa"],
    ["a dog runs on grass", "a brown dog is running"],
    ["a man rides a wave", "a surfer on a big wave", "a man surfing"],
]
TEXTS = ["a dog runs", "two cats sleep on a sofa", "two cats", "a surfer rides a big wave"]


def test_cider_equals_pycocoevalcap_with_df_of_the_sets() -> None:
    scorer = pytest.importorskip("pycocoevalcap.cider.cider_scorer")
    distinct = [SETS[0], SETS[1], SETS[3]]
    expected = []
    for sets, candidate in zip(SETS, TEXTS, strict=True):
        one = scorer.CiderScorer()  # documents are all distinct sets; the pair's own set is judged
        for other in distinct:
            one += (candidate if other == sets else "nothing", other)
        expected.append(one.compute_score()[1][distinct.index(sets)])
    scored = score_texts(Cider(CiderParams(tokenizer="lower_split")), SETS, TEXTS, Runtime())
    np.testing.assert_allclose(scored.scores, expected, atol=1e-9)
    assert scored.captions == 9
    assert scored.bytes > 0
    assert scored.seconds > 0
