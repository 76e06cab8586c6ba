"""fetch and ingest: the captions of a dataset, downloaded and verified, as one table."""

from __future__ import annotations

from pathlib import Path

from relabel.core.errors import UsageError
from relabel.stages.job import status_line
from relabel.stages.project import Project
from relabel.store.manifest import Manifest

FETCHED = {"coco": "coco-captions", "flickr30k": "flickr30k"}
"""Dataset to the files that are fetched for it if no path is given."""


def fetch(project: Project, mirror: Path | None = None) -> None:
    """Download the captions of the dataset, unless the parameters name a path."""
    from relabel.datasets import fetch

    params = project.config.ingest
    if params.has_location:
        return
    if params.dataset not in FETCHED:
        names = ", ".join(FETCHED)
        raise UsageError(
            f"no captions are known for dataset {params.dataset}", todo=f"Give ingest.path, or use {names}."
        )
    fetch(FETCHED[params.dataset], project.runtime.data, mirror, project.runtime.progress)


def ingest(project: Project) -> tuple[Manifest, bool]:
    """Build the corpus; return its manifest and whether it was built by this call."""
    from relabel.corpus.ingest import ingest

    params, runtime = project.config.ingest, project.runtime
    if params.url is not None:
        from relabel.corpus.readers.remote import fetch_captions

        copied = fetch_captions(params, runtime.data, runtime.progress)
        params = params.model_copy(update={"path": copied, "url": None})
    return ingest(params, project.layout.corpus, runtime)


def fetch_and_ingest(project: Project, mirror: Path | None = None) -> None:
    """Fetch and ingest the captions, unless the corpus came from a path that the parameters do not repeat."""
    # Without the path, `ingest` would read the published captions of the same name.
    if (manifest := project.reused_corpus) is not None:
        project.runtime.progress.note(status_line(False, manifest, project.layout.corpus))
        return
    fetch(project, mirror)
    manifest, built = ingest(project)
    project.runtime.progress.note(status_line(built, manifest, project.layout.corpus))
