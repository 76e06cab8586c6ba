"""Contract: the table of neighbours holds the k best captions by (-score, row) of float64 scores for every caption
or image of a split, without the query itself and with siblings marked by id.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.relabel.neighbours.searches import searched

from relabel import stages
from relabel.core.errors import UsageError
from relabel.corpus import References
from relabel.stages import Project
from relabel.store.manifest import read_manifest

Expected = list[tuple[int, list[int], list[float], list[bool]]]


def by_loops(project: Project, label: str, within: str, of: str, k: int) -> Expected:
    corpus, relevance = project.corpus, stages.open_label(project, label, "all")
    rows = corpus.rows(project.splits(within))
    queries = {r: [r] for r in rows}
    if of == "images":
        queries = {m: corpus.references([m]).rows.tolist() for m in corpus.images(project.splits(within))}
    expected: Expected = []
    for number, references in queries.items():
        image = corpus.image_ids[number] if of == "images" else corpus.table["image_id"][number].as_py()
        rows_found = []
        for row in rows:
            if of == "images" or row != number:
                score = relevance.pairs(References.of([references]), np.array([row], np.int32))[0]
                rows_found.append((-float(score), row))
        best = sorted(rows_found)[:k]
        same = [corpus.table["image_id"][row].as_py() == image for _, row in best]
        expected.append((number, [row for _, row in best], [float(np.float32(-score)) for score, _ in best], same))
    return expected


def as_lists(table: pa.Table) -> Expected:
    return [tuple(line.values()) for line in table.to_pylist()]  # type: ignore[misc]


@pytest.mark.parametrize("of", ["captions", "images"])
@pytest.mark.parametrize("within", ["all", pytest.param("val", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("label", "pooling"), [("near", "max"), ("near", "mean"), ("cider", "refs"), ("near", "paired")]
)
def test_a_table_equals_loops(
    dataset: Any, make_lines: Any, read_table: Any, label: str, pooling: str, within: str, of: str
) -> None:
    dataset.settings = [f"sources.{label}.pooling={pooling}"]
    project = dataset.encoded(make_lines(9, "train") + make_lines(12, "val", 50), labels=[label])
    job = searched(project, label, k=7, of=of, within=within)
    manifest, built = job.run()
    assert built
    assert len(manifest.parts) > 1 or within == "val"
    assert as_lists(read_table(job)) == by_loops(project, label, within, of, 7)
    facts = manifest.facts
    assert (facts["k"], facts["of"], facts["within"], facts["pooling"], facts["exact"]) == (
        7,
        of,
        within,
        pooling,
        True,
    )
    assert facts["symmetric"] is (label == "near" and of == "captions")
    assert not searched(project, label, k=7, of=of, within=within).run()[1]


def test_k_may_be_larger_than_the_corpus(dataset: Any, make_lines: Any, read_table: Any) -> None:
    project = dataset.encoded(make_lines(3, "test"))
    captions = len(project.corpus)
    table = {}
    for of in ("captions", "images"):
        job = searched(project, "near", k=1000, of=of)
        assert job.run()[0].facts["width"] == captions - (of == "captions")
        table[of] = as_lists(read_table(job))
        assert table[of] == by_loops(project, "near", "all", of, 1000)


def test_one_caption_has_no_neighbours(dataset: Any, make_lines: Any, read_table: Any) -> None:
    project = dataset.encoded(make_lines(1, "test")[:1])
    job = stages.neighbours(project, "near")
    job.run()
    assert as_lists(read_table(job)) == [(0, [], [], [])]


def test_a_source_without_neighbours_is_a_one_line_error(dataset: Any, make_lines: Any) -> None:
    project = dataset.encoded(make_lines(2, "test"))
    with pytest.raises(UsageError, match="meteor has no neighbours: it scores pair by pair"):
        stages.neighbours(project, "words").run()
    with pytest.raises(UsageError, match="same_image has no neighbours: it knows image ids alone"):
        stages.neighbours(project, "same").run()


def test_the_encoding_of_the_split_precedes_that_of_all(dataset: Any, make_lines: Any) -> None:
    project = dataset.encoded(make_lines(5, "train") + make_lines(5, "test", 10))

    def encoding(**params: str) -> str:
        job = searched(project, "near", **params)
        return job.spec.inputs["encoding"]

    fingerprint = read_manifest(project.folder("encodings", "all", "near"), "encoding").fingerprint
    assert {encoding(), encoding(within="test"), encoding(within="all")} == {fingerprint}
    stages.encode(project, "near", "test").run()
    test = read_manifest(project.folder("encodings", "test", "near"), "encoding").fingerprint
    assert (encoding(), encoding(within="test"), encoding(within="train")) == (fingerprint, test, fingerprint)
    assert (encoding(within="test", split="all"), encoding(split="test")) == (fingerprint, test)
    with pytest.raises(UsageError, match="lacks captions of train"):
        encoding(within="train", split="test")
