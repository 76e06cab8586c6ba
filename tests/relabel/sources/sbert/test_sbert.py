"""Contract: sbert is the cosine of a sentence-transformers model's unit vectors. The fingerprint covers everything
that can change a vector and nothing else. Errors are one line. On COCO's test captions, the correlation with
human scores is as measured.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError
from scipy.stats import pearsonr
from sentence_transformers import SentenceTransformer
from tests.relabel.sources.encodings import encode

from relabel.core.errors import CheckError, UsageError
from relabel.core.runtime import Progress, Runtime
from relabel.corpus import Corpus, References
from relabel.corpus.build import Caption
from relabel.datasets.cxc import human_scores
from relabel.sources.cosine import VectorRelevance
from relabel.sources.models.encoder import SentenceEncoder
from relabel.sources.models.files import DEFAULT_MODEL
from relabel.sources.sbert import Sbert, SbertParams
from relabel.store.manifest import Manifest, Spec

TEXTS = [
    "A dog runs on the beach",
    "a small dog running",
    "Two cats sleep on a sofa",
    "A dog runs on the beach ",
    "🚲 שלום",
    "two cats " * 200,
    "a man riding a bike",
    "a man rides a bicycle",
    "nul \x00 byte",
    "A dog runs on the beach",
]


def corpus(texts: list[str] = TEXTS) -> Corpus:
    return Corpus.from_captions([Caption(f"t:{i}", f"t:{i // 2}", "test", t) for i, t in enumerate(texts)])


def fingerprint(folder: Path, runtime: Runtime | None = None, **params: Any) -> str:
    source = Sbert(SbertParams(model=str(folder), **params))
    captions = corpus()
    semantic = source.fingerprint_params(captions, range(len(captions)), runtime or Runtime(threads=1))
    return Spec("encoding", "sbert", semantic, {"corpus": captions.digest}).fingerprint


def encoded(out: Path, captions: Corpus, **params: Any) -> tuple[VectorRelevance, Manifest]:
    return encode(Sbert(SbertParams(**params)), captions, out, None, 4, Runtime(device="cpu", threads=2))


def test_relevance_is_the_cosine_of_the_models_vectors(minilm: Path, tmp_path: Path) -> None:
    relevance, manifest = encoded(tmp_path / "e", corpus(), model=str(minilm))
    expected = SentenceTransformer(str(minilm), device="cpu").encode(TEXTS, normalize_embeddings=True)
    every = np.arange(len(TEXTS), dtype=np.int32)
    block = relevance.block(References.single(every), every)
    loop = [[sum(float(x) * float(y) for x, y in zip(a, b, strict=True)) for b in expected] for a in expected]
    np.testing.assert_allclose(block, loop, atol=2e-6)
    np.testing.assert_array_equal(relevance.vectors[3], relevance.vectors[0])  # equal texts but for white space
    np.testing.assert_allclose(relevance.vectors[9], relevance.vectors[0], atol=1e-6)  # in another shard
    references = corpus().references(range(5))
    np.testing.assert_allclose(relevance.block(references, every), np.maximum(block[::2], block[1::2]), atol=1e-6)
    np.testing.assert_allclose(relevance.query(TEXTS[7], every), block[7], atol=1e-6)
    assert manifest.facts["truncated"] == 1
    assert manifest.facts["warnings"] == ["1 captions are longer than 256 tokens: the rest is not seen"]
    columns = [pq.read_table(tmp_path / "e" / name)["truncated"].to_pylist() for name in manifest.parts]
    assert [flag for column in columns for flag in column] == [i == 5 for i in range(10)]


def test_facts_of_the_manifest(minilm: Path, tmp_path: Path) -> None:
    _, manifest = encoded(tmp_path / "e", corpus(), dtype="bfloat16", stored="float16", max_length=16, prompt="q: ")
    expected = {"model": DEFAULT_MODEL, "width": 384, "prompt": "q: ", "max_length": 16, "truncated": 1}
    assert manifest.facts.items() >= expected.items()
    assert manifest.runtime["model"]["name"] == DEFAULT_MODEL
    assert (manifest.runtime["backend"], manifest.runtime["device"]) == ("openvino", "cpu")
    table = pq.read_table(tmp_path / "e" / manifest.parts[0])
    assert table.schema.names == ["row", "vector", "truncated"]
    assert str(table.schema.field("vector").type) == "fixed_size_list<element: halffloat>[384]"


def test_nothing_else_is_in_the_fingerprint(make_model: Any, tmp_path: Path) -> None:
    before = fingerprint(make_model())
    shutil.copytree(make_model(), tmp_path / "elsewhere")
    assert fingerprint(tmp_path / "elsewhere") == before
    assert fingerprint(make_model(), pooling="mean") == before
    other = Runtime(data=tmp_path, device="cuda", threads=7, progress=Progress())
    assert fingerprint(make_model(), other) == before
    assert fingerprint(make_model(seed=1)) != before


def test_a_caption_without_a_finite_vector_is_a_failed_row(
    make_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = SentenceEncoder.encode

    def broken(self: SentenceEncoder, texts: list[str], *rest: Any) -> Any:
        vectors = plain(self, texts, *rest)
        vectors.vectors[[i for i, text in enumerate(texts) if "bike" in text]] = np.inf
        return vectors

    model = str(make_model())
    bikes = [row for row, text in enumerate(TEXTS) if "bike" in text]
    with monkeypatch.context() as patch:
        patch.setattr(SentenceEncoder, "encode", broken)
        relevance, manifest = encoded(tmp_path / "e", corpus(), model=model)
    assert manifest.facts["failed"]["rows"] == len(bikes)
    assert manifest.facts["failed"]["first"] == [[f"t:{row}", "the model gives no finite vector"] for row in bikes]
    assert relevance.failed.tolist() == bikes
    every = np.arange(len(TEXTS), dtype=np.int32)
    block = relevance.block(References.single(every), every)
    expected = np.isin(every, bikes)[:, None] | np.isin(every, bikes)[None]
    np.testing.assert_array_equal(np.isnan(block), expected)
    pairs = relevance.pairs(corpus().references([bikes[0] // 2]), np.array([0], np.int32), "max")
    assert np.isnan(pairs).all()
    np.testing.assert_array_equal(np.isnan(relevance.query("a dog", every)), np.isin(every, bikes))


def test_a_model_with_broken_weights_is_refused(make_model: Any, tmp_path: Path) -> None:
    model = SentenceTransformer(str(make_model()), device="cpu")
    next(iter(model.parameters())).data.fill_(float("nan"))
    model.save(str(tmp_path / "broken"))
    with pytest.raises(CheckError, match="no finite vector"):
        encoded(tmp_path / "e", corpus(), model=str(tmp_path / "broken"))


def test_another_model_than_the_encodings_is_refused(make_model: Any, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(make_model(), model)
    relevance, _ = encoded(tmp_path / "e", corpus(), model=str(model))
    shutil.rmtree(model)
    shutil.copytree(make_model(seed=1), model)
    every = np.arange(10, dtype=np.int32)
    assert relevance.block(References.single(every), every).shape == (10, 10)
    with pytest.raises(CheckError, match="not the model"):
        relevance.query("a dog", every)


def test_invalid_parameters() -> None:
    with pytest.raises(UsageError, match="no pooling 'refs'"):
        Sbert(SbertParams(pooling="refs"))
    for wrong in ({"dtype": "float16"}, {"max_length": 2}, {"batch_size": 32}):
        with pytest.raises(ValidationError):
            SbertParams(**wrong)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_has_the_measured_correlations(dtype: str, coco: Corpus, minilm: Path, tmp_path: Path) -> None:
    rows = coco.rows(("test",))
    source = Sbert(SbertParams(model=str(minilm), dtype=dtype))  # type: ignore[arg-type]
    relevance, _ = encode(source, coco, tmp_path / "e", rows, 50_000, Runtime())

    sits, sts = human_scores("sits", "test"), human_scores("sts", "test")
    captions = np.array([coco.row_of[c] for c in sits.left], np.int32)
    images = np.array([coco.image_of[i] for i in sits.right])
    label, other = relevance.pairs(coco.references(images.tolist()), captions), coco.image[captions] != images
    assert pearsonr(label, sits.score).statistic == pytest.approx(0.8814, abs=0.0005)
    assert pearsonr(label[other], sits.score[other]).statistic == pytest.approx(0.7614, abs=0.0005)

    left, right = (np.array([coco.row_of[c] for c in side], np.int32) for side in (sts.left, sts.right))
    label = relevance.pairs(References.single(left), right)
    assert pearsonr(label, sts.score).statistic == pytest.approx(0.777, abs=0.001)
    for method, expected in (("c2c_isim", 0.712), ("c2c_cocaption", 0.698)):
        of_method = np.array(sts.method) == method
        assert pearsonr(label[of_method], sts.score[of_method]).statistic == pytest.approx(expected, abs=0.001)
