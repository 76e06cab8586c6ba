"""Contract: sbert is the cosine of a sentence-transformers model's unit vectors. A caption without a finite vector is a
failed row, and another model than the encoding's is refused. In bfloat16, its correlation with human scores is that of
float32. A label of type int8 has one quantised model for all datasets, calibrated on captions of the dataset
that needs it first and refused with the figure if it loses too much. Its weights are part of the fingerprint.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.stats import pearsonr
from sentence_transformers import SentenceTransformer
from tests.relabel.sources.encodings import corpus_of, encode, in_images

from relabel.core.errors import CheckError, MissingError
from relabel.core.runtime import Runtime
from relabel.corpus import Corpus, References
from relabel.judge.cxc import score_at_once
from relabel.sources.cosine import VectorRelevance
from relabel.sources.models.base import Encoder
from relabel.sources.models.encoder import SentenceEncoder
from relabel.sources.sbert import Sbert, SbertParams, quantize
from relabel.store.artefact import build
from relabel.store.manifest import Manifest

TEXTS = [
    *("A dog runs on the beach", "a small dog running", "Two cats sleep on a sofa", "A dog runs on the beach "),
    *("🚲 שלום", "two cats " * 200, "a man riding a bike", "a man rides a bicycle", "nul \x00 byte"),
    "A dog runs on the beach",
]
EVERY = np.arange(len(TEXTS), dtype=np.int32)


CORPUS = corpus_of(in_images(TEXTS, 2))


def encoded(out: Path, model: Path) -> tuple[VectorRelevance, Manifest]:
    return encode(Sbert(SbertParams(model=str(model))), CORPUS, out, None, 4, Runtime(device="cpu", threads=2))


def test_relevance_is_the_cosine_of_the_models_vectors(minilm: Path, tmp_path: Path) -> None:
    relevance, manifest = encoded(tmp_path / "e", minilm)
    expected = SentenceTransformer(str(minilm), device="cpu").encode(TEXTS, normalize_embeddings=True)
    block = relevance.block(References.single(EVERY), EVERY)
    loop = [[sum(float(x) * float(y) for x, y in zip(a, b, strict=True)) for b in expected] for a in expected]
    np.testing.assert_allclose(block, loop, atol=2e-6)
    np.testing.assert_array_equal(relevance.vectors[3], relevance.vectors[0])  # equal texts but for white space
    np.testing.assert_allclose(relevance.vectors[9], relevance.vectors[0], atol=1e-6)  # in another shard
    np.testing.assert_allclose(relevance.query(TEXTS[7], EVERY), block[7], atol=1e-6)
    assert manifest.warnings[-1].startswith("1 caption is longer than 256 tokens: the rest is not read. ")
    truncated = [np.asarray(pq.read_table(tmp_path / "e" / name)["truncated"]) for name in manifest.parts]
    np.testing.assert_array_equal(np.concatenate(truncated), EVERY == 5)


def test_failed_rows_and_another_model(make_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, model, failed = Encoder.encode, tmp_path / "model", np.array(["bike" in text for text in TEXTS])

    def broken(self: Encoder, texts: list[str], *rest: Any) -> Any:
        vectors = plain(self, texts, *rest)
        vectors.vectors[["bike" in text for text in texts]] = np.inf
        return vectors

    shutil.copytree(make_model(), model)
    with monkeypatch.context() as patch:
        patch.setattr(Encoder, "encode", broken)
        relevance, manifest = encoded(tmp_path / "e", model)
    assert manifest.metadata["failed"]["first"] == [["c:3-0", "the model gives no finite vector"]]
    assert relevance.failed.tolist() == [6]
    block = relevance.block(References.single(EVERY), EVERY)
    np.testing.assert_array_equal(np.isnan(block), failed[:, None] | failed)
    np.testing.assert_array_equal(np.isnan(relevance.query("a dog", EVERY)), failed)
    again, _ = encoded(tmp_path / "e", model)  # has not loaded the model
    shutil.copytree(make_model(seed=1), model, dirs_exist_ok=True)
    with pytest.raises(CheckError, match="another model"):
        again.query("a dog", EVERY)


@pytest.mark.slow
def test_bfloat16_has_the_correlations_of_float32(coco: Corpus, minilm: Path, tmp_path: Path) -> None:
    """Check the figures that float32 has on the pairs of CxC within the first 800 images of COCO's test split."""
    start = coco.rows(("test",)).start
    rows = range(start, int(coco.indptr[coco.image[start] + 800]))
    source = Sbert(SbertParams(model=str(minilm), dtype="bfloat16"))
    relevance, _ = encode(source, coco, tmp_path / "e", rows, 50_000, Runtime())
    tasks = score_at_once(coco, relevance, "test")  # other pairs are not encoded
    for task, subset, pairs, expected in (
        ("sits", "all", 4548, 0.9005),
        ("sits", "c2i_intrasim", 548, 0.7603),
        ("sts", "all", 4518, 0.7376),
    ):
        scored = tasks[task]
        chosen = scored.scored & scored.subset(subset)
        assert chosen.sum() == pairs
        found = pearsonr(scored.relevance[chosen], scored.human.score[chosen]).statistic
        assert found == pytest.approx(expected, abs=0.0005)


