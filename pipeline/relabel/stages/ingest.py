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

    command = project.command("ingest", path=params.path)
    keep = "Use another name with --dataset NAME to keep both"
    return Job(project, out, recipe, command, values, keep)


def check_captions(project: Project) -> None:
    """Raise if the captions or parameters of the corpus have changed since it was ingested."""
    try:
        job = ingest(project)
    except MissingError as error:
        project.note_once(f"the corpus of {project.config.ingest.dataset} is taken as it is: {error}")
        return
    job.open()


def _located(project: Project, config: Config) -> IngestParams:
    """Return the parameters of the corpus; where these name no captions, those that it was ingested with before."""
    params, out = config.ingest, project.layout.corpus
    if params.url is not None:
        from relabel.corpus.readers.remote import fetch_captions

        copied = fetch_captions(params, project.runtime.data, project.runtime.progress)
        params = params.model_copy(update={"path": copied, "url": None})
    elif params.path is None and (manifest := project.reused_corpus) is not None:
        before = {name.partition(".")[2]: value for name, value in manifest.runtime["parameters"].items()}
        place = Path(os.path.relpath(out / before["path"]))
        params = IngestParams.model_validate(before | _given(config) | {"dataset": params.dataset, "path": place})
    return params


def _given(config: Config) -> Values:
    """Return the parameters that the file or the command gives for captions whose path they do not name."""
    params, file = config.ingest, config.file.ingest
    names = params.model_fields_set
    if "dataset" not in file.model_fields_set:
        # What a file gives for any dataset is a default for new captions, and not an edit of these.
        names = {name for name in names if getattr(params, name) != getattr(file, name)}
    if params.format == PUBLISHED_FORMATS.get(params.dataset):
        # Of the published captions of this name, which the parameters fill in by themselves.
        names = names - {"format"}
    return params.model_dump(include=names)


def fetch_and_ingest(project: Project, mirror: Path | None = None) -> Manifest:
    """Fetch the captions, unless the corpus came from a path that the parameters need not repeat; ingest them."""
    if project.reused_corpus is None:
        fetch(project, mirror)
    return ingest(project).build()
