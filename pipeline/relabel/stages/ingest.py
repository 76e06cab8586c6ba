"""ingest: captions of any format as the one table of a corpus."""

from __future__ import annotations

from pathlib import Path

from relabel.stages.fetch import fetch
from relabel.stages.job import log_status
from relabel.stages.project import Project
from relabel.store.manifest import Manifest


def ingest(project: Project) -> tuple[Manifest, bool]:
    """Make the corpus. See relabel.corpus.ingest."""
    from relabel.corpus.ingest import ingest

    return ingest(project.config.ingest, project.layout.corpus, project.runtime)


def fetch_and_ingest(project: Project, mirror: Path | None = None) -> None:
    """Fetch and ingest the captions, unless the corpus came from a path that the parameters do not repeat.

    Raises
    ------
    RelabelError
        See `fetch` and `ingest`.
    """
    if (manifest := project.reused_corpus) is not None:
        log_status(project, (manifest, False), project.layout.corpus)
        return
    fetch(project, mirror)
    log_status(project, ingest(project), project.layout.corpus)
