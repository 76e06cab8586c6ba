"""A small corpus with two labels, and hand-made fuses of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tests.relabel.sources.encodings import corpus_of

from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import Corpus, References
from relabel.sources.cosine import VectorRelevance
from relabel.sources.fuse.model import FuseModel, Part
from relabel.sources.fuse.relevance import FuseRelevance
from relabel.sources.relevance import Relevance
from relabel.store.artefact import Recipe, build
from relabel_train.scoring.fuse import Curve, Feature, Head, HeadName
from relabel_train.scoring.references import pool

PART = {"near": Part("cbow", False, {"source": "cbow"}), "far": Part("cider", False, {})}


class Table(Relevance):
    """Asymmetric source of sets: tabulated numbers, increased by 1 per further caption of a set.

    Its blocks are off by nearly as much as the contract allows.
    """

    def __init__(self, corpus: Corpus, seed: int = 0) -> None:
        super().__init__(corpus, range(len(corpus)), "set")
        self.values = np.random.default_rng(seed).random((len(corpus), len(corpus)))
        self.requests = 0

    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        self.requests += len(captions)
        how, sizes = pooling or self.pooling, np.diff(references.indptr)
        each = self.values[references.rows, np.repeat(captions, sizes)]
        return pool(each, references.indptr, "max") + sizes if how == "set" else pool(each, references.indptr, how)

    def block(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        every = [self.pairs(references, np.full(len(references), c, np.int32), pooling) for c in captions]
        block = np.stack(every, axis=1)
        return block + np.random.default_rng(len(captions)).choice([-1, 1], block.shape) * 0.99 * self.block_error

    def query(self, text: str, captions: Rows) -> Scores:
        return self.values[0, captions]


def small_corpus(images: int = 12) -> Corpus:
    """Return images of 1 to 6 captions each."""
    return corpus_of([[f"caption {p} of {m}" for p in range(1 + m % 6)] for m in range(images)])


def opened(corpus: Corpus, seed: int = 0) -> dict[str, Relevance]:
    """Return a label of vectors and a table."""
    vectors = np.random.default_rng(seed).normal(size=(len(corpus), 40)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    near = VectorRelevance(corpus, range(len(corpus)), "max", vectors, lambda text: vectors[len(text)])
    return {"near": near, "far": Table(corpus, seed)}


def some_head(features: tuple[Feature, ...], seed: int = 0) -> Head:
    """Return curves of random values, and a cap that many scores reach."""
    random = np.random.default_rng(seed)
    knots = [np.sort(random.random(6) * 2) for _ in features]
    values = [random.random(6) / len(features) for _ in features]
    return Head(tuple(Curve(f, tuple(x), tuple(y)) for f, x, y in zip(features, knots, values, strict=True)), 0.6)


def linear_head(weights: dict[Feature, float], intercept: float = 0.0) -> Head:
    """Return a linear function of features from -100 to 100."""
    shares = [(f, intercept / len(weights), 100.0 * weight) for f, weight in weights.items()]
    return Head(tuple(Curve(f, (-100.0, 100.0), (start - rise, start + rise)) for f, start, rise in shares))


def small_model(seed: int = 0) -> FuseModel:
    """Return a model with both heads, over all poolings."""
    looks = [("near", "max"), ("near", "mean"), ("far", "set"), ("far", "max")]
    heads: dict[HeadName, Head] = {
        "set": some_head(tuple(Feature(*look) for look in looks), seed),
        "single": some_head((Feature("near", "max"), Feature("far", "max")), seed + 1),
    }
    return FuseModel(PART, heads)


def small_fuse(pooling: Pooling = "set", gate: str | None = None, gate_top: int = 1000) -> FuseRelevance:
    """Return the model over the corpus."""
    corpus = small_corpus()
    parts = opened(corpus)
    return FuseRelevance(corpus, range(len(corpus)), pooling, parts, small_model(), gate, gate_top)


def write_fuse_model(folder: Path, model: FuseModel) -> None:
    """Write a model into the folder that labels read."""
    build(folder, Recipe("fuse_model", "fuse", lambda: {"of": sorted(model.parts)}, {}, model.write))
