"""Contract: an export is an artefact: refused if its inputs are stale or missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.relabel.export.formats import in_folder

from relabel import stages
from relabel.config import Config, load_config
from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.stages import Project


@pytest.fixture
def project(small_project: Project, tmp_path: Path) -> Project:
    """Return the small project without neighbours and exports."""
    return in_folder(small_project, tmp_path / "labels")


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
