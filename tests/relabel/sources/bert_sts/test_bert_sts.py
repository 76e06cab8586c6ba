"""Contract: the gate decides by its exact score which pairs the cross-encoder scores. Pairs below it have relevance
0. Both orders are averaged, each distinct unordered pair of texts is scored once per call, and a
text scores 1 against itself. Captions with one text have one relevance. Too many pairs are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import CrossEncoder

from relabel import stages
from relabel.core.types import Pooling
from relabel.corpus import References
from relabel.sources.bert_sts.relevance import BertStsRelevance
from relabel.sources.bert_sts.scorer import PairScorer
from relabel.stages import Session, open_corpus

MakeGated = Callable[..., Session]


def opened(session: Session) -> BertStsRelevance:
    label = stages.open_label(session, "fine", "all")
    assert isinstance(label, BertStsRelevance)
    return label


def loop(session: Session, cross: Path) -> np.ndarray:
    """Score every pair of captions in turn, (N, N), as the oracle."""
    params: Any = session.config.sources["fine"]
    corpus = open_corpus(session)
    texts, n = corpus.texts, len(corpus)
    model = CrossEncoder(str(cross), device="cpu")
    distinct = list(dict.fromkeys(texts))
    scores_both_orders = model.predict([(a, b) for a in distinct for b in distinct], show_progress_bar=False)
    fine = dict(zip([(a, b) for a in distinct for b in distinct], scores_both_orders.astype(np.float64), strict=True))
    near = stages.open_label(session, params.gate, "all") if params.gate else None
    out = np.zeros((n, n))
    for i in range(n):
        row = np.full(n, i, np.int32)
        coarse = near.pairs(References.single(row), np.arange(n, dtype=np.int32), "first") if near else np.ones(n)
        for j in range(n):
            if texts[i] == texts[j]:
                out[i, j] = 1
            elif near is None or coarse[j] >= params.threshold:
                out[i, j] = fine[texts[i], texts[j]]
                out[i, j] = (out[i, j] + fine[texts[j], texts[i]]) / 2
    return out


VARIANTS: list[dict[str, Any]] = [{"gate": None}, {"threshold": 2.0}]


@pytest.mark.parametrize("params", [{}, *(pytest.param(p, marks=pytest.mark.slow) for p in VARIANTS)], ids=str)
def test_every_pair_against_an_explicit_loop(gated: MakeGated, make_cross: Any, params: dict[str, Any]) -> None:
    session = gated(**params)
    relevance, expected = opened(session), loop(session, make_cross())
    n = len(open_corpus(session))
    left, right = np.indices((n, n), np.int32).reshape(2, -1)
    scores = relevance.pairs(References.single(left), right, "first").reshape(n, n)
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    if params.get("gate", "near") is not None and params.get("threshold", 0) < 1:
        assert 0.1 < np.mean(scores == 0) < 0.9, "the gate decides nothing"
    np.testing.assert_array_equal(scores, scores.T)
    corpus = open_corpus(session)
    sets = corpus.references(range(len(corpus.image_ids)))
    captions = np.arange(0, n, 3, dtype=np.int32)
    how: list[tuple[Pooling, Any]] = [("max", np.max), ("mean", np.mean), ("first", lambda x, axis: x[0])]
    for pooling, reduce in how:
        block = relevance.block(sets, captions, pooling)
        for m in range(len(sets)):
            expected_column = reduce(scores[sets[m]][:, captions], axis=0)
            np.testing.assert_allclose(block[m], expected_column, atol=1e-12)
            again = relevance.pairs(sets.take(np.full(len(captions), m)), captions, pooling)
            np.testing.assert_array_equal(again, block[m])


def test_each_distinct_pair_is_scored_once_per_call(gated: MakeGated, monkeypatch: pytest.MonkeyPatch) -> None:
    session = gated()
    requests, scored = list[tuple[str, str]](), PairScorer.score

    def score(self: PairScorer, first: Any, second: Any) -> Any:
        requests.extend(zip(first, second, strict=True))
        return scored(self, first, second)

    monkeypatch.setattr(PairScorer, "score", score)
    left, right = np.indices((len(open_corpus(session)),) * 2, np.int32).reshape(2, -1)
    opened(session).pairs(References.single(left), right, "first")
    assert len(set(requests)) == len(requests) > 100


def test_a_text_stands_for_all_its_rows_that_have_not_failed(gated: MakeGated) -> None:
    session = gated(threshold=0.3)
    corpus = open_corpus(session)
    texts, n = corpus.texts, len(corpus)
    failed, *same = next(rows for text in texts if len(rows := [i for i in range(n) if texts[i] == text]) > 2)
    relevance: Any = opened(session)
    # A gate of vectors that differ between captions of one text, of which the first has failed.
    vectors = np.random.default_rng(0).standard_normal(relevance.coarse.vectors.shape).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors[failed] = np.nan
    rows, every = np.array([failed], np.int32), np.arange(n, dtype=np.int32)
    relevance = replace(relevance, coarse=replace(relevance.coarse, vectors=vectors, failed=rows), failed=rows)
    block = relevance.block(References.single(every), every, "first")
    assert np.isnan(block[failed]).all()
    assert np.isnan(block[:, failed]).all()
    for row in same[1:]:
        np.testing.assert_array_equal(block[row], block[same[0]])
        np.testing.assert_array_equal(block[:, row], block[:, same[0]])
