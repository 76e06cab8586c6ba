"""Contract: a calibration is that of the label's scores of CxC's val pairs; labels with the default parameters of their
source have a shipped one, which equals what the code fits to real captions; a lookup carries the curve, and gives the
values of `Label.probability` and `Label.expected`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.golden.today import Folder, coco_captions

import relabel
from relabel import stages
from relabel.config import load_config
from relabel.core.errors import UsageError
from relabel.core.runtime import Runtime
from relabel.datasets.cxc import human_scores
from relabel.judge.calibration import calibrate, read_calibration
from relabel.judge.cxc import read_cxc
from relabel.stages import Session
from relabel.stages.calibrate import SHIPPED, calibration, check_curves, find_calibration, need_calibration, shipped
from relabel_train.lookup import RelevanceCollate, open_lookup


def session_of(tmp_path: Path, *settings: str) -> Session:
    return Session(load_config(None, ["ingest.dataset=mine", "ingest.namespace=mine", *settings]), Runtime(), tmp_path)


def test_default_parameters_have_a_shipped_curve_and_others_have_none(tmp_path: Path) -> None:
    entries = json.loads(SHIPPED.read_bytes())["labels"]
    assert {"sbert", "cider"} <= {*entries}
    for label, entry in entries.items():
        found = find_calibration(session_of(tmp_path), label)
        assert found is not None
        assert found.curve.is_valid
        assert found.curve.relevance == tuple(entry["calibration"]["curve"]["relevance"])
        with pytest.raises(UsageError, match=rf"{label} has no calibration.*--split val --label {label}"):
            need_calibration(session_of(tmp_path, f"sources.{label}.pooling=first"), label)


@pytest.fixture
def project(tmp_path: Path) -> Folder:
    """Return a project of the images of CxC's first 250 val pairs of two images, and a label of no shipped curve."""
    folder = Folder(tmp_path / "project", "val")
    ingest = {"dataset": "coco", "format": "jsonl", "path": "captions.jsonl", "expected": {}}
    sources = {"words": {"source": "cider", "tokenizer": "lower_split", "sigma": 5.0}}
    human = human_scores("sits", "val")
    image_of = {c: i for c, i, m in zip(human.left, human.right, human.method, strict=True) if m == "c2i_original"}
    others = [(c, i) for c, i, m in zip(human.left, human.right, human.method, strict=True) if m != "c2i_original"]
    images = {image.partition(":")[2] for c, i in others[:250] for image in (image_of[c], i)}
    captions = [one for one in coco_captions({"val": 5000}) if one["image_id"] in images]
    folder.write(captions, {"sources": sources, "ingest": ingest, "judge": {"resamples": 20}})
    return folder


def test_a_lookup_carries_the_curve_of_the_labels_own_scores(project: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.path)
    project.done("ingest")
    project.done("correlate", "--cxc", "--split", "val", "--label", "words")
    project.done("export", "lookup", "--label", "words", "--split", "val")
    folder = Path("labels/coco")
    found = read_calibration(folder / "calibrations" / "words")
    pairs = read_cxc(folder / "judgements" / "val" / "words", "val")["sits"]
    assert found is not None
    assert found == calibrate(pairs, 20, 0)
    lookup = open_lookup(folder / "exports" / "val" / "lookup" / "words")
    assert lookup.about.curve == found.curve
    label = relabel.load("labels/coco", "words", split="val")
    images, captions = label.image_ids[:6], [label.corpus.caption_ids[i] for i in label.corpus.indptr[:6]]
    batch: dict[str, Any] = {}
    for scale in ("probability", "expected"):
        collate = RelevanceCollate(lookup, scale=scale)  # type: ignore[arg-type]
        batch[scale] = collate([{"caption_id": caption} for caption in captions])["relevance"].numpy()
    np.testing.assert_allclose(batch["probability"], label.probability(images, captions), rtol=1e-5)
    np.testing.assert_allclose(5 * batch["expected"], label.expected(images, captions), rtol=1e-5)
    own = found.curve.own
    np.testing.assert_allclose(np.diag(label.expected(images, captions)), own[0])
    relevance = label.block(images, captions)[0, 1]
    assert label.probability(images, captions)[0, 1] == np.interp(
        relevance, found.curve.relevance, found.curve.probability
    )
    # With other parameters, a lookup and figures leave the curve out, and say so.
    stale = Session(load_config(Path("params.yaml"), ["judge.resamples=10"]), Runtime())
    assert check_curves(stale, ["words"]) == {}
    stages.lookup_export(stale, "words", "val").run()
    assert open_lookup(folder / "exports" / "val" / "lookup" / "words").about.curve is None
    texts = [text for text in stale.notes.logged if "resamples (20 there, 10 here)" in text]
    assert sorted(text.split(" has no calibration")[0] for text in texts) == ["figures words", "lookup words"]


def test_a_lookup_without_a_curve_has_relevance_only(project: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.path)
    project.done("ingest")
    project.done("encode", "--label", "words", "--split", "val")
    project.done("export", "lookup", "--label", "words", "--split", "val")
    lookup = open_lookup("labels/coco/exports/val/lookup/words")
    assert lookup.about.curve is None
    with pytest.raises(ValueError, match=r"words: the lookup has no curve .*correlate --cxc --split val"):
        RelevanceCollate(lookup, scale="expected")
    with pytest.raises(ValueError, match=r"words: the lookup has no curve for ignore=0.5.*correlate --cxc --split val"):
        RelevanceCollate(lookup, ignore=0.5)
    with pytest.raises(ValueError, match="no scale 'score'"):
        RelevanceCollate(lookup, scale="score")  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.timeout(900)
def test_shipped_curves_are_those_of_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(tmp_path, "val")
    ingest = {"dataset": "coco", "format": "jsonl", "path": "captions.jsonl", "expected": {}}
    judged = {"split": "val", "tasks": ["sits"], "resamples": 20}
    folder.write(coco_captions({"val": 5000}), {"ingest": ingest, "judge": judged})
    monkeypatch.chdir(tmp_path)
    folder.done("ingest")
    labels = ["cider", "cider_lower_split"]  # the others take minutes, and run the same code
    folder.done("correlate", "--cxc", "--split", "val", "--label", ",".join(labels))
    session = Session(load_config(tmp_path / "params.yaml"), Runtime(data=tmp_path / "data"), tmp_path / "labels")
    grid = np.linspace(0, 5, 200)
    for label in labels:
        job, stated = calibration(session, label), shipped(session.config.params(label))
        made = read_calibration(job.out)
        assert made is not None
        assert stated is not None
        assert (made.pairs, made.images, made.curve.own) == (stated.pairs, stated.images, stated.curve.own)
        # A pair may be in the next group on another processor.
        for scale in ("expected", "probability"):
            a, b = (one.curve.evaluate(grid, scale) for one in (made, stated))  # type: ignore[arg-type]
            np.testing.assert_allclose(a, b, atol=5e-3)
