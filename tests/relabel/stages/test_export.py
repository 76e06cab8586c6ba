"""Contract: an export is an artefact: refused if its inputs are stale or missing. The table of formats and their
parameters agree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from relabel import stages
from relabel.config import load_config
from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.export import EXPORTS, export_class
from relabel.export.params import ExportParams
from relabel.stages import Project


@pytest.fixture
def project(small_project: Project, tmp_path: Path) -> Project:
    """Return the small project with a new folder of exports."""
    labels = tmp_path / "labels"
    dataset = small_project.config.ingest.dataset
    (labels / dataset).mkdir(parents=True)
    for name in ("corpus", "encodings", "neighbours"):
        (labels / dataset / name).symlink_to(small_project.folder().absolute() / name)
    return replace(small_project, labels=labels)


def test_tables_of_formats_agree() -> None:
    for kind in EXPORTS:
        assert export_class(kind).__name__ == f"{kind.capitalize()}Export"
        assert kind in ExportParams.model_fields


def test_an_unknown_format_and_missing_or_stale_inputs_are_refused(project: Project) -> None:
    with pytest.raises(UsageError, match="no format 'parquet'"):
        stages.export(project, "parquet", "cbow", "all").run()
    with pytest.raises(MissingError, match="relabel encode --label meteor --split all"):
        stages.export(project, "hf", "meteor", "all").run()
    stale = load_config(None, [], {"sources.cbow.tokenizer": "lower_split", "sources.cbow.vectors": "glove"})
    with pytest.raises((CheckError, MissingError)):
        stages.export(replace(project, config=stale), "hf", "cbow", "all").run()
