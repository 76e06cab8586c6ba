"""Contract: the table of neighbours holds the k best captions by (-score, row) of float64 scores for every caption
or image of a split, without the query itself and with siblings marked by id.

Contract: an exhaustive index finds the neighbours of the exact search; the recall of any other is measured and
recorded. Scores and order are exact, and the number of neighbours is k. Repeated runs are equal.

Contract: any Parquet reader reads a shard.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.relabel.export.formats import in_folder
from tests.relabel.neighbour_tables.searches import pooled, rows_of, searched

from relabel import stages
from relabel.core.errors import UsageError
from relabel.corpus import References
from relabel.corpus.params import IngestParams
from relabel.neighbour_tables.spec import SCHEMA, row_groups, table_of
from relabel.stages import Session, open_corpus
from relabel.store.files import write_plain
from relabel.store.manifest import read_manifest


@pytest.fixture
def session(small_project: Session, tmp_path: Path) -> Session:
    return in_folder(small_project, tmp_path / "labels")


def by_loops(session: Session, label: str, within: str, of: str, k: int) -> list[dict[str, Any]]:
    corpus, relevance = open_corpus(session), stages.open_label(session, label, "all")
    rows = np.array(corpus.split_rows(within), np.int32)
    queries = {r: [r] for r in rows.tolist()}
    if of == "images":
        queries = {m: corpus.references([m]).rows.tolist() for m in corpus.images_of(corpus.split_rows(within))}
    expected = []
    for number, references in queries.items():
        image = number if of == "images" else int(corpus.image[number])
        scores = relevance.pairs(References.of([references] * len(rows)), rows).tolist()
        found = zip(scores, rows.tolist(), strict=True)
        best = sorted((-score, row) for score, row in found if of == "images" or row != number)[:k]
        line = {"row": number, "neighbours": [row for _, row in best]}
        line |= {"scores": [float(np.float32(-score)) for score, _ in best]}
        expected.append(line | {"same_image": [corpus.image[row] == image for _, row in best]})
    return expected


@pytest.mark.parametrize(
    ("label", "pooling", "of"),
    [
        ("cbow", "max", "captions"),
        ("cbow", "mean", "images"),
        ("cbow", "first", "images"),
        ("cider", "set", "captions"),
        ("cider", "set", "images"),
        pytest.param("cbow", "max", "images", marks=pytest.mark.slow),
        pytest.param("cbow", "mean", "captions", marks=pytest.mark.slow),
        pytest.param("cbow", "first", "captions", marks=pytest.mark.slow),
    ],
)
def test_a_table_equals_loops(session: Session, label: str, pooling: str, of: str) -> None:
    session = pooled(session, label, pooling)
    job = searched(session, label, k=7, queries=of, candidates="val")
    assert rows_of(job) == by_loops(session, label, "val", of, 7)
    manifest = job.open()
    assert len(manifest.parts) > 1
    recorded = {"k": 7, "queries": of, "candidates": "val", "pooling": pooling, "exact": True}
    recorded |= {"symmetric": label == "cbow" and of == "captions"}
    assert {name: manifest.metadata[name] for name in recorded} == recorded
    assert not searched(session, label, k=7, queries=of, candidates="val").run()[1]


def test_k_may_be_larger_than_the_split(session: Session) -> None:
    for of, index in (("captions", None), ("images", None), ("captions", "Flat")):
        job = searched(session, "cbow", k=1000, queries=of, index=index, candidates="test")
        assert rows_of(job) == by_loops(session, "cbow", "test", of, 1000)
        assert job.open().metadata["width"] == len(open_corpus(session).splits["test"]) - (of == "captions")


def test_one_caption_has_no_neighbours(small_project: Session, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("image_id,split,text\ni,test,a dog\n", encoding="utf-8")
    params = IngestParams(dataset="one", path=tmp_path / "one.csv")
    config = small_project.config.model_copy(update={"ingest": params})
    one = Session(config, small_project.runtime, tmp_path)
    stages.ingestion(one).run()
    stages.encoding(one, "cbow", "test").run()
    job = stages.neighbour_table(one, "cbow", "test")
    assert rows_of(job) == [{"row": 0, "neighbours": [], "scores": [], "same_image": []}]


def test_the_encoding_of_the_split_precedes_that_of_all(session: Session) -> None:
    def encoding(**params: str) -> str:
        return searched(session, "cbow", **params).spec().inputs["encoding"]

    fingerprint = read_manifest(session.folder("encodings", "all", "cbow"), "encoding").fingerprint
    assert {encoding(), encoding(candidates="test"), encoding(candidates="all")} == {fingerprint}
    stages.encoding(session, "cbow", "test").run()
    test = read_manifest(session.folder("encodings", "test", "cbow"), "encoding").fingerprint
    assert (encoding(), encoding(candidates="test"), encoding(candidates="train")) == (fingerprint, test, fingerprint)


@pytest.mark.parametrize(
    ("pooling", "of"),
    [
        ("max", "captions"),
        ("max", "images"),
        ("mean", "images"),
        pytest.param("mean", "captions", marks=pytest.mark.slow),
        pytest.param("first", "captions", marks=pytest.mark.slow),
        pytest.param("first", "images", marks=pytest.mark.slow),
    ],
)
def test_an_exhaustive_index_is_exact(session: Session, pooling: str, of: str) -> None:
    session = pooled(session, "cbow", pooling)
    exact = rows_of(searched(session, "cbow", k=9, queries=of, candidates="val"))
    job = searched(session, "cbow", k=9, queries=of, candidates="val", index="Flat")
    # An index may choose any of equal texts.
    assert [row["scores"] for row in rows_of(job)] == [row["scores"] for row in exact]
    metadata = job.open().metadata
    assert (metadata["exact"], metadata["recall"]["value"], metadata["recall"]["queries"]) == (False, 1.0, len(exact))


def test_recall_is_measured_and_lists_have_k_rows(session: Session) -> None:
    best = rows_of(searched(session, "cbow", k=20))
    job = searched(session, "cbow", k=20, index="IVF16,Flat")
    lists, metadata, hits = rows_of(job), job.open().metadata, []
    for ours, theirs in zip(lists, best, strict=True):
        assert len(set(ours["neighbours"])) == 20
        assert ours["row"] not in ours["neighbours"]
        assert ours["scores"] == sorted(ours["scores"], reverse=True)
        scores = dict(zip(theirs["neighbours"], theirs["scores"], strict=True))
        found = zip(ours["neighbours"], ours["scores"], strict=True)
        assert all(scores.get(row, score) == score for row, score in found)
        hits += [score >= theirs["scores"][-1] for score in ours["scores"]]
    assert 0.2 < metadata["recall"]["value"] < 1.0
    assert metadata["recall"]["value"] == pytest.approx(np.mean(hits))
    first = [path.read_bytes() for path in sorted(job.out.glob("*.parquet"))]
    job.out.rename(session.labels / "elsewhere")
    searched(replace(session, runtime=replace(session.runtime, threads=2)), "cbow", k=20, index="IVF16,Flat").run()
    assert [path.read_bytes() for path in sorted(job.out.glob("*.parquet"))] == first


def test_an_index_for_other_sources_is_refused(session: Session) -> None:
    with pytest.raises(UsageError, match="cider has no index: faiss searches vectors"):
        searched(session, "cider", index="Flat").run()
    with pytest.raises(UsageError, match=r"faiss rejects index 'IVF100000,Flat': .*100000"):
        searched(session, "cbow", index="IVF100000,Flat").run()


@pytest.mark.parametrize(("rows", "width"), [(0, 5), (1, 0), (9, 3), (2_000, 100)])
def test_a_shard_is_plain_parquet(tmp_path: Path, rows: int, width: int) -> None:
    rng, path = np.random.default_rng(rows), tmp_path / "part.parquet"
    numbers = np.arange(rows, dtype=np.int32) + 500_000
    size = (rows, width)
    lists = [rng.integers(0, 1 << 31, size, np.int32), rng.standard_normal(size), rng.random(size) < 0.3]
    pieces = [slice(b.start, b.stop) for b in row_groups(range(rows), width)]
    write_plain(path, (table_of(numbers[p], *(values[p] for values in lists)) for p in pieces), SCHEMA)
    table = pq.read_table(path)
    assert table.schema.equals(SCHEMA)
    assert table["row"].to_pylist() == numbers.tolist()
    for name, values in zip(SCHEMA.names[1:], lists, strict=True):
        flat = table[name].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        assert np.array_equal(flat, values.astype(flat.dtype).reshape(-1))
