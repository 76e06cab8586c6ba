"""Contract: a block holds the value of Relevance.pairs for each pair, rounded to float32 once, independent of BLAS. A
distinct pair of a source that scores pair by pair is scored once per plan.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tests.relabel.export.plan.fixtures import POOLINGS, CountingRelevance, check, files, outline, vectors, write

from relabel.core.types import Pooling
from relabel.corpus import Corpus
from relabel.export.plan import blocks
from relabel.export.plan.blocks import Pairs
from relabel.sources.base import Kind


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("kind", ["pairs", "vectors"])
def test_blocks_equal_pairs_one_by_one(tmp_path: Path, corpus: Corpus, kind: Kind, pooling: Pooling) -> None:
    relevance = CountingRelevance(corpus, range(len(corpus))) if kind == "pairs" else vectors(corpus)
    plan, _ = write(tmp_path / "plan", outline(corpus, kind, pooling), relevance)
    assert len(plan) == 3 * 6
    assert sorted(np.concatenate([plan.rows(n) for n in plan.epoch(1)]).tolist()) == list(corpus.rows(["train"]))
    check(plan, corpus, relevance, pooling)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_every_distinct_pair_is_scored_once(
    tmp_path: Path, corpus: Corpus, pooling: Pooling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "_PART", 60)
    monkeypatch.setattr(blocks, "_STEP", 7)
    relevance = CountingRelevance(corpus, range(len(corpus)))
    plan_outline = outline(corpus, "pairs", pooling, epochs=6)
    plan, _ = write(tmp_path / "plan", plan_outline, relevance)
    expected, cells = set(), 0
    for number in range(len(plan)):
        rows = plan.rows(number).tolist()
        for row in rows:
            own_rows = (row,) if pooling == "paired" else tuple(corpus.references([corpus.image[row]])[0].tolist())
            expected |= {(own_rows, caption) for caption in rows}
            cells += len(rows)
    assert relevance.requests == Counter(dict.fromkeys(expected, 1))
    assert cells > 1.3 * len(expected)  # some pairs occur in several batches
    assert relevance.largest <= 7
    assert not list((tmp_path / "plan").glob("pairs-*"))
    assert Pairs(corpus, plan_outline.batches, pooling).distinct == len(expected)
    assert len(Pairs(corpus, plan_outline.batches, pooling).files) > 5


def test_threads_change_no_byte(tmp_path: Path, corpus: Corpus) -> None:
    threadpoolctl = pytest.importorskip("threadpoolctl")
    for threads in (1, 2):
        with threadpoolctl.threadpool_limits(threads):
            write(tmp_path / str(threads), outline(corpus, "vectors", batch_size=30), vectors(corpus))
    assert files(tmp_path / "1") == files(tmp_path / "2")
