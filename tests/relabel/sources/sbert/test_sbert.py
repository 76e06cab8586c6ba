"""Contract: sbert is the cosine of a sentence-transformers model's unit vectors. A caption without a finite vector is a
failed row, and a model without any is refused, as is another one than the encoding's. On COCO's test captions, the
correlation with human scores is as measured.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.stats import pearsonr
from sentence_transformers import SentenceTransformer
from tests.relabel.sources.encodings import encode

from relabel.core.runtime import Runtime
from relabel.corpus import Corpus, References
from relabel.corpus.build import Caption
from relabel.datasets.cxc import human_scores
from relabel.sources.cosine import VectorRelevance
from relabel.sources.models.encoder import SentenceEncoder
from relabel.sources.sbert import Sbert, SbertParams
from relabel.store.manifest import Manifest

TEXTS = [
    *("A dog runs on the beach", "a small dog running", "Two cats sleep on a sofa", "A dog runs on the beach "),
    *("🚲 שלום", "two cats " * 200, "a man riding a bike", "a man rides a bicycle", "nul \x00 byte"),
    "A dog runs on the beach",
]
EVERY = np.arange(len(TEXTS), dtype=np.int32)


def corpus(texts: list[str] = TEXTS) -> Corpus:
    return Corpus.from_captions([Caption(f"t:{i}", f"t:{i // 2}", "test", t) for i, t in enumerate(texts)])


def encoded(out: Path, **params: Any) -> tuple[VectorRelevance, Manifest]:
    return encode(Sbert(SbertParams(**params)), corpus(), out, None, 4, Runtime(device="cpu", threads=2))


def test_relevance_is_the_cosine_of_the_models_vectors(minilm: Path, tmp_path: Path) -> None:
    relevance, manifest = encoded(tmp_path / "e", model=str(minilm))
    expected = SentenceTransformer(str(minilm), device="cpu").encode(TEXTS, normalize_embeddings=True)
    block = relevance.block(References.single(EVERY), EVERY)
    loop = [[sum(float(x) * float(y) for x, y in zip(a, b, strict=True)) for b in expected] for a in expected]
    np.testing.assert_allclose(block, loop, atol=2e-6)
    np.testing.assert_array_equal(relevance.vectors[3], relevance.vectors[0])  # equal texts but for white space
    np.testing.assert_allclose(relevance.vectors[9], relevance.vectors[0], atol=1e-6)  # in another shard
    references = corpus().references(range(5))
    np.testing.assert_allclose(relevance.block(references, EVERY), np.maximum(block[::2], block[1::2]), atol=1e-6)
    np.testing.assert_allclose(relevance.query(TEXTS[7], EVERY), block[7], atol=1e-6)
    assert manifest.metadata["warnings"] == ["1 captions are longer than 256 tokens: the rest is not seen"]
    columns = [pq.read_table(tmp_path / "e" / name)["truncated"].to_pylist() for name in manifest.parts]
    assert [flag for column in columns for flag in column] == [i == 5 for i in range(10)]


def test_a_caption_without_a_finite_vector_is_a_failed_row(
    make_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, model = SentenceEncoder.encode, str(make_model())

    def broken(self: SentenceEncoder, texts: list[str], *rest: Any) -> Any:
        vectors = plain(self, texts, *rest)
        vectors.vectors[["bike" in text for text in texts]] = np.inf
        return vectors

    with monkeypatch.context() as patch:
        patch.setattr(SentenceEncoder, "encode", broken)
        relevance, manifest = encoded(tmp_path / "e", model=model)
    failed = np.array(["bike" in text for text in TEXTS])
    assert manifest.metadata["failed"]["first"] == [["t:6", "the model gives no finite vector"]]
    assert relevance.failed.tolist() == [6]
    block = relevance.block(References.single(EVERY), EVERY)
    np.testing.assert_array_equal(np.isnan(block), failed[:, None] | failed)
    np.testing.assert_array_equal(np.isnan(relevance.query("a dog", EVERY)), failed)


@pytest.mark.slow
def test_bfloat16_has_the_correlations_of_float32(coco: Corpus, minilm: Path, tmp_path: Path) -> None:
    source = Sbert(SbertParams(model=str(minilm), dtype="bfloat16"))
    relevance, _ = encode(source, coco, tmp_path / "e", coco.rows(("test",)), 50_000, Runtime())
    sits, sts = human_scores("sits", "test"), human_scores("sts", "test")
    captions = np.array([coco.row_of[c] for c in sits.left], np.int32)
    images = np.array([coco.image_of[i] for i in sits.right])
    label, other = relevance.pairs(coco.references(images.tolist()), captions), coco.image[captions] != images
    assert pearsonr(label, sits.score).statistic == pytest.approx(0.8814, abs=0.0005)
    assert pearsonr(label[other], sits.score[other]).statistic == pytest.approx(0.7614, abs=0.0005)
    left, right = (np.array([coco.row_of[c] for c in side], np.int32) for side in (sts.left, sts.right))
    label = relevance.pairs(References.single(left), right)
    assert pearsonr(label, sts.score).statistic == pytest.approx(0.777, abs=0.001)
