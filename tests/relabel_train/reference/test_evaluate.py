"""Contract: the figures of a trained model are those of its embeddings. Held-out captions are neither positives nor
queries.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.relabel_train.reference.runs import Run, held

from relabel.stages import Session
from relabel_train.features import Features, open_features
from relabel_train.lookup import open_lookup
from relabel_train.metrics import Ranking, ReportSettings, RetrievalReport, cs_at_k, ideal_labels, ncs, retrieval_report
from relabel_train.reference import evaluate as module
from relabel_train.reference.data import SplitData, read_split
from relabel_train.reference.evaluate import POSITIVES, evaluate, open_positives, score
from relabel_train.reference.fit import fit
from relabel_train.reference.options import FitError, FitOptions
from relabel_train.reference.runs import load_model

PLAIN = ReportSettings(kendall_tau=False, semantic_ms=())
CPU = torch.device("cpu")


def fitted(options: FitOptions) -> tuple[Any, SplitData, Features]:
    """Train, and return the model with the test split and its features."""
    fit(options, "cpu")
    features = open_features(options.features, namespace="coco")
    return load_model(options.out), read_split(options.captions, "test", features), features


def assert_figures_of(report: RetrievalReport, scores: Any, image: Any) -> None:
    """Check figures of scores that may differ from these by rounding.

    Nearly tied pairs may change places, so each figure lies between those of own pairs scored lower and higher.
    """
    own = image == np.arange(len(scores))[:, None]
    bounds = [retrieval_report(scores + sign * 1e-5 * own, image, settings=PLAIN) for sign in (-1, 1)]
    for figure, *others in zip(report, *bounds, strict=True):
        for side in ("i2t", "t2i", "both"):
            value, *ends = (getattr(one, side) for one in (figure, *others))
            assert value is None if None in ends else min(ends) <= value <= max(ends), (figure.name, side)


def test_figures_equal_those_of_the_embeddings(run: Run, small_project: Session) -> None:
    """Check all images, and `images`: gallery and queries are the first five images and their captions."""
    options = run(epochs=3, lr=0.02)
    model, split, features = fitted(options)
    scores = score(model, split, features, CPU)
    plain, other = (small_project.folder("exports", "all", "lookup", name) for name in ("cider_plain", "cider"))
    report = evaluate(held(options, lookup=(other, plain, other)), "cpu")
    assert list(report.graded) == ["cider", "cider_plain", str(other)]
    graded = report.graded["cider"]
    assert (graded.images, graded.captions) == (6, int((split.image < 6).sum()))
    assert graded["labels.ndcg"].i2t is not None
    assert json.loads(json.dumps(report.to_json())) == report.to_json()
    for given, used in ((0, len(scores)), (5, 5), (10**6, len(scores))):
        own = split.image < used
        part = evaluate(held(options, images=given), "cpu").retrieval
        assert_figures_of(part, scores[:used][:, own], split.image[own])
    with pytest.raises(FitError, match="`images` or `eccv`"):
        evaluate(held(options, images=5, eccv=Path("eccv")), "cpu")
    with pytest.raises(FitError, match="5 images cannot be cut into 2 folds"):
        evaluate(held(options, images=5, folds=2), "cpu")


def written_positives(folder: Path, split: SplitData) -> dict[str, dict[str, list[str]]]:
    """Write files of positives as the datasets have them; return CxC's: every second caption is also of image 0."""
    number = [name.removeprefix("coco:") for name in split.image_ids]
    captions = [name.removeprefix("coco:") for name in split.caption_ids]
    t2i = {c: [number[i]] + [number[0]] * (j % 2) for j, (c, i) in enumerate(zip(captions, split.image, strict=True))}
    i2t: dict[str, list[str]] = {}
    for caption, images in t2i.items():
        for image in images:
            i2t.setdefault(image, []).append(caption)
    for way, content in (("image_to_caption", i2t), ("caption_to_image", t2i)):
        (folder / f"cxc_{way}.json").write_text(json.dumps(content))
        (folder / f"eccv_{way}.json").write_text("{}")
    return {"i2t": i2t, "t2i": t2i}


