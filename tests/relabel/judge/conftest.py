"""Corpora with CxC's ids, and a cheap test relevance that is asymmetric and has ties."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import Corpus, References
from relabel.corpus.build import Caption
from relabel.datasets.cxc import JudgedSplit, human_scores
from relabel.sources.relevance import Relevance
from relabel.store.workdir import Work
from relabel_train.scoring.references import pool


@dataclass(frozen=True, eq=False)
class Odd(Relevance):
    """Relevance that hashes reference and candidate: asymmetric, with ties, and NaN for captions of image `nan`."""

    corpus: Corpus
    rows: range
    pooling: Pooling = "max"
    nan: int = -1

    def one(self, reference: Rows, caption: Rows) -> Scores:
        value = ((reference.astype(np.int64) * 7919 + caption.astype(np.int64) * 104729) % 1009) / 1009
        same = self.corpus.image[reference] == self.corpus.image[caption]
        out = np.round(np.where(same, 0.5 + value / 2, value), 2)
        out[self.corpus.image[caption] == self.nan] = np.nan
        return out

    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        partner = np.repeat(captions, np.diff(references.indptr))
        how = pooling or self.pooling
        return pool(self.one(references.rows, partner), references.indptr, "mean" if how == "set" else how)

    def block(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        every = (references.take(np.full(len(captions), m)) for m in range(len(references)))
        return np.stack([self.pairs(reference, captions, pooling) for reference in every])

    def query(self, text: str, captions: Rows) -> Scores:
        return np.zeros(len(captions))


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path)


def cxc_corpus(split: JudgedSplit, images: int | None = None) -> Corpus:
    """Make a corpus of CxC's ids with generated texts, of all images or the first `images`."""
    sits, sts = human_scores("sits", split), human_scores("sts", split)
    own_pairs = [(c, i) for c, i, m in zip(sits.left, sits.right, sits.method, strict=True) if m == "c2i_original"]
    selected = set(sorted({i for _, i in own_pairs})[:images])
    assert {*sts.left, *sts.right} == {c for c, _ in own_pairs}
    return Corpus.from_captions(Caption(c, i, split, f"caption {c}") for c, i in own_pairs if i in selected)


@pytest.fixture(scope="session")
def cxc_test() -> Corpus:
    """Return the ids of CxC's 25,000 test captions."""
    return cxc_corpus("test")


@pytest.fixture(scope="session")
def few() -> Corpus:
    """Return the first 300 test images; most judged pairs are missing from them."""
    return cxc_corpus("test", 300)
