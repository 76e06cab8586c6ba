"""Contract: a label of type int8 has one quantised model for all datasets, which is an artefact of its own: calibrated
on captions of the dataset that needs it first, compared with float32, refused with the figure if it loses too much. Its
weights are part of the fingerprint of every encoding.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.relabel.sources.sbert.test_sbert import corpus

from relabel.core.errors import CheckError, MissingError
from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.sources.models.encoder import SentenceEncoder
from relabel.sources.sbert import Sbert, SbertParams, quantize
from relabel.store.artefact import build
from relabel.store.manifest import Manifest, read_manifest

ROWS = range(10)


@pytest.fixture(autouse=True)
def _loose(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accept the loss of a model with random weights."""
    monkeypatch.setattr(quantize, "_LEAST_COSINE", 0.9)


def source(model: Path, **params: Any) -> Sbert:
    return Sbert(SbertParams(model=str(model), dtype="int8", **params))


def built(sbert: Sbert, captions: Corpus, dataset: str, runtime: Runtime) -> tuple[Manifest, bool]:
    return build(sbert.int8_folder(runtime.data), sbert.int8_recipe(captions, dataset, runtime))


def test_one_model_serves_all_datasets(make_model: Any, tmp_path: Path) -> None:
    model, runtime = tmp_path / "model", Runtime(data=tmp_path / "data", device="cpu", threads=1)
    shutil.copytree(make_model(), model)
    sbert = source(model)
    with pytest.raises(MissingError):
        sbert.fingerprint_params(corpus(), ROWS, runtime)
    manifest, made = built(sbert, corpus(), "mine", runtime)
    assert made
    assert manifest.metadata["calibrated_on"] == "mine"
    assert 0.9 < manifest.metadata["cosine"]["least"] <= manifest.metadata["cosine"]["mean"] < 1
    assert built(sbert, corpus(["two dogs", "a cat"]), "yours", runtime) == (manifest, False)
    before = sbert.fingerprint_params(corpus(), ROWS, runtime)["int8"]
    # Another calibration of the same model: its encodings are others.
    shutil.rmtree(sbert.int8_folder(runtime.data))
    built(sbert, corpus(["two dogs", "a cat"]), "yours", runtime)
    assert sbert.fingerprint_params(corpus(), ROWS, runtime)["int8"] != before
    shutil.rmtree(model)
    shutil.copytree(make_model(seed=1), model)
    assert built(sbert, corpus(), "mine", runtime)[1]


def test_a_model_that_loses_too_much_is_refused(
    make_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantize, "_LEAST_COSINE", 1.01)
    runtime = Runtime(data=tmp_path, device="cpu", threads=1)
    with pytest.raises(CheckError, match=r"mean cosine with float32 is 0\.\d{4}, and has to be 1\.0100"):
        built(source(make_model()), corpus(), "mine", runtime)


@pytest.mark.slow
def test_minilm_keeps_its_agreement_with_people(coco: Corpus, minilm: Path, tmp_path: Path) -> None:
    """Check the figures on CxC val, and the vectors of captions that did not calibrate the model."""
    sbert, runtime = source(minilm), Runtime(data=tmp_path)
    manifest, _ = built(sbert, coco, "coco", runtime)
    for task in ("sts", "sits"):
        assert abs(manifest.metadata[task]["float32"] - manifest.metadata[task]["int8"]) < 0.002
    texts = [coco.texts[row] for row in coco.rows(("test",))[:500]]
    plain = SentenceEncoder(minilm, None, None, "float32", runtime).encode(texts).vectors
    int8 = sbert._encoder(sbert._files(runtime), runtime).encode(texts).vectors
    cosines = np.einsum("nd,nd->n", plain, int8)
    assert cosines.mean() > 0.997
    assert cosines.min() > 0.95
    assert read_manifest(sbert.int8_folder(tmp_path)) == manifest
