"""Corpus of the tests of batch plans."""

from __future__ import annotations

import pytest
from tests.relabel.export.plan.fixtures import SIZES

from relabel.corpus import Corpus
from relabel.corpus.build import Caption


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    splits = ["train"] * 8 + ["test"] * 2
    return Corpus.from_captions(
        Caption(f"c:{m:02d}-{k}", f"i:{m:02d}", splits[m], f"text {m} {k}")
        for m, n in enumerate(SIZES)
        for k in range(n)
    )
