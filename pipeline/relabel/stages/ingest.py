"""fetch and ingest: the captions of a dataset, downloaded and verified, as one table."""

from __future__ import annotations

import os
from pathlib import Path

from relabel.config import Config
from relabel.core.errors import MissingError, UsageError
from relabel.corpus.params import PUBLISHED_FORMATS, IngestParams
from relabel.stages.job import Job, Values
from relabel.stages.project import Project
from relabel.store.manifest import Manifest

FETCHED = {"coco": "coco-captions", "flickr30k": "flickr30k"}
"""Dataset to the files that are fetched for it if no path is given."""


def ingest(project: Project) -> Job:
    """Prepare to build the corpus."""
    from relabel.corpus.ingest import ingest

    params, out = _located(project, project.config), project.layout.corpus
    recipe = ingest(params, project.runtime)

    def values(config: Config) -> Values:
        located = _located(project, config)
        values = located.model_dump(mode="json", exclude={"dataset", "url"})
        # Relative to the corpus, so that both can be moved.
        place = None if located.path is None else os.path.relpath(located.path.resolve(), out.resolve())
        return {f"ingest.{name}": value for name, value in (values | {"path": place}).items()}

    return Job(project, out, recipe, project.command("ingest", path=params.path), values)


def check_captions(project: Project) -> None:
    """Raise if the captions or parameters of the corpus have changed since it was ingested."""
    try:
        job = ingest(project)
    except MissingError as error:
        project.note_once(f"the corpus of {project.config.ingest.dataset} is taken as it is: {error}")
        return
    job.open()


def _located(project: Project, config: Config) -> IngestParams:
    """Return the parameters of the corpus; where they name no captions, those of before with what is given now."""
    params, out = config.ingest, project.layout.corpus
    if params.url is not None:
        from relabel.corpus.readers.remote import fetch_captions

        copied = fetch_captions(params, project.runtime.data, project.runtime.progress)
        params = params.model_copy(update={"path": copied, "url": None})
    elif params.path is None and (manifest := project.reused_corpus) is not None:
        before = {name.partition(".")[2]: value for name, value in manifest.runtime["parameters"].items()}
        place = Path(os.path.relpath(out / before["path"]))
        given = params.model_dump(include=params.model_fields_set)
        # The format of published captions of this name, which the parameters fill in by themselves.
        if params.format == PUBLISHED_FORMATS.get(params.dataset):
            given.pop("format", None)
        params = IngestParams.model_validate(before | given | {"dataset": params.dataset, "path": place})
    return params


def fetch_and_ingest(project: Project, mirror: Path | None = None) -> Manifest:
    """Fetch the captions, unless they have a path, which the parameters need not repeat; ingest them."""
    from relabel.datasets import fetch

    params = project.config.ingest
    if project.reused_corpus is None and not params.has_location:
        if params.dataset not in FETCHED:
            todo = f"Give ingest.path, or use {', '.join(FETCHED)}."
            raise UsageError(f"no captions are known for dataset {params.dataset}", todo=todo)
        fetch(FETCHED[params.dataset], project.runtime.data, mirror, project.runtime.progress)
    return ingest(project).build()
