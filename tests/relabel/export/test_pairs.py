"""Contract: pairs hold equally many scores of each bin and tuples a positive above its negatives, all with the label's
exact scores and the ids of the texts; the draws depend on the seed alone; sentence-transformers trains on both."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.relabel.export.formats import with_params

from relabel import stages
from relabel.core.errors import UsageError
from relabel.export.pairs import draw_from_bins, draw_tuple
from relabel.stages import Project
from relabel_train.lookup import open_lookup


def table(project: Project, kind: str, label: str = "cbow", **params: Any) -> tuple[Path, pa.Table]:
    other = with_params(project, kind, **params)
    other = replace(other, runtime=replace(other.runtime, replace=True))
    job = stages.export(other, kind, label, "all")
    job.run()
    files = sorted((job.out / "data").iterdir())
    return job.out, pa.concat_tables([pq.read_table(file) for file in files])


@pytest.mark.parametrize("label", ["cbow", "cider"])
def test_pairs_have_the_labels_scores(small_project: Project, label: str) -> None:
    _, pairs = table(small_project, "pairs", label, count=60, rows_per_shard=40)
    corpus, lookup = small_project.corpus, open_lookup(small_project.folder("exports", "all", "lookup", label))
    first, second = (pairs[f"caption_id{i}"].to_pylist() for i in (1, 2))
    assert pairs["sentence1"].to_pylist() == [corpus.texts[corpus.row_of[name]] for name in first]
    assert pairs["sentence2"].to_pylist() == [corpus.texts[corpus.row_of[name]] for name in second]
    expected = lookup.block(lookup.rows_of(first), lookup.rows_of(second), "first", dtype=np.float64).diagonal()
    np.testing.assert_allclose(pairs["score"].to_numpy(), expected, atol=1e-6)
    assert all(a != b for a, b in zip(first, second, strict=True))


def test_a_pair_stays_in_one_split_and_is_drawn_once(small_project: Project) -> None:
    folder, _ = table(small_project, "pairs", count=50)
    corpus = small_project.corpus
    for path in (folder / "data").iterdir():
        rows = corpus.splits[path.name.split("-")[0]]
        read = pq.read_table(path)
        ids = [[corpus.row_of[name] for name in read[f"caption_id{i}"].to_pylist()] for i in (1, 2)]
        assert all(row in rows for row in itertools.chain(*ids))
        pairs = [frozenset(pair) for pair in zip(*ids, strict=True)]
        assert len(set(pairs)) == len(pairs) > 40


def test_the_seed_alone_decides_the_draws(small_project: Project) -> None:
    first, again, other = (table(small_project, "pairs", count=40, seed=seed)[1] for seed in (1, 1, 2))
    assert first.equals(again)
    assert not first.equals(other)


def test_bins_give_equal_shares_and_small_bins_all_of_theirs() -> None:
    rng = np.random.default_rng(3)
    scores = np.r_[rng.uniform(0, 0.1, 5000), rng.uniform(0.1, 0.9, 800), rng.uniform(0.9, 1, 7), [0, 1]]
    sample = draw_from_bins(scores, 10, 400, rng)
    assert len(np.unique(sample)) == 400
    counts = np.histogram(scores[sample], np.linspace(0, 1, 11))[0]
    assert counts[9] == 8  # all that there are
    assert counts[:9].min() >= counts[:9].max() - 1
    assert len(draw_from_bins(scores, 10, 10**6, rng)) == len(scores)
    assert len(draw_from_bins(np.full(9, 0.5), 4, 5, rng)) == 5


def test_a_tuple_has_one_negative_of_each_group() -> None:
    rng = np.random.default_rng(0)
    rows = np.array([7, 3, 3, 9, 5, 1, 2, 8], np.int32)  # 7 is the anchor, 3 is drawn twice
    scores = np.array([1, 0.9, 0.9, 0.8, 0.5, 0.3, 0.2, np.nan])
    chosen = draw_tuple(rows, scores, 7, 2, rng)
    assert chosen is not None
    assert chosen[0] in (1, 2)
    assert rows[chosen[1]] in (9, 5)
    assert rows[chosen[2]] in (1, 2)
    assert draw_tuple(rows, scores, 7, 5, rng) is None


def test_tuples_have_the_labels_scores(small_project: Project) -> None:
    _, tuples = table(small_project, "tuples", count=30, negatives=3)
    lookup = open_lookup(small_project.folder("exports", "all", "lookup", "cbow"))
    names = ["positive", "negative_1", "negative_2", "negative_3"]
    assert tuples.column_names[:6] == ["anchor", *names, "scores"]
    scores = np.array(tuples["scores"].to_pylist())
    assert (scores[:, :1] >= scores[:, 1:]).all()
    anchors = lookup.rows_of(tuples["anchor_id"].to_pylist())
    for i, name in enumerate(names):
        members = lookup.rows_of(tuples[f"{name}_id"].to_pylist())
        np.testing.assert_allclose(scores[:, i], lookup.block(anchors, members, "first").diagonal(), atol=1e-6)


def test_too_few_captions_are_refused(small_project: Project) -> None:
    with pytest.raises(UsageError, match="too few to draw from"):
        table(small_project, "tuples", negatives=10**4)


@pytest.mark.parametrize(("form", "loss"), [("pairs", "CoSENTLoss"), ("tuples", "MarginMSELoss")])
def test_a_loss_of_sentence_transformers_reads_the_files(
    small_project: Project, tmp_path: Path, form: str, loss: str
) -> None:
    datasets = pytest.importorskip("datasets")
    torch = pytest.importorskip("torch")
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    folder, read = table(small_project, form, count=64)
    columns = [name for name in read.column_names if not name.startswith("caption_id") and not name.endswith("_id")]
    files = {"train": str(folder / "data/train-*.parquet")}
    loaded = datasets.load_dataset("parquet", data_files=files, split="train", columns=columns, cache_dir=str(tmp_path))
    assert loaded.column_names == columns
    *texts, labels = (loaded[name][:] for name in columns)
    # The columns of texts are encoded alike; here each text is a vector of its letters.
    features = [
        {"sentence_embedding": torch.tensor([[float(text.count(letter)) for letter in "abcdeg"] for text in column])}
        for column in texts
    ]
    value = getattr(losses, loss)(lambda feature: feature)(features, torch.tensor(labels))
    assert torch.isfinite(value)
