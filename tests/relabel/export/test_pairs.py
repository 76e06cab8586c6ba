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
