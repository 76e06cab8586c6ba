"""Contract: the gate decides by its exact score which pairs the cross-encoder scores. Pairs below it have relevance
0 or the gate's score. Both orders are averaged, each distinct unordered pair of texts is scored once per call, and a
text scores 1 against itself. Captions with one text have one relevance. Too many pairs are refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import CrossEncoder

from relabel import stages
from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.core.types import Pooling
from relabel.corpus import References
from relabel.sources.bert_sts import BertSts
from relabel.sources.bert_sts.params import BertStsParams
from relabel.sources.bert_sts.relevance import BertStsRelevance
from relabel.sources.bert_sts.scorer import PairScorer
from relabel.stages import Project

MakeGated = Callable[..., Project]


def opened(project: Project) -> BertStsRelevance:
    label = stages.open_label(project, "fine", "all")
    assert isinstance(label, BertStsRelevance)
    return label


def loop(project: Project, cross: Path) -> np.ndarray:
    """Score every pair of captions in turn, (N, N), as the oracle."""
    params: Any = project.config.sources["fine"]
    texts, n = project.corpus.texts, len(project.corpus)
    model = CrossEncoder(str(cross), device="cpu")
    distinct = list(dict.fromkeys(texts))
    scores_both_orders = model.predict([(a, b) for a in distinct for b in distinct], show_progress_bar=False)
    fine = dict(zip([(a, b) for a in distinct for b in distinct], scores_both_orders.astype(np.float64), strict=True))
    near = stages.open_label(project, params.gate, "all") if params.gate else None
    out = np.zeros((n, n))
    for i in range(n):
        row = np.full(n, i, np.int32)
        coarse = near.pairs(References.single(row), np.arange(n, dtype=np.int32), "paired") if near else np.ones(n)
        for j in range(n):
            if texts[i] == texts[j]:
                out[i, j] = 1
            elif near is None or coarse[j] >= params.threshold:
                out[i, j] = fine[texts[i], texts[j]]
                if params.orders == "both":
                    out[i, j] = (out[i, j] + fine[texts[j], texts[i]]) / 2
            elif params.below == "gate":
                out[i, j] = min(1, max(0, coarse[j]))
    return out


@pytest.mark.parametrize(
    "params", [{}, {"below": "gate"}, {"orders": "one"}, {"gate": None}, {"threshold": 2.0}], ids=str
)
def test_every_pair_against_an_explicit_loop(gated: MakeGated, make_cross: Any, params: dict[str, Any]) -> None:
    project = gated(**params)
    relevance, expected = opened(project), loop(project, make_cross())
    n = len(project.corpus)
    left, right = (np.asarray(a.reshape(-1), np.int32) for a in np.mgrid[:n, :n])
    scores = relevance.pairs(References.single(left), right, "paired").reshape(n, n)
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    if params.get("gate", "near") is not None and params.get("threshold", 0) < 1:
        assert 0.1 < np.mean(scores == 0) < 0.9 or params.get("below") == "gate", "the gate decides nothing"
    if params.get("orders") != "one":
        np.testing.assert_array_equal(scores, scores.T)
    sets = project.corpus.references(range(len(project.corpus.image_ids)))
    captions = np.arange(0, n, 3, dtype=np.int32)
    how: list[tuple[Pooling, Any]] = [("max", np.max), ("mean", np.mean), ("paired", lambda x, axis: x[0])]
    for pooling, reduce in how:
        block = relevance.block(sets, captions, pooling)
        for m in range(len(sets)):
            expected_column = reduce(scores[sets[m]][:, captions], axis=0)
            np.testing.assert_allclose(block[m], expected_column, atol=1e-12)
            again = relevance.pairs(sets.take(np.full(len(captions), m)), captions, pooling)
            np.testing.assert_array_equal(again, block[m])


def test_each_distinct_unordered_pair_is_scored_once_per_call(
    gated: MakeGated, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = gated()
    relevance, requests = opened(project), list[tuple[str, str]]()
    scored = PairScorer.score

    def score(self: PairScorer, first: Any, second: Any) -> Any:
        requests.extend(zip(first, second, strict=True))
        return scored(self, first, second)

    monkeypatch.setattr(PairScorer, "score", score)
    n, texts = len(project.corpus), project.corpus.texts
    left, right = (np.asarray(a.reshape(-1), np.int32) for a in np.mgrid[:n, :n])
    relevance.pairs(References.single(left), right, "paired")
    near = stages.open_label(project, "near", "all").pairs(References.single(left), right, "paired").reshape(n, n)
    passing = {(texts[i], texts[j]) for i, j in np.argwhere(near >= 0.5)}
    assert sorted(requests) == sorted((a, b) for a, b in passing if a != b)


def test_a_text_stands_for_all_its_rows_that_have_not_failed(gated: MakeGated) -> None:
    project = gated(threshold=0.3, below="gate")
    texts, n = project.corpus.texts, len(project.corpus)
    same = next(rows for text in texts if len(rows := [i for i in range(n) if texts[i] == text]) > 2)
    relevance: Any = opened(project)
    # A gate of vectors that differ between captions of one text, of which the first has failed.
    vectors = np.random.default_rng(0).standard_normal(relevance.coarse.vectors.shape).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors[same[0]] = np.nan
    failed = np.array(same[:1], np.int32)
    relevance = replace(relevance, coarse=replace(relevance.coarse, vectors=vectors, failed=failed), failed=failed)
    every = np.arange(n, dtype=np.int32)
    block = relevance.block(References.single(every), every, "paired")
    assert np.isnan(block[same[0]]).all()
    assert np.isnan(block[:, same[0]]).all()
    for row in same[2:]:
        np.testing.assert_array_equal(block[row], block[same[1]])
        np.testing.assert_array_equal(block[:, row], block[:, same[1]])
    first = next(row for row in range(n) if texts[row] not in (texts[same[0]], *texts[:row]))
    gate = float(vectors[first].astype(np.float64) @ vectors[same[1]].astype(np.float64))
    assert gate >= 0.3 or block[first, same[1]] == pytest.approx(max(0, gate))


def test_a_new_text(gated: MakeGated, make_cross: Any) -> None:
    project = gated()
    relevance, n = opened(project), len(project.corpus)
    rows = np.arange(n, dtype=np.int32)
    for i in (0, 5, 9):
        expected = relevance.pairs(References.single(np.full(n, i, np.int32)), rows, "paired")
        np.testing.assert_allclose(relevance.query(project.corpus.texts[i], rows), expected, atol=1e-6)
    assert relevance.query(f" {project.corpus.texts[5]} ", rows)[5] == 1


def test_facts_of_the_source(make_cross: Any) -> None:
    both_orders, one = (BertSts(BertStsParams(model=str(make_cross()), orders=o)) for o in ("both", "one"))  # type: ignore[arg-type]
    assert (both_orders.spec.symmetric, one.spec.symmetric, BertSts.spec.symmetric) == (True, False, True)
    assert both_orders.input_labels() == ("cbow",)
    assert BertSts(BertStsParams(gate=None)).input_labels() == ()
    with pytest.raises(UsageError, match="reads two captions"):
        BertSts(BertStsParams(pooling="refs"))


def test_bad_input_is_a_one_line_error(gated: MakeGated, make_cross: Any, tmp_path: Path) -> None:
    project = gated()

    def changed(**params: Any) -> Project:
        old = project.config.sources["fine"]
        sources = {**project.config.sources, "fine": old.model_copy(update=params)}
        return replace(project, config=project.config.model_copy(update={"sources": sources}))

    with pytest.raises(UsageError, match="2 labels"):
        stages.encode(changed(model=str(make_cross(labels=2))), "fine", "all").run()
    with pytest.raises(MissingError, match="relabel tune bert_sts"):
        stages.encode(changed(model="tuned"), "fine", "all").run()
    with pytest.raises(UsageError, match="no label 'nowhere'"):
        stages.encode(changed(gate="nowhere"), "fine", "all").run()
    other = changed(gate="again")
    sources = {**other.config.sources, "again": project.config.sources["fine"]}
    twice = replace(other, config=other.config.model_copy(update={"sources": sources}))
    stages.encode(twice, "again", "all").run()
    with pytest.raises(UsageError, match="not a label of vectors"):
        stages.encode(twice, "fine", "all").run()
    relevance = opened(project)
    assert relevance.scorer().limit == 66
    with pytest.raises(IndexError, match="encoded"):
        relevance.pairs(References.single(np.array([10_000], np.int32)), np.array([0], np.int32))


def test_a_model_other_than_the_encodings_is_refused(gated: MakeGated, make_cross: Any, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    folder.mkdir()
    for path in make_cross().iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    relevance = opened(gated(model=str(folder)))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"layer_norm_eps": 1e-6}))
    with pytest.raises(CheckError, match="not the model"):
        relevance.scorer()


def test_max_pairs_limits_a_plan(gated: MakeGated) -> None:
    settings = {"batch_size": 8, "batches": 4}
    project = gated(threshold=0.0)
    plan = project.config.export.plan.model_copy(update=settings)
    config = project.config.model_copy(update={"export": project.config.export.model_copy(update={"plan": plan})})
    project = replace(project, config=config)
    stages.export_plan(project, "fine", "all").run()
    fine = project.config.sources["fine"].model_copy(update={"max_pairs": 3})
    sources = {**project.config.sources, "fine": fine}
    strict = replace(project, config=project.config.model_copy(update={"sources": sources}))
    assert stages.encode(strict, "fine", "all").spec == stages.encode(project, "fine", "all").spec
    with pytest.raises(UsageError, match="max_pairs is 3"):
        stages.export_plan(strict, "fine", "all", "strict").run()
