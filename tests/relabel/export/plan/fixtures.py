"""Sources, relevance and specifications for the tests of batch plans."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tests.relabel.sources.encodings import make_steps

from relabel.core.runtime import SILENT
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import Corpus, References
from relabel.export.params import ExportPlanParams
from relabel.export.plan.build import PlanWork
from relabel.export.plan.spec import PlanSpec
from relabel.sources.base import Kind, SourceParams, SourceSpec
from relabel.sources.cosine import VectorRelevance
from relabel.sources.relevance import Relevance
from relabel.store.artefact import Recipe, build
from relabel.store.manifest import Manifest
from relabel_train.plan import Plan, open_plan

SIZES = [5, 1, 6, 5, 2, 5, 5, 5, 3, 5]
POOLINGS: list[Pooling] = ["paired", "max", "mean"]


@dataclass(eq=False)
class CountingRelevance(Relevance):
    """Relevance of pairs: a hash of both rows, pooled by max; counts its requests."""

    corpus: Corpus
    rows: range
    pooling: Pooling = "max"
    requests: Counter[tuple[tuple[int, ...], int]] = field(default_factory=Counter)
    largest: int = 0

    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        self.largest = max(self.largest, len(captions))
        out = np.empty(len(captions))
        for p, caption in enumerate(captions.tolist()):
            own_rows = tuple(references[p].tolist())
            self.requests[own_rows, caption] += 1
            each = [np.sin(12.9898 * r + 78.233 * caption) for r in (own_rows[:1] if pooling == "paired" else own_rows)]
            out[p] = np.mean(each) if pooling == "mean" else max(each)
        return out

    def block(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        raise AssertionError("blocks are computed from pairs")

    def query(self, text: str, captions: Rows) -> Scores:
        raise NotImplementedError


class Fake:
    """Source with the properties that an outline reads."""

    def __init__(self, kind: Kind) -> None:
        self.spec = SourceSpec("fake", kind, (-1.0, 1.0), False, SourceParams)

    def is_pairwise(self) -> bool:
        return self.spec.kind == "pairs"


def vectors(corpus: Corpus) -> VectorRelevance:
    values = np.random.default_rng(0).normal(size=(len(corpus), 48))
    values = (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)
    values[7] = 0  # a text without known words
    return VectorRelevance(corpus, range(len(corpus)), "max", values, lambda _: values[0])


def outline(
    corpus: Corpus, kind: Kind = "pairs", pooling: Pooling = "max", failed: tuple[int, ...] = (), **given: Any
) -> PlanSpec:
    params = ExportPlanParams(**{"batch_size": 6, "epochs": 3, "drop_last": False, **given})
    rows = corpus.rows(["train"])
    source: Any = Fake(kind)
    none: Any = None
    return PlanSpec(
        corpus, "fake", "train", None, source, rows, np.array(failed, np.int32), pooling, params, none, "fingerprint"
    )


def write(folder: Path, spec: PlanSpec, relevance: Relevance) -> tuple[Plan, Manifest]:
    plan, inputs = PlanWork(spec, lambda: relevance, SILENT), {"corpus": spec.corpus.digest}
    recipe = Recipe("plan", "p", lambda: spec.params.semantic, inputs, lambda work: make_steps(plan.steps(work), work))
    manifest, _ = build(folder, recipe)
    return open_plan(folder), manifest


def check(plan: Plan, corpus: Corpus, relevance: Relevance, pooling: Pooling) -> None:
    """Compare a plan with Relevance.pairs, one pair per call."""
    for batch in map(plan.__getitem__, range(len(plan))):
        size = len(batch.rows)
        assert (batch.relevance.shape, batch.relevance.dtype) == ((size, size), np.float32)
        for i, row in enumerate(batch.rows.tolist()):
            references_of_row = [row] if pooling == "paired" else corpus.references([corpus.image[row]])[0]
            for j, caption in enumerate(batch.rows.tolist()):
                score = relevance.pairs(References.of([references_of_row]), np.array([caption], np.int32), pooling)[0]
                assert batch.relevance[i, j] == np.float32(score), (row, caption)
                assert batch.same_image[i, j] == (corpus.image[row] == corpus.image[caption])


def files(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if p.is_file() and p.name != "manifest.json"}