def built(sbert: Sbert, captions: Corpus, dataset: str, runtime: Runtime) -> tuple[Manifest, bool]:
    return build(sbert.int8_folder(runtime.data), sbert.int8_recipe(captions, dataset, runtime))


@pytest.mark.slow
def test_one_int8_model_serves_all_datasets(make_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, runtime = tmp_path / "model", Runtime(data=tmp_path / "data", device="cpu", threads=1)
    shutil.copytree(make_model(), model)
    sbert, others = Sbert(SbertParams(model=str(model), dtype="int8")), corpus_of([["two dogs", "a cat"]])
    with pytest.raises(MissingError):
        sbert.fingerprint_params(CORPUS, range(10), runtime)
    monkeypatch.setattr(quantize, "_LEAST_COSINE", 1.01)
    with pytest.raises(CheckError, match=r"0\.\d{4}, .*1\.0100"):
        built(sbert, CORPUS, "mine", runtime)
    monkeypatch.setattr(quantize, "_LEAST_COSINE", 0.9)  # the weights are random
    manifest, made = built(sbert, CORPUS, "mine", runtime)
    assert made
    assert manifest.metadata["calibrated_on"] == "mine"
    assert 0.9 < manifest.metadata["cosine"]["least"] <= manifest.metadata["cosine"]["mean"] < 1
    assert built(sbert, others, "yours", runtime) == (manifest, False)
    before = sbert.fingerprint_params(CORPUS, range(10), runtime)["int8"]
    # Another calibration of the same model: its encodings are others.
    shutil.rmtree(sbert.int8_folder(runtime.data))
    built(sbert, others, "yours", runtime)
    assert sbert.fingerprint_params(CORPUS, range(10), runtime)["int8"] != before
    shutil.copytree(make_model(seed=1), model, dirs_exist_ok=True)
    assert built(sbert, CORPUS, "mine", runtime)[1]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_minilm_in_int8_keeps_its_agreement_with_people(coco: Corpus, minilm: Path, tmp_path: Path) -> None:
    """Check the figures on CxC val, and the vectors of captions that did not calibrate the model."""
    sbert, runtime = Sbert(SbertParams(model=str(minilm), dtype="int8")), Runtime(data=tmp_path)
    manifest, _ = built(sbert, coco, "coco", runtime)
    for task in ("sts", "sits"):
        assert abs(manifest.metadata[task]["float32"] - manifest.metadata[task]["int8"]) < 0.002
    texts = [coco.texts[row] for row in coco.rows(("test",))[:500]]
    plain = SentenceEncoder(minilm, None, None, "float32", runtime).encode(texts).vectors
    int8 = sbert._encoder(sbert._files(runtime), runtime).encode(texts).vectors
    cosines = np.einsum("nd,nd->n", plain, int8)
    assert cosines.mean() > 0.995  # 0.9979 with VNNI, 0.9963 without
    assert cosines.min() > 0.95
