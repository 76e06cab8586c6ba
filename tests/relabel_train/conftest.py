"""Exported folders of a small project."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from relabel import stages
from relabel.export.params import ExportBatchesParams
from relabel.stages import Project


@pytest.fixture(scope="module")
def exports(small_project: Project, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a lookup of vectors, one of n-grams, and a plan of several shards."""
    params = ExportBatchesParams(batch_size=8, epochs=2, batches_per_epoch=5)
    config = small_project.config.model_copy(
        update={"export": small_project.config.export.model_copy(update={"batches": params})}
    )
    project = Project(config, small_project.runtime, tmp_path_factory.mktemp("batches"))
    (project.folder().parent / "coco").mkdir(exist_ok=True)
    for name in ("corpus", "encodings"):
        (project.folder() / name).symlink_to(small_project.folder() / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("relabel.export.precomputed._SHARD", 4 * 64 * 3)  # three batches
        job = stages.export_batches(project, "cbow", "all")
        job.run()
    lookups = {label: small_project.folder("exports", "all", "lookup", label) for label in ("cbow", "cider")}
    return {**lookups, "batches": job.out}


@pytest.fixture
def copy(exports: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that copies an export to the same path again."""

    def make(kind: str) -> Path:
        folder = tmp_path / "export"
        shutil.rmtree(folder, ignore_errors=True)
        return Path(shutil.copytree(exports[kind], folder))

    return make
