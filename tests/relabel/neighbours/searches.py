"""Searches with other parameters than those of a project."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from relabel import stages
from relabel.stages import Job, Project


def searched(project: Project, label: str, **params: Any) -> Job:
    """Return the job of neighbours with some parameters of `neighbours` replaced, as if the file had these."""
    config = project.config
    values = config.neighbours.model_copy(update=params)
    return stages.neighbours(replace(project, config=config.model_copy(update={"neighbours": values})), label)
