"""Contract: figures on the positives of ECCV Caption and CxC, and recalls, equal those of eccv_caption, ir_measures
and scikit-learn on the same lists. nDCG maps labels as S-NDCG does.
"""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from relabel_train.metrics import Positives, ReportSettings, ndcg, read_positives, retrieval_report

pytest.importorskip("eccv_caption")
KS = (1, 5, 10)
IMAGE = np.repeat(np.arange(20), 3)
DATA = Path(str(files("eccv_caption"))) / "data"
Gallery = tuple[list[int], list[int], NDArray[np.int64]]


@pytest.fixture(scope="module")
def gallery(coco_test_ids: NDArray[np.int64]) -> Gallery:
    """Return image ids in the order of their captions, caption ids, and the image of each caption."""
    owner = json.loads((DATA / "original_caption_to_image.json").read_text())
    owners = [owner[str(caption)][0] for caption in coco_test_ids]
    images = list(dict.fromkeys(owners))
    place = {name: row for row, name in enumerate(images)}
    return images, coco_test_ids.tolist(), np.array([place[name] for name in owners])


def sets(name: str, images: list[int], captions: list[int], partial: bool = False) -> Positives:
    paths = [DATA / f"{name}_{which}.json" for which in ("image_to_caption", "caption_to_image")]
    names = [[f"coco:{i}" for i in ids] for ids in (images, captions)]
    return read_positives(*paths, *names, partial=partial)


def drawn(shape: tuple[int, int], image: NDArray[np.int64], better: float) -> NDArray[np.float32]:
    scores = np.random.default_rng(0).standard_normal(shape, np.float32)
    scores[image, np.arange(shape[1])] += better
    return scores


def lists(scores: NDArray[np.float32], images: list[int], captions: list[int], k: int | None = None) -> dict[str, Any]:
    """Return ranked lists of ids for the package; scores have no ties."""
    out: dict[str, Any] = {}
    for side, matrix, query_ids, items in (("i2t", scores, images, captions), ("t2i", scores.T, captions, images)):
        names = np.array(items)
        out[side] = {q: names[np.argsort(-row)[:k]].tolist() for q, row in zip(query_ids, matrix, strict=True)}
    return out


def test_a_partial_gallery(gallery: Gallery) -> None:
    functions = pytest.importorskip("eccv_caption._metrics")
    images, captions, image = gallery[0][:400], gallery[1][:2000], gallery[2][:2000]
    scores = drawn((400, 2000), image, 2)
    partial_sets = {name: sets(name, images, captions, partial=True) for name in ("eccv", "cxc")}
    report = retrieval_report(scores, image, positives=partial_sets, settings=ReportSettings(recall_only=()))
    ranked = lists(scores, images, captions)
    for name, positives in partial_sets.items():
        for side, part in (("i2t", positives.i2t), ("t2i", positives.t2i)):
            query_ids, items = (images, captions) if side == "i2t" else (captions, images)
            truth = {}
            for i, query in enumerate(part.queries):
                inside = [items[j] for j in part.items[part.indptr[i] : part.indptr[i + 1]]]
                truth[query_ids[query]] = inside + [-n - 1 for n in range(part.total[i] - len(inside))]
            theirs = functions.compute_eccv_metrics(ranked[side], truth)
            values = {"map_at_r": theirs["eccv_map_at_r"], "r_precision": theirs["eccv_rprecision"]}
            values |= {f"r{k}": functions.compute_r_at_k(ranked[side], truth, K=k) for k in KS}
            for metric, value in values.items():
                assert getattr(report[f"{name}.{metric}_percent"], side) == pytest.approx(100 * value, abs=1e-9)


@pytest.mark.slow
def test_the_complete_gallery(gallery: Gallery) -> None:
    package = pytest.importorskip("eccv_caption")
    images, captions, image = gallery
    scores = drawn((5000, 25000), image, 3)
    positives = {name: sets(name, images, captions) for name in ("eccv", "cxc")}
    report = retrieval_report(scores, image, positives=positives, folds=5, settings=ReportSettings(recall_ks=KS))
    ranked = lists(scores, images, captions, 2000)  # long enough for ten items of each fold
    names = ("eccv_map_at_r", "coco_1k_recalls", "coco_5k_recalls", "cxc_recalls")
    theirs = package.Metrics().compute_all_metrics(ranked["i2t"], ranked["t2i"], names, KS)
    theirs |= {f"eccv_r{k}": package.Metrics().eccv_recalls(ranked, "all", k) for k in KS}
    ours = {"coco_1k": "folds", "coco_5k": "all", "cxc": "cxc", "eccv": "eccv", "eccv_map_at": "eccv.map_at_r"}
    for name, value in theirs.items():
        protocol, k = name.rsplit("_r", 1)
        field = f"{ours[protocol]}.r{k}_percent" if k else f"{ours[protocol]}_percent"
        for side in ("i2t", "t2i"):
            assert getattr(report[field], side) == pytest.approx(100 * value[side], abs=1e-9), (name, side)


def random(seed: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    generator = np.random.default_rng(seed)
    return generator.standard_normal((20, 60), np.float32), generator.random((20, 60), np.float32)


def test_ndcg_of_cosines_as_in_s_ndcg() -> None:
    scores, labels = random(4)
    cosines, low = labels * 2 - 1, ReportSettings(label_low=-1.0)
    value = retrieval_report(scores, IMAGE, relevance=cosines, settings=low)["labels.ndcg"].i2t
    assert value == pytest.approx(retrieval_report(scores, IMAGE, relevance=labels)["labels.ndcg"].i2t, abs=1e-6)
    with pytest.raises(ValueError, match=r"a label is -0\.\d+, below label_low = 0"):
        retrieval_report(scores, IMAGE, relevance=cosines)


@pytest.mark.slow  # importing scikit-learn takes seconds
def test_ndcg_equals_sklearn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    scores, labels = (v.astype(np.float64) for v in random(5))
    ranked, ideal = np.take_along_axis(labels, np.argsort(-scores, axis=1), 1), -np.sort(-labels, axis=1)
    for k in (None, 7):
        theirs = [metrics.ndcg_score([2**r - 1], [s], k=k) for s, r in zip(scores, labels, strict=True)]
        assert ndcg(ranked, ideal, k) == pytest.approx(np.array(theirs), abs=1e-9)


def test_recalls_equal_ir_measures() -> None:
    ir = pytest.importorskip("ir_measures")
    scores, _ = random(6)
    report = retrieval_report(scores, IMAGE)
    for direction, matrix in (("i2t", scores), ("t2i", scores.T)):
        run = [ir.ScoredDoc(str(q), str(d), float(s)) for q, row in enumerate(matrix) for d, s in enumerate(row)]
        truth = [ir.Qrel(*map(str, (i, j) if direction == "i2t" else (j, i)), 1) for j, i in enumerate(IMAGE)]
        figures = ir.calc_aggregate([ir.Success @ 5, ir.R @ 10], truth, run)
        assert getattr(report["all.r5_percent"], direction) == pytest.approx(100 * figures[ir.Success @ 5])
        assert getattr(report["all.ir_recall10_percent"], direction) == pytest.approx(100 * figures[ir.R @ 10])
