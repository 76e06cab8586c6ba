"""Contract: losses of label distances train on batches of images, with embeddings as the model gives them. Models are
measured by image-image retrieval: mean label distance and nDCG of the nearest images, by model and label, or random.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.relabel.export.formats import in_folder, with_params
from tests.relabel_train.reference.runs import Run, held, lines, state

from relabel import stages
from relabel.stages import Session
from relabel_train.features import open_features
from relabel_train.precomputed import PrecomputedBatches, open_batches
from relabel_train.reference.data import read_split
from relabel_train.reference.evaluate import encoded_images, evaluate, image_figures, score
from relabel_train.reference.fit import fit
from relabel_train.reference.options import FitError
from relabel_train.reference.runs import load_model

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def session(small_project: Session, tmp_path_factory: pytest.TempPathFactory) -> Session:
    session = in_folder(small_project, tmp_path_factory.mktemp("images"))
    stages.neighbour_table(session, "cbow", "all", "images").run()
    return session


def export(session: Session, split: str, sampler: str, size: int, **given: Any) -> Path:
    """Write batches of a split and return their folder."""
    given = {"items": "images", "sampler": sampler, "batch_size": size, **given}
    job = stages.batches_export(with_params(session, "batches", **given), "cbow", split, f"{split}-{sampler}-{size}")
    if not job.out.exists():
        job.run()
    return job.out


@pytest.fixture
def options(run: Run, session: Session) -> Any:
    """Return a function that makes the options of a tiny run on batches of images of the train split."""
    train, val = export(session, "train", "neighbour", 8, k=3, epochs=2), export(session, "val", "random", 20)
    given = {"lookup": None, "batches": train, "image_labels": val, "loss": "log_ratio"}
    return lambda name="run", **changed: run(name, **{**given, "epochs": 8, "lr": 0.02, **changed})


def labels_of(session: Session) -> PrecomputedBatches:
    return open_batches(export(session, "test", "random", 20))


@pytest.mark.parametrize("loss", ["log_ratio", "dense_triplet"])
def test_the_loss_alone_trains_images_and_ndcg_selects(loss: str, options: Any, session: Session) -> None:
    tiny = options(loss=loss)
    result = fit(tiny, "cpu")
    log = lines(tiny)
    found = [line["ndcg@10"] for line in log if line["kind"] == "evaluation"]
    assert result.best == max(found)
    model, features = load_model(tiny.out), open_features(tiny.features, namespace="coco")
    val = open_batches(tiny.image_labels)
    assert image_figures(model, val, features, CPU)["model"]["ndcg@10"] == pytest.approx(result.best, abs=1e-6)
    start = options("start", loss=loss, epochs=1, lr=1e-12)
    assert fit(start, "cpu").best < result.best
    for name, weight in state(start)["model"].items():
        changed = not torch.allclose(weight, state(tiny)["model"][name], atol=1e-5)
        # Captions take no part.
        assert changed == name.startswith("fc."), name


def test_normalize_keeps_or_sets_lengths_and_scores_are_cosines(options: Any) -> None:
    lengths = {}
    unit_log_ratio = {"name": "log_ratio", "unit_embeddings": True}
    for name, loss in (("default", "log_ratio"), ("unit", unit_log_ratio), ("triplet", "triplet")):
        tiny = options(name, epochs=1, loss=loss)
        fit(tiny, "cpu")
        model, features = load_model(tiny.out), open_features(tiny.features, namespace="coco")
        split = read_split(tiny.captions, "test", features)
        with torch.no_grad():
            captions = model.encode_captions(*model.tokens(split.texts.tolist()))
            vectors = encoded_images(model, split.feature, features, CPU), captions
        lengths[name] = torch.cat(vectors).norm(dim=1).numpy()
        unit = [(one / one.norm(dim=1, keepdim=True)).numpy() for one in vectors]
        np.testing.assert_allclose(score(model, split, features, CPU), unit[0] @ unit[1].T, atol=1e-5)
    assert abs(lengths["default"] - 1).max() > 0.1
    for name in ("unit", "triplet"):
        np.testing.assert_allclose(lengths[name], 1, atol=1e-5)


def test_anchors_and_triplet_change_the_loss(options: Any) -> None:
    first = {}
    for name, changed in (
        ("alone", {}),
        ("all", {"anchors": 0}),
        ("three", {"anchors": 3}),
        ("tied", {"triplet": 1.0}),
    ):
        tiny = options(name, epochs=1, loss={"name": "log_ratio", **changed})
        fit(tiny, "cpu")
        first[name] = next(line["loss"] for line in lines(tiny))
    assert len({round(loss, 6) for loss in first.values()}) == 4
    assert first["tied"] > first["alone"]


def test_what_cannot_train_or_select_is_named(options: Any, session: Session) -> None:
    captions = export(session, "train", "random", 8, items="captions")
    for changed, said in (
        ({"image_labels": None}, "RSUM cannot select: give --image-labels"),
        ({"batches": captions}, "--items images"),
        ({"loss": ["log_ratio", "bcls"]}, "bcls reads labels of pairs"),
        ({"image_labels": captions}, "batches of captions"),
    ):
        with pytest.raises(FitError, match=said):
            fit(options(f"run {said}", **changed), "cpu")
    tied = {"loss": {"name": "log_ratio", "triplet": 1.0}, "epochs": 1}
    fit(options("tied", image_labels=None, **tied), "cpu")
    with pytest.raises(FitError, match="image_labels was"):
        fit(options("tied", **tied), "cpu")


def test_figures_equal_loops(options: Any, session: Session) -> None:
    """Check every figure of the model and of the oracle, for all queries and for the first five."""
    tiny, labels = options(epochs=1), labels_of(session)
    fit(tiny, "cpu")
    model, features = load_model(tiny.out), open_features(tiny.features, namespace="coco")
    ids = labels.names(0)[1]
    with torch.no_grad():
        vectors = encoded_images(model, features.rows_of(ids), features, CPU).double().numpy()
    block = labels[0].relevance.astype(float)
    for queries in (5, 20):
        found = image_figures(model, labels, features, CPU, queries)
        assert list(found) == ["model", "random", "oracle"]
        assert list(found["model"]) == [f"{name}@{k}" for name in ("distance", "ndcg") for k in (1, 5, 10)]
        for k in (1, 5, 10):
            sums = np.zeros(3)
            for q in range(queries):
                others = [i for i in range(20) if i != q]
                apart = {i: 1 - block[q, i] for i in others}
                by_model = sorted(others, key=lambda i: (((vectors[i] - vectors[q]) ** 2).sum(), -apart[i]))[:k]
                by_label = sorted(others, key=apart.__getitem__)[:k]
                gains = [
                    sum(1 / (1 + apart[i]) / math.log2(2 + r) for r, i in enumerate(best))
                    for best in (by_model, by_label)
                ]
                means = [sum(apart[i] for i in best) / k for best in (by_model, by_label)]
                sums += [means[0], means[1], gains[0] / gains[1]]
            values = [found["model"][f"distance@{k}"], found["oracle"][f"distance@{k}"], found["model"][f"ndcg@{k}"]]
            assert values == pytest.approx(sums / queries, abs=1e-6)
            assert found["oracle"][f"ndcg@{k}"] == pytest.approx(1)
            assert found["oracle"][f"distance@{k}"] < found["random"][f"distance@{k}"]
    report = evaluate(held(tiny, image_labels=(labels.folder,)), "cpu")
    assert report.to_json()["image_figures"] == {"cbow": image_figures(model, labels, features, CPU)}


def test_a_model_of_sets_has_no_embeddings_to_compare(run: Run, session: Session) -> None:
    sets = run("sets", model="sgr", epochs=1)
    fit(sets, "cpu")
    with pytest.raises(FitError, match="set of vectors per item"):
        evaluate(held(sets, image_labels=(export(session, "test", "random", 20),)), "cpu")
