"""Contract: metrics have their properties for any scores, and agree with other tools on the same lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from relabel_train.metrics import ReportSettings, ndcg, retrieval_report

IMAGE = np.repeat(np.arange(20), 3)


def random(seed: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    generator = np.random.default_rng(seed)
    return generator.standard_normal((20, 60), np.float32), generator.random((20, 60), np.float32)


def test_the_ideal_ranking_has_ncs_100() -> None:
    _, labels = random(0)
    report = retrieval_report(labels * 3 - 1, IMAGE, relevance=labels)
    for k in (1, 5, 10):
        for part in ("", "_without_gt"):
            figure = report[f"labels.ncs{k}{part}_percent"]
            assert figure.i2t == pytest.approx(100, abs=1e-6)
            assert figure.t2i == pytest.approx(100, abs=1e-6)
    assert report["labels.ndcg"].i2t == pytest.approx(1, abs=1e-12)
    assert report["labels.cs100"].t2i == report["labels.kendall_tau_a"].i2t == 1
    empty = retrieval_report(labels, IMAGE, relevance=labels * np.r_[0, np.ones(19)][:, None].astype(np.float32))
    assert empty["labels.ncs1_percent"].i2t == pytest.approx(95, abs=1e-6)  # a list without a label above 0 counts as 0


def test_ndcg_of_cosines_as_in_s_ndcg() -> None:
    scores, labels = random(4)
    cosines = labels * 2 - 1
    low = ReportSettings(label_low=-1.0)
    value = retrieval_report(scores, IMAGE, relevance=cosines, settings=low)["labels.ndcg"].i2t
    expected = retrieval_report(scores, IMAGE, relevance=(1 + cosines) / 2)["labels.ndcg"].i2t
    assert value == pytest.approx(expected, abs=1e-6)
    assert value != pytest.approx(retrieval_report(scores, IMAGE, relevance=cosines)["labels.ndcg"].i2t, abs=1e-3)


@pytest.mark.slow  # importing scikit-learn takes seconds
def test_ndcg_equals_sklearn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    scores, labels = (v.astype(np.float64) for v in random(5))
    order = np.argsort(-scores, axis=1)
    ranked, ideal = np.take_along_axis(labels, order, 1), -np.sort(-labels, axis=1)
    for k in (None, 7):
        theirs = [metrics.ndcg_score([2**r - 1], [s], k=k) for s, r in zip(scores, labels, strict=True)]
        assert ndcg(ranked, ideal, k) == pytest.approx(np.array(theirs), abs=1e-9)


def test_recalls_equal_ir_measures() -> None:
    ir = pytest.importorskip("ir_measures")
    scores, _ = random(6)
    report = retrieval_report(scores, IMAGE)
    for direction, matrix in (("i2t", scores), ("t2i", scores.T)):
        run = [ir.ScoredDoc(str(q), str(d), float(s)) for q, row in enumerate(matrix) for d, s in enumerate(row)]
        pairs = [(i, j) if direction == "i2t" else (j, i) for j, i in enumerate(IMAGE.tolist())]
        truth = [ir.Qrel(str(q), str(d), 1) for q, d in pairs]
        figures: dict[Any, float] = ir.calc_aggregate([ir.Success @ 5, ir.R @ 10], truth, run)
        assert getattr(report["all.r5_percent"], direction) == pytest.approx(100 * figures[ir.Success @ 5])
        assert getattr(report["all.ir_recall10_percent"], direction) == pytest.approx(100 * figures[ir.R @ 10])
