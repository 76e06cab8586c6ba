"""Contract: the estimate of bytes and pairs is exact, and a plan that is too large is refused before any work."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.relabel.export.plan.fixtures import CountingRelevance, files, outline, vectors, write

from relabel.core.errors import PartialError, UsageError
from relabel.corpus import Corpus
from relabel.export.plan import build as plan_estimate
from relabel.export.plan import spec
from relabel.export.plan.build import check_disk_space, check_size_limit, estimate
from relabel.sources.base import Kind


@pytest.mark.parametrize("kind", ["pairs", "vectors"])
def test_the_estimate_is_exact_in_bytes_and_pairs(tmp_path: Path, corpus: Corpus, kind: Kind) -> None:
    relevance = CountingRelevance(corpus, range(len(corpus))) if kind == "pairs" else vectors(corpus)
    plan_outline = outline(corpus, kind, batches=4, drop_last=False)
    estimated = estimate(plan_outline, relevance)
    plan, _ = write(tmp_path / "plan", plan_outline, relevance)
    assert estimated.bytes == sum(len(content) for content in files(tmp_path / "plan").values())
    assert (estimated.batches, estimated.shards, estimated.batch_size) == (len(plan), 1, 6)
    if kind == "vectors":
        assert (estimated.pairs, estimated.work_bytes) == (sum(len(plan.rows(n)) ** 2 for n in range(len(plan))), 0)
    else:
        assert estimated.pairs == len(relevance.requests)  # type: ignore[attr-defined]
        assert estimated.work_bytes == 16 * estimated.pairs
    assert f"{len(plan)} batches of 6 in 1 shards" in estimated.describe()


def test_absurd_sizes_are_refused_before_any_work(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spec, "planned", None)  # sampling batches would fail
    with pytest.raises(UsageError, match=r"6,000,000 batches of 6 take 8\d\d.\d MB, more than 1.0 MB.*--max-bytes"):
        check_size_limit(outline(corpus, epochs=1_000_000, max_bytes="1MB"))
    check_size_limit(outline(corpus, epochs=1_000_000, max_bytes="1GiB"))
    with pytest.raises(ValueError, match="max_bytes"):
        outline(corpus, max_bytes="many")


def test_a_disk_without_room_is_refused(tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    estimated = estimate(outline(corpus), CountingRelevance(corpus, range(len(corpus))))
    needed = estimated.bytes + estimated.work_bytes
    free = {"free": needed}
    monkeypatch.setattr(plan_estimate.shutil, "disk_usage", lambda _: type("Usage", (), free))
    check_disk_space(estimated, tmp_path / "not" / "there", 0)
    free["free"] = needed - 100
    check_disk_space(estimated, tmp_path / "not" / "there", 100)
    with pytest.raises(PartialError, match="are free"):
        check_disk_space(estimated, tmp_path / "not" / "there", 0)
