"""fetch and ingest: the captions of a dataset, downloaded and verified, as one table."""

from __future__ import annotations

from pathlib import Path

from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.corpus import Corpus
from relabel.corpus.build import RowIds
from relabel.corpus.ingest import losses
from relabel.corpus.params import PUBLISHED_FORMATS, IngestParams
from relabel.corpus.preview import preview
from relabel.corpus.readers import open_input
from relabel.stages.job import Job
from relabel.stages.project import Project
from relabel.store.manifest import MANIFEST, Manifest, read_manifest

FETCHED = {"coco": "coco-captions", "flickr30k": "flickr30k"}
"""Dataset to the files that are fetched for it if no path is given."""


def ingest(project: Project) -> Job:
    """Prepare to build the corpus."""
    from relabel.corpus.ingest import ingest

    params = project.captions()
    recipe, command = ingest(params, project.runtime), project.command("ingest", path=params.path)
    return Job(project, project.folder("corpus"), recipe, command, project.ingest_values(params))


def read_captions(project: Project) -> Corpus:
    """Return the corpus or, where it was not ingested, its captions; nothing is written."""
    if (project.folder("corpus") / MANIFEST).exists():
        return project.corpus
    return Corpus.from_captions(open_input(project.captions(), project.runtime).read())


def check_captions(project: Project) -> None:
    """Raise if the captions or parameters of the corpus have changed since it was ingested."""
    try:
        job = ingest(project)
    except MissingError as error:
        project.note_once(f"the corpus of {project.config.ingest.dataset} is taken as it is: {error}")
        return
    job.open()


def preview_captions(project: Project) -> tuple[str, int | None]:
    """Return what `preview` does; nothing is known of captions that have to be fetched first."""
    if project.config.ingest.url is not None or (params := _known_captions(project)).path is None:
        return "", None
    return preview(params, project.runtime)


def row_ids(project: Project, corpus: Corpus) -> list[RowIds]:
    """Return the ids of the captions in each row of the table that was ingested."""
    from relabel.corpus import ingest as corpus_ingest

    job = ingest(project)
    if job.open().metadata["digest"] != corpus.digest:
        raise CheckError(
            "other captions have replaced those that were opened", where=str(job.out), todo="Open them again."
        )
    return corpus_ingest.row_ids(project.captions(), project.runtime, corpus)


def corpus_warnings(project: Project) -> list[str]:
    """Return the warnings of a corpus, and what was left out of captions that nobody has published."""
    manifest = read_manifest(project.folder("corpus"), "corpus")
    found = [] if project.namespace in PUBLISHED_FORMATS else losses(manifest.metadata["report"])
    return [*manifest.warnings, *(f"{title}: {text}" for title, text in found)]


def fetch_and_ingest(project: Project, mirror: Path | None = None) -> Manifest:
    """Fetch the captions, unless they have a path, which the parameters need not repeat; ingest them."""
    from relabel.datasets import fetch

    params = _known_captions(project)
    if params.path is None:
        fetch(FETCHED[params.dataset], project.runtime.data, mirror, project.runtime.progress)
    return ingest(project).run()[0]


def _known_captions(project: Project) -> IngestParams:
    """Return the parameters of the captions, which have a path or can be fetched."""
    params = project.captions()
    if params.path is None and params.dataset not in FETCHED:
        todo = f"Give ingest.path, or use {', '.join(FETCHED)}."
        raise UsageError(f"no captions are known for dataset {params.dataset}", todo=todo)
    return params
