"""Contract: the table of neighbours holds the k best captions by (-score, row) of float64 scores for every caption
or image of a split, without the query itself and with siblings marked by id.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest
from tests.relabel.export.formats import in_folder
from tests.relabel.neighbours.searches import pooled, rows_of, searched

from relabel import stages
from relabel.core.errors import UsageError
from relabel.corpus import Corpus, References
from relabel.corpus.build import Caption
from relabel.neighbours.build import _release_memory
from relabel.stages import Project
from relabel.store.manifest import read_manifest


@pytest.fixture
def project(small_project: Project, tmp_path: Path) -> Project:
    return in_folder(small_project, tmp_path / "labels")


def by_loops(project: Project, label: str, within: str, of: str, k: int) -> list[dict[str, Any]]:
    corpus, relevance = project.corpus, stages.open_label(project, label, "all")
    rows = np.array(corpus.rows(project.splits(within)), np.int32)
    queries = {r: [r] for r in rows.tolist()}
    if of == "images":
        queries = {m: corpus.references([m]).rows.tolist() for m in corpus.images(project.splits(within))}
    expected = []
    for number, references in queries.items():
        image = number if of == "images" else int(corpus.image[number])
        scores = relevance.pairs(References.of([references] * len(rows)), rows).tolist()
        found = zip(scores, rows.tolist(), strict=True)
        best = sorted((-score, row) for score, row in found if of == "images" or row != number)[:k]
        line = {
            "row": number,
            "neighbours": [row for _, row in best],
            "scores": [float(np.float32(-s)) for s, _ in best],
        }
        expected.append(line | {"same_image": [corpus.image[row] == image for _, row in best]})
    return expected


@pytest.mark.parametrize("of", ["captions", "images"])
@pytest.mark.parametrize(("label", "pooling"), [("cbow", "max"), ("cbow", "mean"), ("cider", "set"), ("cbow", "first")])
def test_a_table_equals_loops(project: Project, label: str, pooling: str, of: str) -> None:
    project = pooled(project, label, pooling)
    job = searched(project, label, k=7, queries=of, candidates="val")
    assert rows_of(job) == by_loops(project, label, "val", of, 7)
    manifest = job.open()
    assert len(manifest.parts) > 1
    metadata = manifest.metadata
    assert [metadata[name] for name in ("k", "queries", "candidates", "pooling", "exact")] == [
        7,
        of,
        "val",
        pooling,
        True,
    ]
    assert metadata["symmetric"] is (label == "cbow" and of == "captions")
    assert not searched(project, label, k=7, queries=of, candidates="val").run()[1]


def test_k_may_be_larger_than_the_split(project: Project) -> None:
    for of, index in (("captions", None), ("images", None), ("captions", "Flat")):
        job = searched(project, "cbow", k=1000, queries=of, index=index, candidates="test")
        assert rows_of(job) == by_loops(project, "cbow", "test", of, 1000)
        assert job.open().metadata["width"] == len(project.corpus.splits["test"]) - (of == "captions")


def test_one_caption_has_no_neighbours(small_project: Project, tmp_path: Path) -> None:
    one = Project(small_project.config, small_project.runtime, tmp_path)
    one.__dict__["corpus"] = Corpus.from_captions([Caption("c:1", "i:1", "test", "a dog")])  # the cached property
    stages.encode(one, "cbow", "test").run()
    job = stages.neighbours(one, "cbow", "test")
    assert rows_of(job) == [{"row": 0, "neighbours": [], "scores": [], "same_image": []}]


def test_the_encoding_of_the_split_precedes_that_of_all(project: Project) -> None:
    def encoding(**params: str) -> str:
        return searched(project, "cbow", **params).spec.inputs["encoding"]

    fingerprint = read_manifest(project.folder("encodings", "all", "cbow"), "encoding").fingerprint
    assert {encoding(), encoding(candidates="test"), encoding(candidates="all")} == {fingerprint}
    stages.encode(project, "cbow", "test").run()
    test = read_manifest(project.folder("encodings", "test", "cbow"), "encoding").fingerprint
    assert (encoding(), encoding(candidates="test"), encoding(candidates="train")) == (fingerprint, test, fingerprint)
    assert (encoding(candidates="test", split="all"), encoding(split="test")) == (fingerprint, test)
    with pytest.raises(UsageError, match="lacks captions of train"):
        encoding(candidates="train", split="test")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems' allocators have no such call")
def test_freed_memory_leaves_the_process() -> None:
    _release_memory()
    before = psutil.Process().memory_info().rss
    blocks = [b"x" * (60 << 10) + b"%d" % i for i in range(4000)]  # 240 MB in blocks below the size of mapped ones
    last = blocks[-1]
    table = pa.array(np.arange(10_000_000))
    assert psutil.Process().memory_info().rss > before + (280 << 20)
    del blocks, table
    assert _release_memory() < before + (64 << 20)
    assert last.endswith(b"3999")  # at the end of the heap, where it keeps the C library from returning memory
