"""Contract: the size of a plan is stated as it will be, and a plan that is too large is refused before any work."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.relabel.export.plan.fixtures import CountingRelevance, files, outline, vectors, write

from relabel.core.errors import UsageError
from relabel.corpus import Corpus
from relabel.export.plan.build import check_size_limit, describe
from relabel.sources.base import Kind
from relabel.sources.typical_costs import Cost


@pytest.mark.parametrize("kind", ["pairs", "vectors"])
def test_the_size_is_that_of_the_blocks(tmp_path: Path, corpus: Corpus, kind: Kind) -> None:
    relevance = CountingRelevance(corpus, range(len(corpus))) if kind == "pairs" else vectors(corpus)
    spec = outline(corpus, kind, batches=4)
    text = describe(spec, relevance, Cost(10.0))
    plan, _ = write(tmp_path / "plan", spec, relevance)
    blocks = [content for name, content in files(tmp_path / "plan").items() if name.startswith("blocks-")]
    assert spec.block_bytes == sum(map(len, blocks))
    assert text == f"{len(plan)} batches of 6, 0.000 GB, {36 * len(plan)} pairs to score, about 0:00:04"


def test_absurd_sizes_are_refused_before_any_work(corpus: Corpus) -> None:
    spec = outline(corpus, epochs=1_000_000, max_bytes="1MB")
    with pytest.raises(UsageError, match="--max-bytes"):
        check_size_limit(spec)
    assert "batches" not in vars(spec)
    check_size_limit(outline(corpus, epochs=1_000_000, max_bytes="1GiB"))
    with pytest.raises(ValueError, match="max_bytes"):
        outline(corpus, max_bytes="many")
