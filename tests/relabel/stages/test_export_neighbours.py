"""Contract: exported neighbours hold the ids of the captions and images that the table of neighbours names by row;
neighbours that are missing or of another corpus are refused with the command that makes them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from relabel import stages
from relabel.config import Config
from relabel.core.errors import CheckError, MissingError
from relabel.core.types import Of
from relabel.stages import Project
from relabel.stages.verify import verify

LABEL = "cbow"


@pytest.fixture
def project(small_project: Project, tmp_path: Path) -> Project:
    """Return the small project without neighbours."""
    root = small_project.folder().absolute()
    for name in ("corpus", "encodings"):
        (tmp_path / root.name).mkdir(exist_ok=True)
        (tmp_path / root.name / name).symlink_to(root / name)
    return replace(small_project, labels=tmp_path)


@pytest.mark.parametrize("of", ["captions", "images"])
def test_rows_become_ids(of: Of, project: Project) -> None:
    corpus, near = project.corpus, stages.neighbours(project, LABEL, "all", of)
    folder = near.run() and near.out
    job = stages.export_neighbours(project, LABEL, "all", of)
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
    assert (count, len(manifest.parts) > 1) == (len(corpus) if of == "captions" else len(corpus.image_ids), True)
    assert verify([job.out]).problems == []


def test_missing_or_stale_neighbours_are_refused(project: Project) -> None:
    with pytest.raises(MissingError, match=f"relabel neighbours --label {LABEL} --within all --of captions"):
        stages.export_neighbours(project, LABEL, "all").run()
    stages.neighbours(project, LABEL, "all").run()
    config = project.config.model_copy(update={"neighbours": Config().neighbours})
    with pytest.raises(CheckError, match=r"k \(8 there, "):
        stages.export_neighbours(replace(project, config=config), LABEL, "all").run()
