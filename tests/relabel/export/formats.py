"""Helpers of the tests of formats: a project with other parameters of one format."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from relabel.stages import Project


def with_params(project: Project, kind: str, **values: Any) -> Project:
    """Return the project with other parameters of one format."""
    export = project.config.export
    block = getattr(export, kind).model_copy(update=values)
    config = project.config.model_copy(update={"export": export.model_copy(update={kind: block})})
    return replace(project, config=config)
