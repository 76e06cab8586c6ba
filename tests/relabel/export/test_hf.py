"""Contract: `datasets.load_dataset` opens the folder of `relabel export hf` with its splits, ids, texts, vectors and
neighbours; the card states label, range, licence and how to load it.

safetensors reads the vectors of a label, with the rows and ids of their captions; labels without vectors are refused.
Pairs hold equally many scores of each bin and tuples a positive above its negatives, in the columns that the losses of
sentence-transformers take, with the label's exact scores and the ids of the texts; the seed alone decides the draws.
Positives and negatives follow one rule of margins, also for negative scores. FlagEmbedding and tevatron read lines of
queries, positives, negatives and scores: the loops here state how their data classes draw from a line
(`AbsEmbedderTrainDataset` of FlagEmbedding 1.4.2, `DistilTrainDataset` of tevatron at dd06310).
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
from relabel.export.pairs import draw_from_bins, sides
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


MARGINS = [(0.0, 0.0), (0.1, 0.0), (0.0, 0.2), (0.05, 0.3)]


@pytest.mark.parametrize(("margin", "relative"), MARGINS)
def test_sides_are_those_of_a_loop_for_scores_of_any_sign(margin: float, relative: float) -> None:
    rng = np.random.default_rng(5)
    scores, own = rng.uniform(-1, 1, (300, 7)).round(2), rng.random((300, 7)) < 0.2
    scores[rng.random((300, 7)) < 0.2] = np.nan
    scores[:3] = [[-0.5, -0.49, -0.51, -0.56, -0.8, np.nan, -0.5], [np.nan] * 7, [0.0, 0, -0.01, 0.5, 0, 0, 0]]
    own[0] = [True, *[False] * 6]
    expected = np.zeros((300, 7), int)
    for i in range(300):
        given = [j for j in range(7) if scores[i, j] == scores[i, j]]
        positive = max((scores[i, j] for j in [j for j in given if own[i, j]] or given), default=0.0)
        for j in given:
            if scores[i, j] >= positive:
                expected[i, j] = 1
            elif scores[i, j] < positive - max(margin, relative * abs(positive)) and not own[i, j]:
                expected[i, j] = -1
    assert sides(scores, own, margin, relative).tolist() == expected.tolist()
    # A relative margin of a negative score drops what is nearly as good, and never keeps what is better.
    first = {0.0: [1, 1, -1, -1, -1, 0, 1], 0.2: [1, 1, 0, 0, -1, 0, 1]}
    assert relative not in first or margin or expected[0].tolist() == first[relative]


def passages(record: dict[str, Any], kind: str) -> tuple[list[Any], list[Any]]:
    """Return (id, text, score) of positives and negatives, as the data class of the trainer takes them from a line."""
    if kind == "tevatron":
        keys = [record[f"{side}_passages"] for side in ("positive", "negative")]
        assert not any("title" in one for side in keys for one in side)  # it would be put before the text
        return tuple([(p["docid"], p["text"], p["score"]) for p in side] for side in keys)  # type: ignore[return-value]
    return tuple(
        [(record[f"{side}_ids"][i], text, record[f"{side}_scores"][i]) for i, text in enumerate(record[side])]
        for side in ("pos", "neg")
    )  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("kind", "label", "margin", "relative", "scale"),
    [("flagembedding", "cbow", 0, 0.2, 20), ("flagembedding", "cider", 0, 0, 1), ("tevatron", "cbow", 0.1, 0, 1)],
)
def test_lines_of_trainers_hold_positives_negatives_and_scores(
    small_project: Project, tmp_path: Path, kind: str, label: str, margin: float, relative: float, scale: float
) -> None:
    params: dict[str, Any] = {"margin": margin, "relative_margin": relative, "scale": scale}
    folder, _ = exported(small_project, kind, label, count=40, rows_per_shard=30, **params)
    corpus, lookup = small_project.corpus, open_lookup(small_project.folder("exports", "all", "lookup", label))
    files = sorted((folder / "data").iterdir())
    assert [file.name for file in files[:2]] == ["test-00000-of-00002.jsonl", "test-00001-of-00002.jsonl"]
    loaded = pytest.importorskip("datasets").load_dataset(
        "json", data_files=[str(file) for file in files], split="train", cache_dir=str(tmp_path)
    )
    assert len(loaded) > 80
    for record in loaded:
        anchor, (positives, negatives) = corpus.row_of[record["query_id"]], passages(record, kind)
        split = next(rows for rows in corpus.splits.values() if anchor in rows)
        assert record["query"] == corpus.texts[anchor]
        assert positives
        assert negatives
        rows = [corpus.row_of[name] for name, _, _ in positives + negatives]
        assert [text for _, text, _ in positives + negatives] == [corpus.texts[row] for row in rows]
        assert len({anchor, *rows}) == len(rows) + 1
        assert set(rows) <= set(split)
        scores = [score / scale for _, _, score in positives + negatives]
        expected = lookup.block([anchor], rows, "first", dtype=np.float64)[0]
        np.testing.assert_allclose(scores, expected, atol=1e-6)
        assert scores == sorted(scores, reverse=True)
        count, own = len(positives), [corpus.image[row] == corpus.image[anchor] for row in rows]
        assert not any(own[count:])
        best = max([s for s, mine in zip(scores, own, strict=True) if mine] or scores)
        assert min(scores[:count]) >= best - 1e-12
        assert scores[count] < best - max(margin, relative * abs(best)) + 1e-12


def test_margins_part_tuples_and_pairs(small_project: Project) -> None:
    wide, narrow = (
        pa.concat_tables(tables(small_project, "tuples", count=60, margin=margin).values()) for margin in (0.4, 0.0)
    )
    assert 0 < len(wide) < len(narrow)
    scores, corpus = np.array(wide["scores"].to_pylist()), small_project.corpus
    assert (scores[:, 1:] < scores[:, :1] - 0.4).all()
    anchors, others = ([corpus.row_of[i] for i in wide[f"{name}_id"].to_pylist()] for name in ("anchor", "negative_1"))
    assert (corpus.image[anchors] != corpus.image[others]).all()

    def apart(**params: Any) -> int:
        pairs = pa.concat_tables(tables(small_project, "pairs", count=10**4, candidates=30, **params).values())
        rows = ([corpus.row_of[i] for i in pairs[f"caption_id{n}"].to_pylist()] for n in (1, 2))
        return int(np.not_equal(*(corpus.image[row] for row in rows)).sum())

    assert 0 < apart(margin=1000) < apart(relative_margin=0.5) < apart()
