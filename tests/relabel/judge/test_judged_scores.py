"""Contract: both orders are averaged if the judged set says so. A function returns one number per pair."""

from __future__ import annotations

import numpy as np
import pytest

from relabel.core.errors import CheckError
from relabel.core.runtime import Runtime
from relabel.datasets.judged import Judgements
from relabel.judge.judged_scores import score_judgements, score_with_function
from relabel.sources.cider import Cider, CiderParams
from relabel.sources.texts import score_texts


def test_a_source_in_both_orders_and_a_function() -> None:
    pairs = Judgements(
        ids=["1", "2"],
        references=[["a dog runs"], ["two cats"]], candidates=["a dog", "two cats sleep"], both_orders=True,
        ratings=np.ones((2, 1)), groups=["all"] * 2, clusters=["0", "1"],
    )  # fmt: skip
    source = Cider(CiderParams(tokenizer="lower_split"))
    scored = score_judgements(pairs, source, Runtime())
    texts = [*(r[0] for r in pairs.references), *pairs.candidates]
    swapped = [*pairs.candidates, *(r[0] for r in pairs.references)]
    each = score_texts(source, [[t] for t in texts], swapped, Runtime()).scores
    np.testing.assert_allclose(scored.scores, (each[:2] + each[2:]) / 2)
    lengths = score_with_function(pairs, lambda references, candidates: [len(r[0]) for r in references])
    np.testing.assert_array_equal(lengths, [(10 + 5) / 2, (8 + 14) / 2])
    with pytest.raises(CheckError, match=r"shape \(1,\) for 2 pairs"):
        score_with_function(pairs, lambda references, candidates: [1.0])
    with pytest.raises(CheckError, match="no numbers"):
        score_with_function(pairs, lambda references, candidates: ["x", "y"])
