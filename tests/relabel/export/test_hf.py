"""Contract: `datasets.load_dataset` opens the folder of `relabel export hf` with its splits, ids, texts, vectors and
neighbours; the card states label, range, licence and how to load it.

safetensors reads the vectors of a label, with the rows and ids of their captions; labels without vectors are refused.
Pairs hold equally many scores of each bin and tuples a positive above its negatives, in the columns that the losses of
sentence-transformers take, with the label's exact scores and the ids of the texts; the seed alone decides the draws.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from safetensors import safe_open
from safetensors.numpy import load_file
from tests.relabel.export.formats import exported

from relabel.core.errors import UsageError
from relabel.export.pairs import draw_from_bins
from relabel.stages import Project, open_label
from relabel_train.lookup import open_lookup


def load(folder: Path, tmp_path: Path) -> Any:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    return datasets.load_dataset(str(folder), cache_dir=str(tmp_path))


def test_datasets_loads_the_folder(small_project: Project, tmp_path: Path) -> None:
    loaded = load(exported(small_project, "hf", rows_per_shard=40)[0], tmp_path)
    corpus, lookup = small_project.corpus, open_lookup(small_project.folder("exports", "all", "lookup", "cbow"))
    splits = dict(zip(("train", "validation", "test"), ("train", "val", "test"), strict=True))
    assert {name: len(part) for name, part in loaded.items()} == {n: len(corpus.splits[s]) for n, s in splits.items()}
    rows = [row for name in splits for row in loaded[name]]
    near, scores, same = lookup.neighbours(lookup.rows)
    expected = {
        "caption_id": corpus.caption_ids,
        "text": corpus.texts,
        "image_id": [corpus.image_ids[m] for m in corpus.image],
        "neighbours": [lookup.caption_ids(line) for line in near],
        "neighbour_images": [lookup.image_ids(line) for line in near],
        "same_image": same.tolist(),
    }
    for column, values in expected.items():
        assert [row[column] for row in rows] == values
    np.testing.assert_array_equal(np.array([row["scores"] for row in rows], np.float32), scores)
    vectors = np.array([row["vector"] for row in rows], np.float32)
    np.testing.assert_allclose(vectors @ vectors.T, lookup.block(lookup.rows, pooling="first"), atol=1e-6)


@pytest.mark.parametrize(("licence", "key"), [(None, "other"), ("CC BY 4.0 (the annotations)", "cc-by-4.0")])
def test_the_card_states_splits_range_and_licence(small_project: Project, licence: Any, key: str) -> None:
    folder, manifest = exported(small_project, "hf", licence=licence)
    text = (folder / "README.md").read_text(encoding="utf-8")
    header = yaml.safe_load(text.split("---\n")[1])
    assert [entry["split"] for entry in header["configs"][0]["data_files"]] == ["train", "validation", "test"]
    assert (header["license"], manifest.metadata["bounds"]) == (key, [-1.0, 1.0])
    assert "between -1 and 1" in text
    assert (licence or "Not recorded.") in text.rsplit("\n\n", 1)[-1]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_safetensors_reads_vectors_rows_and_ids(small_project: Project, dtype: str) -> None:
    folder, manifest = exported(small_project, "safetensors", rows_per_shard=30, dtype=dtype)
    vectors: Any = open_label(small_project, "cbow", "all").unit_vectors()
    corpus = small_project.corpus
    for split, rows in corpus.splits.items():
        names = sorted(name for name in manifest.files if name.startswith(f"{split}-"))
        assert len(names) == -(-len(rows) // 30)
        found: list[int] = []
        for name in names:
            tensors = load_file(folder / name)
            found += tensors["rows"].tolist()
            part = slice(tensors["rows"][0], tensors["rows"][-1] + 1)
            assert tensors["vectors"].dtype == dtype
            np.testing.assert_array_equal(tensors["vectors"], vectors[part].astype(dtype))
            text, offsets = tensors["caption_ids.bytes"].tobytes(), tensors["caption_ids.offsets"]
            assert [text[a:b].decode() for a, b in pairwise(offsets)] == corpus.caption_ids[part]
        assert found == list(rows)
    with safe_open(folder / names[0], "np") as file:
        # A second entry would be written in a random order.
        assert list(file.metadata()) == ["encoding"]
        assert json.loads(file.metadata()["encoding"])["label"] == "cbow"


def tables(project: Project, kind: str, label: str = "cbow", **params: Any) -> dict[str, pa.Table]:
    """Export samples; return the table of each file by name."""
    folder, _ = exported(project, kind, label, **params)
    return {path.name: pq.read_table(path) for path in sorted((folder / "data").iterdir())}


@pytest.mark.parametrize("label", ["cbow", "cider"])
def test_pairs_have_the_labels_scores_and_stay_in_their_split(small_project: Project, label: str) -> None:
    corpus, lookup = small_project.corpus, open_lookup(small_project.folder("exports", "all", "lookup", label))
    for name, pairs in tables(small_project, "pairs", label, count=60, rows_per_shard=40).items():
        assert pairs.column_names[:3] == ["sentence1", "sentence2", "score"]
        first, second = (lookup.rows_of(pairs[f"caption_id{i}"].to_pylist()).tolist() for i in (1, 2))
        assert pairs["sentence1"].to_pylist() == [corpus.texts[row] for row in first]
        assert pairs["sentence2"].to_pylist() == [corpus.texts[row] for row in second]
        expected = lookup.block(first, second, "first", dtype=np.float64).diagonal()
        np.testing.assert_allclose(pairs["score"].to_numpy(), expected, atol=1e-6)
        assert {*first, *second} <= set(corpus.splits[name.split("-")[0]])
        drawn = {frozenset(pair) for pair in zip(first, second, strict=True)}
        assert len(drawn) == len(pairs) > 15
        assert {len(pair) for pair in drawn} == {2}


def test_the_seed_alone_decides_the_draws(small_project: Project) -> None:
    first, other, again = (tables(small_project, "pairs", count=40, seed=seed) for seed in (1, 2, 1))
    assert first == again != other


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


def test_tuples_have_the_labels_scores(small_project: Project) -> None:
    tuples = pa.concat_tables(tables(small_project, "tuples", count=30, negatives=3).values())
    lookup = open_lookup(small_project.folder("exports", "all", "lookup", "cbow"))
    names, scores = ["positive", "negative_1", "negative_2", "negative_3"], np.array(tuples["scores"].to_pylist())
    assert tuples.column_names[:6] == ["anchor", *names, "scores"]
    assert (scores[:, :1] >= scores[:, 1:]).all()
    anchors, *others = (lookup.rows_of(tuples[f"{name}_id"].to_pylist()) for name in ("anchor", *names))
    expected = [lookup.block(anchors, members, "first").diagonal() for members in others]
    np.testing.assert_allclose(scores.T, expected, atol=1e-6)
    with pytest.raises(UsageError, match="too few to draw from"):
        exported(small_project, "tuples", negatives=10**4)
