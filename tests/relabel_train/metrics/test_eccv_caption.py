"""Contract: positives of ECCV Caption and CxC are read as stored, and figures equal those of the package
eccv_caption.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from relabel_train.metrics import Positives, ReportSettings, read_positives, retrieval_report

KS = (1, 5, 10)


def data() -> Path:
    spec = find_spec("eccv_caption")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("eccv_caption is not installed")
    return Path(next(iter(spec.submodule_search_locations))) / "data"


@pytest.fixture(scope="module")
def gallery() -> tuple[list[int], list[int], NDArray[np.int64]]:
    """Return image ids in the order of their captions, caption ids, and the image of each caption."""
    captions = np.load(data() / "coco_test_ids.npy").tolist()
    owner = json.loads((data() / "original_caption_to_image.json").read_text())
    images = list(dict.fromkeys(owner[str(c)][0] for c in captions))
    place = {name: row for row, name in enumerate(images)}
    return images, captions, np.array([place[owner[str(c)][0]] for c in captions])


def sets(name: str, images: list[int], captions: list[int], partial: bool = False) -> Positives:
    files = [data() / f"{name}_{which}.json" for which in ("image_to_caption", "caption_to_image")]
    names = [[f"coco:{i}" for i in ids] for ids in (images, captions)]
    return read_positives(*files, *names, partial=partial)


def test_counts_of_the_data(gallery: tuple[list[int], list[int], NDArray[np.int64]]) -> None:
    images, captions, image = gallery
    eccv, cxc = sets("eccv", images, captions), sets("cxc", images, captions)
    assert (len(eccv.i2t), int(eccv.i2t.total.sum())) == (1261, 22550)  # the README of eccv_caption exchanges the two
    assert (len(eccv.t2i), int(eccv.t2i.total.sum())) == (1332, 11279)
    assert (int(eccv.i2t.total.min()), int(eccv.i2t.total.max()), int(eccv.t2i.total.max())) == (6, 48, 19)
    short = np.flatnonzero(np.diff(eccv.i2t.indptr) < eccv.i2t.total)
    assert len(short) == 2  # two images have positives outside the 25,000; they count in R
    assert len(cxc.t2i) == 24972
    assert (len(cxc.i2t), int(cxc.t2i.total.sum())) == (5000, 35585)
    assert np.array_equal(np.bincount(image), np.full(5000, 5))


def test_a_partial_gallery(gallery: tuple[list[int], list[int], NDArray[np.int64]]) -> None:
    functions = pytest.importorskip("eccv_caption._metrics")
    images, captions, image = gallery
    images, captions, image = images[:400], captions[:2000], image[:2000]
    generator = np.random.default_rng(0)
    scores = generator.standard_normal((400, 2000), np.float32)
    scores[image, np.arange(2000)] += 2
    partial_sets = {name: sets(name, images, captions, partial=True) for name in ("eccv", "cxc")}
    report = retrieval_report(scores, image, positives=partial_sets, settings=ReportSettings(recall_only=()))
    ranked = lists(scores, images, captions)
    for name, positives in partial_sets.items():
        for side, part in (("i2t", positives.i2t), ("t2i", positives.t2i)):
            query_ids, items = (images, captions) if side == "i2t" else (captions, images)
            truth = {
                query_ids[q]: [items[j] for j in part.items[part.indptr[i] : part.indptr[i + 1]]]
                + [-n - 1 for n in range(k)]
                for i, (q, k) in enumerate(zip(part.queries, part.total - np.diff(part.indptr), strict=True))
            }
            theirs = functions.compute_eccv_metrics(ranked[side], truth)
            values = {"map_at_r": theirs["eccv_map_at_r"], "r_precision": theirs["eccv_rprecision"]}
            values |= {f"r{k}": functions.compute_r_at_k(ranked[side], truth, K=k) for k in KS}
            for metric, value in values.items():
                assert getattr(report[f"{name}.{metric}_percent"], side) == pytest.approx(100 * value, abs=1e-9)


@pytest.mark.slow
def test_the_complete_gallery(gallery: tuple[list[int], list[int], NDArray[np.int64]]) -> None:
    package = pytest.importorskip("eccv_caption")
    images, captions, image = gallery
    generator = np.random.default_rng(0)
    scores = generator.standard_normal((5000, 25000), np.float32)
    scores[image, np.arange(25000)] += 3
    positives = {name: sets(name, images, captions) for name in ("eccv", "cxc")}
    report = retrieval_report(scores, image, positives=positives, folds=5, settings=ReportSettings(recall_ks=KS))
    ranked = lists(scores, images, captions, 2000)  # long enough for ten items of each fold
    names = ("eccv_map_at_r", "coco_1k_recalls", "coco_5k_recalls", "cxc_recalls")
    theirs = package.Metrics().compute_all_metrics(ranked["i2t"], ranked["t2i"], names, KS)
    theirs |= {f"eccv_r{k}": package.Metrics().eccv_recalls(ranked, "all", k) for k in KS}
    ours = {"coco_1k": "folds", "coco_5k": "all", "cxc": "cxc", "eccv": "eccv"}
    for name, value in theirs.items():
        protocol, metric = name.rsplit("_r", 1) if "map" not in name else ("eccv", "")
        field = f"{ours[protocol]}.r{metric}_percent" if metric else "eccv.map_at_r_percent"
        for side in ("i2t", "t2i"):
            assert getattr(report[field], side) == pytest.approx(100 * value[side], abs=1e-9), (name, side)


def lists(scores: NDArray[np.float32], images: list[int], captions: list[int], k: int | None = None) -> dict[str, Any]:
    """Return ranked lists of ids for the package; scores have no ties."""
    out: dict[str, Any] = {}
    for side, matrix, query_ids, items in (("i2t", scores, images, captions), ("t2i", scores.T, captions, images)):
        names = np.array(items)
        out[side] = {q: names[np.argsort(-row)[:k]].tolist() for q, row in zip(query_ids, matrix, strict=True)}
    return out
