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
from relabel.stages.session import Session
from relabel.store.manifest import MANIFEST, Manifest, read_manifest

FETCHED = {"coco": "coco-captions", "flickr30k": "flickr30k"}
"""Dataset to the files that are fetched for it if no path is given."""


def ingest(session: Session) -> Job:
    """Prepare to build the corpus."""
    from relabel.corpus.ingest import ingest

    params = session.captions()
    recipe, command = ingest(params, session.runtime), session.command("ingest", path=params.path)
    return Job(session, session.folder("corpus"), recipe, command, session.ingest_values(params))


def read_captions(session: Session) -> Corpus:
    """Return the corpus or, where it was not ingested, its captions; nothing is written."""
    if (session.folder("corpus") / MANIFEST).exists():
        return session.corpus
    return Corpus.from_captions(open_input(session.captions(), session.runtime).read())


def check_captions(session: Session) -> None:
    """Raise if the captions or parameters of the corpus have changed since it was ingested."""
    try:
        job = ingest(session)
    except MissingError as error:
        session.note_once(f"the corpus of {session.config.ingest.dataset} is taken as it is: {error}")
        return
    job.open()


def preview_captions(session: Session) -> tuple[str, int | None]:
    """Return what `preview` does; nothing is known of captions that have to be fetched first."""
    if session.config.ingest.url is not None or (params := _known_captions(session)).path is None:
        return "", None
    return preview(params, session.runtime)


def row_ids(session: Session, corpus: Corpus) -> list[RowIds]:
    """Return the ids of the captions in each row of the table that was ingested."""
    from relabel.corpus import ingest as corpus_ingest

    job = ingest(session)
    if job.open().metadata["digest"] != corpus.digest:
        raise CheckError(
            "other captions have replaced those that were opened", where=str(job.out), todo="Open them again."
        )
    return corpus_ingest.row_ids(session.captions(), session.runtime, corpus)


def corpus_warnings(session: Session) -> list[str]:
    """Return the warnings of a corpus, and what was left out of captions that nobody has published."""
    manifest = read_manifest(session.folder("corpus"), "corpus")
    found = [] if session.namespace in PUBLISHED_FORMATS else losses(manifest.metadata["report"])
    return [*manifest.warnings, *(f"{title}: {text}" for title, text in found)]


def fetch_and_ingest(session: Session, mirror: Path | None = None) -> Manifest:
    """Fetch the captions, unless they have a path, which the parameters need not repeat; ingest them."""
    from relabel.datasets import fetch

    params = _known_captions(session)
    if params.path is None:
        fetch(FETCHED[params.dataset], session.runtime.data, mirror, session.runtime.progress)
    return ingest(session).run()[0]


def _known_captions(session: Session) -> IngestParams:
    """Return the parameters of the captions, which have a path or can be fetched."""
    params = session.captions()
    if params.path is None and params.dataset not in FETCHED:
        todo = f"Give ingest.path, or use {', '.join(FETCHED)}."
        raise UsageError(f"no captions are known for dataset {params.dataset}", todo=todo)
    return params
