"""Contract: exported neighbours hold the ids of the captions and images that the table of neighbours names by row;
neighbours that are missing or of another corpus are refused with the command that makes them, also without encoding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from relabel import stages
from relabel.config import load_config
from relabel.core.errors import CheckError, MissingError
from relabel.core.runtime import Runtime
from relabel.core.types import Of
from relabel.corpus import Corpus
from relabel.corpus.build import Caption
from relabel.neighbours.spec import table_of
from relabel.stages import Project
from relabel.stages.verify import verify
from relabel.store.artefact import Recipe, build
from relabel.store.workdir import Work, part_name, part_ranges

WIDTH = 4


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return nine images with 1 to 3 captions each."""
    entries = [Caption(f"x:{m}-{i}", f"x:{m}", "train", "a dog") for m in range(9) for i in range(1 + m % 3)]
    project = Project(load_config(None), Runtime(threads=1), tmp_path / "labels")
    project.__dict__["corpus"] = Corpus.from_captions(entries)  # the value of the cached property
    return project


def write_table(project: Project, of: Of, corpus_digest: str) -> Path:
    """Write a table of random neighbours in two shards."""
    corpus, rng = project.corpus, np.random.default_rng(5)
    queries = range(len(corpus) if of == "captions" else len(corpus.image_ids))
    parts = part_ranges(queries, 1 + len(queries) // 2)

    def fill(work: Work) -> None:
        names = dict.fromkeys(("label", "within", "split", "bounds", "order", "without_encoding"), "train")
        work.facts |= names | {"of": of, "rows": [queries.start, queries.stop]}
        for i, rows in enumerate(parts):
            shape = len(rows), WIDTH
            near, scores = rng.integers(0, len(corpus), shape), rng.random(shape)
            table = table_of(np.array(rows, np.int32), near.astype(np.int32), scores, scores > 0.5)
            work.table(part_name(i, len(parts)), lambda table=table: table)

    out = project.layout.neighbours("train", of, "sbert")
    build(out, Recipe("neighbours", "sbert", lambda: {"of": of, "pooling": "max"}, {"corpus": corpus_digest}, fill))
    return out


@pytest.mark.parametrize("of", ["captions", "images"])
def test_rows_become_ids(of: Of, project: Project) -> None:
    corpus = project.corpus
    folder = write_table(project, of, corpus.digest)
    job = stages.export_neighbours(project, "sbert", "train", of)
    manifest, built = job.run()
    assert built
    assert not job.run()[1]
    count = 0
    for name in manifest.parts:
        table, by_id = pq.read_table(folder / name).to_pylist(), pq.read_table(job.out / name).to_pylist()
        count += len(table)
        for numbers, ids in zip(table, by_id, strict=True):
            row = numbers["row"]
            query = {"image_id": corpus.image_ids[corpus.image[row] if of == "captions" else row]}
            if of == "captions":
                query["caption_id"] = corpus.caption_ids[row]
            near = numbers["neighbours"]
            assert ids == query | {
                "neighbours": [corpus.caption_ids[j] for j in near],
                "neighbour_images": [corpus.image_ids[corpus.image[j]] for j in near],
                "scores": numbers["scores"],
                "same_image": numbers["same_image"],
            }
    assert (count, len(manifest.parts)) == (len(corpus) if of == "captions" else len(corpus.image_ids), 2)
    assert verify([job.out], project.runtime.data).problems == []


def test_missing_or_foreign_neighbours_are_refused(project: Project) -> None:
    with pytest.raises(MissingError, match="relabel neighbours --label sbert --within train --of captions"):
        stages.export_neighbours(project, "sbert", "train")
    write_table(project, "captions", "another")
    with pytest.raises(CheckError, match="another corpus"):
        stages.export_neighbours(project, "sbert", "train")
