"""fetch: the captions of a known dataset, downloaded and verified."""

from __future__ import annotations

from pathlib import Path

from relabel.core.errors import UsageError
from relabel.stages.project import Project

FETCHED = {"coco": "coco-captions", "flickr30k": "flickr30k"}
"""Dataset to what is fetched for it, where no path is given."""


def fetch(project: Project, mirror: Path | None = None) -> None:
    """Get the captions of the dataset, unless they are the user's own.

    Raises
    ------
    UsageError
        If no captions are known for the dataset and no path is given.
    MissingError, CheckError
        See relabel.datasets.fetch.
    """
    from relabel.datasets import fetch

    params = project.config.ingest
    if params.path is not None:
        return
    if params.dataset not in FETCHED:
        what, known = f"no captions are known for dataset {params.dataset}", ", ".join(FETCHED)
        raise UsageError(what, todo=f"Give ingest.path, or use {known}.")
    fetch(FETCHED[params.dataset], project.runtime.data, mirror, project.runtime.progress)
