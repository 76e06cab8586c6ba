"""Contract: the figures of a trained model are those of its embeddings. Held-out captions are neither positives nor
queries.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.relabel_train.reference.runs import held

from relabel.stages import Project
from relabel_train.metrics import ReportSettings, retrieval_report
from relabel_train.reference.data import Split, read_split
from relabel_train.reference.evaluate import ECCV_FILES, evaluate, positives_without_held_out
from relabel_train.reference.features import Features, open_features
from relabel_train.reference.fit import fit, load_model
from relabel_train.reference.options import FitOptions
from relabel_train.reference.scoring import embed, score

pytestmark = pytest.mark.usefixtures("one_thread")


def test_figures_equal_those_of_the_embeddings(run: Callable[..., FitOptions], small_project: Project) -> None:
    options = run(epochs=3, lr=0.02)
    fit(options, "cpu")
    lookup = small_project.folder("exports", "all", "lookup", "cider")
    report = evaluate(held(options, labels=(lookup,)), "cpu")
    features = open_features(options.data, namespace="coco")
    split = read_split(options.captions, "test", features)
    images, captions = embed(load_model(options.out)[0], split, features, torch.device("cpu"))
    scores = images @ captions.T
    hits = [split.image[int(np.argmax(row))] == i for i, row in enumerate(scores) if (split.image == i).any()]
    back = [int(np.argmax(scores[:, j])) == split.image[j] for j in range(len(captions))]
    figure = report.retrieval["all.r1_percent"]
    assert figure.i2t == pytest.approx(100 * np.mean(hits))
    assert figure.t2i == pytest.approx(100 * np.mean(back))
    graded = report.graded["cider"]
    assert graded.images == 6
    assert graded.captions == int((split.image < 6).sum())
    assert graded["labels.ndcg"].i2t is not None
    body = report.to_json()
    assert json.loads(json.dumps(body)) == body
    assert body["proxy"] is None
    assert "Against the label cider, 6 images" in report.text()
    others = evaluate(
        held(options, labels=(lookup, small_project.folder("exports", "all", "lookup", "cider_plain"), lookup)), "cpu"
    )
    assert list(others.graded) == ["cider", "cider_plain", str(lookup)]


def test_sgraf_is_the_average_of_two_runs(run: Callable[..., FitOptions], small_project: Project) -> None:
    """Check `average` for SGR and SAF: the figures are those of the mean of both score matrices."""
    runs = [run(name, model=name, epochs=2, lr=0.01) for name in ("sgr", "saf")]
    for options in runs:
        fit(options, "cpu")
    features = open_features(runs[0].data, namespace="coco")
    split = read_split(runs[0].captions, "test", features)
    each = [score(load_model(o.out)[0], split, features, torch.device("cpu")) for o in runs]
    lookup = small_project.folder("exports", "all", "lookup", "cider")
    report = evaluate(held(runs[0], average=(runs[1].out,), labels=(lookup,)), "cpu")
    mean = (each[0] + each[1]) / 2
    expected = retrieval_report(mean, split.image, settings=ReportSettings(kendall_tau=False, semantic_ms=()))
    assert report.retrieval.to_json() == expected.to_json()
    assert report.retrieval.to_json() != evaluate(held(runs[0]), "cpu").retrieval.to_json()
    assert report.graded["cider"]["labels.ndcg"].i2t is not None


def test_held_out_captions_are_neither_positives_nor_queries(tmp_path: Path) -> None:
    names = ["coco:10", "coco:11", "coco:20", "coco:21"]
    split = Split(names, [""] * 4, ["coco:1", "coco:2"], np.array([0, 0, 1, 1]), np.array([0, 1]))
    array = np.zeros((2, 1, 1), np.float32)
    features = Features([array], split.image_ids, None, {"held_out": ["coco:12", "coco:22"]}, lambda: features)
    (tmp_path / ECCV_FILES[0]).write_text(json.dumps({"1": [10, 12, 20], "2": [22], "9": [10]}), encoding="utf-8")
    (tmp_path / ECCV_FILES[1]).write_text(json.dumps({"10": [1, 2], "12": [1], "21": [2, 9]}), encoding="utf-8")
    positives, note = positives_without_held_out(tmp_path, split, features)
    assert positives.i2t.queries.tolist() == [0]
    assert positives.i2t.items.tolist() == [0, 2]
    assert positives.i2t.total.tolist() == [2]
    assert positives.t2i.queries.tolist() == [0, 3]
    assert positives.t2i.total.tolist() == [2, 2]
    assert "1 of 3 image queries, 2 of 3 caption queries; 2 positives stand in" in note
    with pytest.raises(FileNotFoundError, match="relabel fetch eccv"):
        positives_without_held_out(tmp_path / "gone", split, features)
