"""Helpers of the tests of exports: a project with other parameters of one format, or with exports of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from relabel.stages import Project


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
