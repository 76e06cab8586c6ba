"""Contract: both orders are averaged if the judged set says so. The scores of a label are kept and reused until its
texts or parameters change. Scores that lack a pair are computed again.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from relabel.core.errors import CheckError
from relabel.core.runtime import Runtime
from relabel.datasets.judged import Judgements
from relabel.judge import judged_scores
from relabel.judge.judged_scores import score_judgements, score_with_function
from relabel.sources.cider import Cider, CiderParams
from relabel.sources.texts import TextScores, score_texts


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


PAIRS = Judgements(
    ids=["1", "2"], references=[["a dog runs", "a dog"], ["two cats"]], candidates=["a dog", "two cats sleep"],
    ratings=np.ones((2, 1)), groups=["all"] * 2, clusters=["0", "1"],
)  # fmt: skip


def cider(**params: object) -> Cider:
    return Cider(CiderParams(tokenizer="lower_split", **params))  # type: ignore[arg-type]


def test_kept_scores_are_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = score_judgements(PAIRS, cider(), Runtime(), folder=tmp_path, label="cider")
    np.testing.assert_array_equal(first.scores, score_judgements(PAIRS, cider(), Runtime()).scores)
    assert {path.name for path in tmp_path.iterdir()} >= {"encodings", "scores"}
    calls = []
    monkeypatch.setattr(judged_scores, "score_texts", lambda *a, **k: calls.append(1) or score_texts(*a, **k))
    again = score_judgements(PAIRS, cider(), Runtime(), folder=tmp_path, label="cider")
    assert not calls
    np.testing.assert_array_equal(again.scores, first.scores)
    assert (again.captions, again.seconds, again.bytes) == (first.captions, first.seconds, first.bytes)
    # The pooling changes the scores but not the encoding; the range of n-grams changes both.
    for changed in (cider(pooling="max"), cider(n=2)):
        other = score_judgements(PAIRS, changed, Runtime(), folder=tmp_path, label="cider")
        np.testing.assert_array_equal(other.scores, score_judgements(PAIRS, changed, Runtime()).scores)
    assert len(calls) == 4  # two were kept, two were temporary


def test_a_pair_without_a_score_is_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for values in ([1.0, np.nan], [1.0, 2.0]):
        monkeypatch.setattr(judged_scores, "score_texts", lambda *a, **k: TextScores(np.array(values), 3, 1.0, 9))  # noqa: B023
        scored = score_judgements(PAIRS, cider(), Runtime(), folder=tmp_path, label="cider")
        np.testing.assert_array_equal(scored.scores, values)
