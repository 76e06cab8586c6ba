"""Contract: the specification of a plan determines batches, shards, ids and plan.json before any pair is scored, and
excludes captions without labels.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.relabel.export.plan.fixtures import outline, vectors, write

from relabel.core.errors import UsageError
from relabel.corpus import Corpus
from relabel.export.plan.build import check_size_limit
from relabel.export.plan.spec import Shape


def test_a_batch_larger_than_the_corpus_needs_drop_last_false(corpus: Corpus) -> None:
    with pytest.raises(UsageError, match="34 captions fill no batch of 500"):
        check_size_limit(outline(corpus, batch_size=500, drop_last=True))


def test_captions_with_nan_labels_are_excluded(tmp_path: Path, corpus: Corpus) -> None:
    bad = (int(corpus.indptr[2]),)
    for pooling, lost in (("max", 6), ("paired", 1)):
        plan, manifest = write(tmp_path / pooling, outline(corpus, "vectors", pooling, failed=bad), vectors(corpus))  # type: ignore[arg-type]
        used = set(np.concatenate([plan.rows(n) for n in plan.epoch(0)]).tolist())
        assert manifest.facts["left_out"] == lost
        assert used == set(corpus.rows(["train"])) - set(range(bad[0], bad[0] + lost))
    sixth = int(corpus.indptr[2]) + 5  # not a reference of its image: only its own labels are NaN
    plan, manifest = write(tmp_path / "sixth", outline(corpus, "vectors", failed=(sixth,)), vectors(corpus))
    used = set(np.concatenate([plan.rows(n) for n in plan.epoch(0)]).tolist())
    assert used == set(corpus.rows(["train"])) - {sixth}


def test_a_large_plan_has_few_shards() -> None:
    for batches in (1, 300, 5_000_000):
        shape = Shape.of(128, (batches,), pairwise=False)
        assert [n for shard in shape.shards for n in (shard.start, shard.stop - 1)][-1] == batches - 1
        assert len(shape.shards) <= 256
    assert Shape.of(128, (300,), pairwise=False).per_shard == 1024
    assert Shape.of(128, (300,), pairwise=True).per_shard == 16


def test_ids_and_plan_json(tmp_path: Path, corpus: Corpus) -> None:
    plan, manifest = write(tmp_path / "plan", outline(corpus, "vectors"), vectors(corpus))
    for number in (0, 7):
        rows = plan.rows(number)
        captions, images = plan.names(number)
        assert captions == [corpus.caption_ids[r] for r in rows]
        assert images == [corpus.image_ids[corpus.image[r]] for r in rows]
    about = plan.about
    assert about.orientation == "rows are images, columns are captions; the text direction is the transpose"
    assert (about.pooling, about.bounds, about.coverage) == ("max", (-1, 1), "every pair of every batch")
    assert (about.fingerprint, about.sampler["seed"], about.batches) == ("fingerprint", 0, 18)
    recorded = tuple(manifest.facts[name] for name in ("sampler", "pooling", "bounds"))
    assert recorded == (about.sampler, about.pooling, list(about.bounds))
