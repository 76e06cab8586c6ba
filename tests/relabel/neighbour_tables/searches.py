"""Searches with other parameters than those of a project, and their tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from relabel import stages
from relabel.stages import Job, Session
from relabel.store.manifest import read_manifest, read_parts


def searched(session: Session, label: str, **params: Any) -> Job:
    """Return the job of neighbours with some parameters of `neighbours` replaced, as if the file had these."""
    config = session.config
    values = config.neighbours.model_copy(update=params)
    return stages.neighbour_table(replace(session, config=config.model_copy(update={"neighbours": values})), label)


def pooled(session: Session, label: str, pooling: str) -> Session:
    """Return the project with another pooling of a label."""
    sources = session.config.sources
    changed = sources | {label: sources[label].model_copy(update={"pooling": pooling})}
    return replace(session, config=session.config.model_copy(update={"sources": changed}))


def rows_of(job: Job) -> list[dict[str, Any]]:
    """Build the table of a job; return its rows."""
    job.run()
    rows: list[dict[str, Any]] = read_parts(job.out, read_manifest(job.out, "neighbours")).to_pylist()
    return rows
