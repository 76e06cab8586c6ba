"""Contract: a block holds the value of Relevance.pairs for each pair, rounded to float32 once. In a
batch, captions of one image share one row of scores.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tests.relabel.export.plan.fixtures import POOLINGS, CountingRelevance, check, files, outline, vectors, write

from relabel.core.types import Pooling
from relabel.corpus import Corpus
from relabel.sources.base import Kind


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("kind", ["pairs", "vectors"])
def test_blocks_equal_pairs_one_by_one(tmp_path: Path, corpus: Corpus, kind: Kind, pooling: Pooling) -> None:
    relevance = CountingRelevance(corpus, range(len(corpus))) if kind == "pairs" else vectors(corpus)
    plan, _ = write(tmp_path / "plan", outline(corpus, kind, pooling), relevance)
    assert len(plan) == 3 * 6
    assert sorted(np.concatenate([plan.rows(n) for n in plan.epoch(1)]).tolist()) == list(corpus.rows(["train"]))
    check(plan, corpus, relevance, pooling)


def test_captions_of_one_image_are_scored_once_in_a_batch(tmp_path: Path, corpus: Corpus) -> None:
    relevance = CountingRelevance(corpus, range(len(corpus)))
    plan, _ = write(tmp_path / "plan", outline(corpus, "pairs", "max", epochs=1), relevance)
    expected: Counter[tuple[tuple[int, ...], int]] = Counter()
    for number in range(len(plan)):
        rows = plan.rows(number).tolist()
        for image in {int(corpus.image[row]) for row in rows}:
            references = tuple(corpus.references([image])[0].tolist())
            expected.update((references, caption) for caption in rows)
    assert relevance.requests == expected


def test_threads_change_no_byte(tmp_path: Path, corpus: Corpus) -> None:
    threadpoolctl = pytest.importorskip("threadpoolctl")
    for threads in (1, 2):
        with threadpoolctl.threadpool_limits(threads):
            write(tmp_path / str(threads), outline(corpus, "vectors", batch_size=30), vectors(corpus))
    assert files(tmp_path / "1") == files(tmp_path / "2")
