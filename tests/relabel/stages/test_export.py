"""Contract: an export is an artefact: refused if its inputs are stale or missing. The table of formats and their
parameters agree. Exported neighbours hold the ids of the captions and images that their table names by row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.relabel.export.formats import in_folder

from relabel import stages
from relabel.config import Config, load_config
from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.core.types import Queries
from relabel.export import EXPORTS, export_class
from relabel.export.params import ExportParams
from relabel.stages import Project
from relabel.stages.verify import verify


@pytest.fixture
def project(small_project: Project, tmp_path: Path) -> Project:
    """Return the small project without neighbours and exports."""
    return in_folder(small_project, tmp_path / "labels")


def test_tables_of_formats_agree() -> None:
    for kind in EXPORTS:
        assert export_class(kind).__name__ == f"{kind.capitalize()}Export"
        assert kind in ExportParams.model_fields


def test_an_unknown_format_and_missing_or_stale_inputs_are_refused(project: Project, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no format 'parquet'"):
        stages.export(project, "parquet", "cbow", "all").run()
    with pytest.raises(MissingError, match="relabel encode --label meteor --split all"):
        stages.export(project, "hf", "meteor", "all").run()
    (tmp_path / "others.txt").write_text("dog 1 0\ncats 0 1\n")
    vectors = {"sources.cbow.tokenizer": "lower_split", "sources.cbow.vectors": str(tmp_path / "others.txt")}
    stale = load_config(None, [], vectors)
    with pytest.raises(CheckError, match="vectors"):
        stages.export(replace(project, config=stale), "hf", "cbow", "all").run()
    with pytest.raises(MissingError, match="relabel neighbours --label cbow --candidates all --queries captions"):
        stages.export_neighbours(project, "cbow", "all").run()
    stages.neighbours(project, "cbow", "all").run()
    config = project.config.model_copy(update={"neighbours": Config().neighbours})
    with pytest.raises(CheckError, match=r"k \(8 there, "):
        stages.export_neighbours(replace(project, config=config), "cbow", "all").run()


@pytest.mark.parametrize("of", ["captions", "images"])
def test_rows_of_neighbours_become_ids(of: Queries, project: Project) -> None:
    corpus, table = project.corpus, stages.neighbours(project, "cbow", "all", of)
    table.run()
    job = stages.export_neighbours(project, "cbow", "all", of)
    manifest, built = job.run()
    assert built
    assert len(manifest.parts) > 1
    assert not job.run()[1]
    count = 0
    for name in manifest.parts:
        rows, by_id = pq.read_table(table.out / name).to_pylist(), pq.read_table(job.out / name).to_pylist()
        count += len(rows)
        for numbers, ids in zip(rows, by_id, strict=True):
            row, near = numbers["row"], numbers["neighbours"]
            query = {"image_id": corpus.image_ids[corpus.image[row] if of == "captions" else row]}
            if of == "captions":
                query["caption_id"] = corpus.caption_ids[row]
            assert ids == query | {
                "neighbours": [corpus.caption_ids[j] for j in near],
                "neighbour_images": [corpus.image_ids[corpus.image[j]] for j in near],
                "scores": numbers["scores"],
                "same_image": numbers["same_image"],
            }
    assert count == len(corpus) if of == "captions" else len(corpus.image_ids)
    assert verify([job.out]).problems == []
