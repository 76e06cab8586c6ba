"""Contract: an export is an artefact: refused if its inputs are stale or missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.relabel.export.formats import in_folder

from relabel import stages
from relabel.config import Config, load_config
from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.neighbours.spec import NeighboursParams
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
    kept = r"k \(8 there, .*Add `--set neighbours.k=8` to keep it, or run `relabel neighbours .*` to make it again"
    with pytest.raises(CheckError, match=kept):
        stages.export_neighbours(replace(project, config=config), "cbow", "all").run()


def test_a_lookup_takes_the_neighbours_that_settings_describe(project: Project) -> None:
    """Check the setting that the error of an export names, and what the lookup records."""
    pytest.importorskip("faiss")
    index = "IVF4,Flat;nprobe=2"
    config = project.config.model_copy(update={"neighbours": NeighboursParams(k=5, index=index)})
    stages.neighbours(replace(project, config=config), "cbow", "all").run()
    with pytest.raises(CheckError) as refused:
        stages.export_lookup(project, "cbow", "all").run()
    assert f"Add `--set 'neighbours.index={index}' --set neighbours.k=5` to keep it" in str(refused.value)
    near = stages.export_lookup(replace(project, config=config), "cbow", "all").run()[0].metadata["neighbours"]
    assert (near["width"], near["index"]) == (5, index)
