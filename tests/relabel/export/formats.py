"""Helpers of the tests of exports: a project with other parameters of one format, or with exports of its own."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relabel import stages
from relabel.corpus.build import Caption
from relabel.export import export_class
from relabel.stages import Project
from relabel.store.manifest import Manifest


def with_params(project: Project, kind: str, **values: Any) -> Project:
    """Return the project with other parameters of one format."""
    export = project.config.export
    block = getattr(export, kind).model_copy(update=values)
    config = project.config.model_copy(update={"export": export.model_copy(update={kind: block})})
    return replace(project, config=config)


def in_folder(project: Project, labels: Path, *names: str) -> Project:
    """Return the project in a new folder that has links to its corpus, its encodings of all, and more by name."""
    root = project.folder().absolute()
    for name in ("corpus", "encodings/all", *names):
        (labels / root.name / name).parent.mkdir(parents=True, exist_ok=True)
        (labels / root.name / name).symlink_to(root / name)
    return replace(project, labels=labels)


def with_captions(project: Project, folder: Path, captions: Iterable[Caption]) -> Project:
    """Return a project in a new folder, of other captions with the same labels."""
    lines = (json.dumps(caption._asdict()) for caption in captions)
    (folder / "captions.jsonl").write_text("\n".join(lines), encoding="utf-8")
    ingest = project.config.ingest.model_copy(update={"path": folder / "captions.jsonl"})
    other = Project(project.config.model_copy(update={"ingest": ingest}), project.runtime, folder / "labels")
    stages.ingest(other).run()
    return other


def exported(
    project: Project, kind: str, label: str = "cbow", split: str = "all", rows_per_file: int = 100_000, **values: Any
) -> tuple[Path, Manifest]:
    """Export with other parameters of a format in place of an earlier export; return the folder and its manifest."""
    other = with_params(project, kind, **values)
    job = stages.export(replace(other, runtime=replace(other.runtime, rebuild=True)), kind, label, split)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export_class(kind), "rows_per_file", rows_per_file)
        return job.out, job.run()[0]