def test_options_choose_the_papers_protocols(run: Run, small_project: Session, tmp_path: Path) -> None:
    """Check CxC's recall, any K of CS@K, one caption per image, Semantic Recall and NCS over folds, from the options.

    CxC's recall and Semantic Recall are compared with loops. The others are metrics with tests of their own: here it is
    checked which images, captions and labels they get.
    """
    options = run(epochs=3, lr=0.02)
    model, split, features = fitted(options)
    scores = score(model, split, features, CPU)
    content = written_positives(tmp_path, split)
    lookup = open_lookup(small_project.folder("exports", "all", "lookup", "cider"))
    given: dict[str, Any] = {"cs_ks": (3, 7), "one_caption": True, "semantic_ms": (2,), "folds": 2}
    report = evaluate(held(options, lookup=(lookup.folder,), eccv=tmp_path, **given), "cpu")

    number = {name.removeprefix("coco:"): i for i, name in enumerate(split.image_ids)}
    column = {name.removeprefix("coco:"): j for j, name in enumerate(split.caption_ids)}
    for k in (1, 5):
        found = report.retrieval[f"cxc.r{k}_percent"]
        hits = [
            max(scores[number[i], column[c]] for c in cs) >= sorted(scores[number[i]])[-k]
            for i, cs in content["i2t"].items()
        ]
        assert found.i2t == pytest.approx(100 * sum(hits) / len(hits))
        hits = [
            max(scores[number[i], column[c]] for i in ims) >= sorted(scores[:, column[c]])[-k]
            for c, ims in content["t2i"].items()
        ]
        assert found.t2i == pytest.approx(100 * sum(hits) / len(hits))
    assert any("CxC: " in note for note in report.notes)

    graded, rows = report.graded["cider"], lookup.rows_of(split.caption_ids)
    some = np.flatnonzero(split.image < 6)
    labels, part = lookup.block(lookup.rows_of_images(split.image_ids[:6]), rows[some]), scores[:6][:, some]
    for k in (3, 7):
        assert graded[f"labels.cs{k}"].i2t == pytest.approx(np.nanmean(cs_at_k(Ranking(part, labels).best(k), k)))
    with pytest.raises(KeyError):
        graded["labels.cs100"]

    first = [split.image.tolist().index(i) for i in range(6)]
    alone = lookup.block(rows[first], rows[first], pooling="first")
    ranking = Ranking(scores[:6][:, first], alone)
    assert graded["one_caption.cs7"].i2t == pytest.approx(np.nanmean(cs_at_k(ranking.best(7), 7)))
    assert not np.allclose(alone, lookup.block(rows[first], rows[first]))  # more references give other labels

    shares = []
    for i in range(6):
        own = [j for j, c in enumerate(some) if split.image[c] == i]
        others = sorted((j for j in range(len(some)) if j not in own), key=lambda j: (-labels[i, j], j))[:2]
        order = sorted(range(len(some)), key=lambda j: -part[i, j])
        shares.append(len({*order[:5]} & {*own, *others}) / len({*own, *others}))
    assert graded["labels.semantic_recall5_m2_percent"].i2t == pytest.approx(100 * sum(shares) / 6)

    means, half = [], len(split.image_ids) // 2
    for rest in (range(half), range(half, 2 * half)):
        cut = np.isin(split.image, rest)
        labels = lookup.block(lookup.rows_of_images([split.image_ids[i] for i in rest]), rows[cut])
        ranked = Ranking(scores[list(rest)][:, cut], labels).best(5).labels
        means.append(100 * ncs(ranked, ideal_labels(labels), 5).mean())
    assert graded["folds.ncs5_percent"].i2t == pytest.approx(sum(means) / 2)


def test_models_of_sets_score_in_blocks_and_are_averaged(
    run: Run, small_project: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that scores are those of one call, in the order of the split, and `average` those of both models."""
    runs, each = [run(name, model=name, epochs=2, lr=0.01) for name in ("sgr", "saf")], []
    monkeypatch.setattr(module, "BATCH", 2)
    for options in runs:
        model, split, features = fitted(options)
        each.append(score(model, split, features, CPU))
        vectors, regions = (torch.from_numpy(a) for a in features.take(split.feature))
        with torch.no_grad():
            encoded = model.encode_images(vectors, regions), model.encode_captions(*model.tokens(split.texts))
            np.testing.assert_allclose(each[-1], model.scores(*encoded).numpy(), rtol=1e-5)
    lookup = small_project.folder("exports", "all", "lookup", "cider")
    report = evaluate(held(runs[0], average=(runs[1].out,), lookup=(lookup,)), "cpu")
    assert_figures_of(report.retrieval, (each[0] + each[1]) / 2, split.image)
    assert report.retrieval.to_json() != evaluate(held(runs[0]), "cpu").retrieval.to_json()
    assert report.graded["cider"]["labels.ndcg"].i2t is not None


@pytest.fixture
def held_out() -> tuple[SplitData, set[str]]:
    """Return four captions of two images, and two held-out captions."""
    captions, images = (np.array([f"coco:{n}" for n in ids], object) for ids in ((10, 11, 20, 21), (1, 2)))
    split = SplitData(captions, captions, images, np.array([0, 0, 1, 1]), np.array([0, 1]))
    return split, {"coco:12", "coco:22"}


@pytest.mark.parametrize("name", POSITIVES)
def test_held_out_captions_are_neither_positives_nor_queries(name: str, held_out: Any, tmp_path: Path) -> None:
    (tmp_path / f"{name}_image_to_caption.json").write_text('{"1": [10, 12, 20], "2": [22], "9": [10]}')
    (tmp_path / f"{name}_caption_to_image.json").write_text('{"10": [1, 2], "12": [1], "21": [2, 9]}')
    found = open_positives(tmp_path, name, *held_out)
    assert (found.i2t.queries.tolist(), found.i2t.items.tolist(), found.i2t.total.tolist()) == ([0], [0, 2], [2])
    assert (found.t2i.queries.tolist(), found.t2i.total.tolist()) == ([0, 3], [2, 2])
    with pytest.raises(FileNotFoundError, match=f"{name}_image_to_caption.json"):
        open_positives(tmp_path / "gone", name, *held_out)


@pytest.mark.parametrize("content", [b"", b"\xff", b"[" * 100_000, b"9" * 5000, b"[]", b'{"1": 2}'])
def test_damaged_positives_are_named(content: bytes, held_out: Any, tmp_path: Path) -> None:
    (tmp_path / "eccv_image_to_caption.json").write_bytes(content)
    with pytest.raises(FitError, match="eccv_image_to_caption"):
        open_positives(tmp_path, "eccv", *held_out)
