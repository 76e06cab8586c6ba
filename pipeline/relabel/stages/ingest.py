"""fetch and ingest: the captions of a dataset, downloaded and verified, as one table."""

from __future__ import annotations

import os
from pathlib import Path

from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.corpus import Corpus
from relabel.corpus.build import RowIds
from relabel.corpus.ingest import ingest, losses
from relabel.corpus.ingest import row_ids as read_row_ids
from relabel.corpus.params import PUBLISHED_FORMATS, IngestParams
from relabel.corpus.preview import preview
from relabel.stages.job import Job, Values
from relabel.stages.session import Session
from relabel.store.artefact import PARAMETERS
from relabel.store.manifest import MANIFEST, Manifest, read_manifest

FETCHED = {"coco": "coco-captions", "flickr30k": "flickr30k"}
"""Dataset to the files that are fetched for it if no path is given."""


def caption_params(session: Session) -> IngestParams:
    """Return the parameters of the captions.

    A path is given once, to `ingest`; later commands name the dataset only. So if the parameters name no captions, they
    are those of the existing corpus, with what is given now.
    """
    params = session.config.ingest
    if params.url is not None:
        if params.path is not None:
            raise UsageError("path and url exclude each other", where="ingest")
        from relabel.corpus.readers.remote import fetch_captions

        copied = fetch_captions(params, session.runtime.data, session.runtime.progress)
        return params.model_copy(update={"path": copied, "url": None})
    if (folder := _reused_corpus(session)) is None:
        return params
    recorded = read_manifest(folder, "corpus").provenance[PARAMETERS]
    before = {name.partition(".")[2]: value for name, value in recorded.items()}
    place = before["path"] and Path(os.path.relpath(folder / before["path"]))
    given = params.model_dump(include=params.model_fields_set)
    return IngestParams.model_validate(before | given | {"dataset": params.dataset, "path": place})


def namespace(session: Session) -> str:
    """Return the prefix of the ids, also before the captions are ingested."""
    params = session.config.ingest
    return (params if params.url else caption_params(session)).prefix


def reads_again(session: Session, location: str) -> bool:
    """Return whether a corpus was ingested from this location, and the session has its parameters."""
    path = caption_params(session).path if _reused_corpus(session) else None
    return path is not None and path.resolve() == Path(location).resolve()


def _reused_corpus(session: Session) -> Path | None:
    """Return the folder of the corpus with the parameters that these do not repeat, if any.

    It is that of the dataset, otherwise of the complete dataset whose first images are read.
    """
    params = session.config.ingest
    folders = [session.labels / name / "corpus" for name in (params.dataset, params.complete)]
    folder = next((folder for folder in folders if (folder / MANIFEST).exists()), None)
    if params.has_location or folder is None:
        return None
    recorded = read_manifest(folder, "corpus").provenance[PARAMETERS]
    return folder if recorded["ingest.path"] or recorded.get("ingest.limit") else None


def ingestion(session: Session) -> Job:
    """Prepare to build the corpus."""
    params, folder = caption_params(session), session.folder("corpus")
    values = params.model_dump(mode="json", exclude={"dataset", "url"})
    if params.path is not None:
        # Relative to the corpus, so that both can be moved. Links stay: the captions are what they lead to when the
        # path is read again.
        values["path"] = os.path.relpath(params.path, folder)
    parameters: Values = {f"ingest.{name}": value for name, value in values.items()}
    command = session.command("ingest", path=params.path)
    return Job(session, folder, ingest(params, session.runtime), command, parameters)


def check_captions(session: Session) -> None:
    """Raise if the captions or parameters of the corpus have changed since it was ingested."""
    try:
        job = ingestion(session)
    except MissingError as error:
        session.note_once(f"the corpus of {session.config.ingest.dataset} is taken as it is: {error}")
        return
    job.open()


def preview_captions(session: Session) -> tuple[str, int | None]:
    """Return what `preview` does; nothing is known of captions that have to be fetched first."""
    if session.config.ingest.url is not None or (params := _known_captions(session)).path is None:
        return "", None
    layout, rows = preview(params, session.runtime)
    return layout, rows if params.limit is None else None


def row_ids(session: Session, corpus: Corpus) -> list[RowIds]:
    """Return the ids of the captions in each row of the table that was ingested."""
    job = ingestion(session)
    if job.open().metadata["digest"] != corpus.digest:
        raise CheckError(
            "other captions have replaced those that were opened", where=str(job.out), todo="Open them again."
        )
    return read_row_ids(caption_params(session), session.runtime, corpus)


def corpus_warnings(session: Session) -> list[str]:
    """Return the warnings of a corpus, and what was left out of captions that nobody has published."""
    manifest = read_manifest(session.folder("corpus"), "corpus")
    found = [] if manifest.config["namespace"] in PUBLISHED_FORMATS else losses(manifest.metadata["report"])
    return [*manifest.warnings, *(f"{title}: {text}" for title, text in found)]


def fetch_and_ingest(session: Session, mirror: Path | None = None) -> Manifest:
    """Fetch the captions, unless they have a path, which the parameters need not repeat; ingest them."""
    from relabel.datasets import fetch

    params = _known_captions(session)
    if params.path is None:
        fetch(FETCHED[params.complete], session.runtime.data, mirror, session.runtime.progress)
    return ingestion(session).run()[0]


def _known_captions(session: Session) -> IngestParams:
    """Return the parameters of the captions, which have a path or can be fetched."""
    params = caption_params(session)
    if params.path is None and params.complete not in FETCHED:
        todo = f"Give ingest.path, or use {', '.join(FETCHED)}."
        raise UsageError(f"no captions are known for dataset {params.complete}", todo=todo)
    return params
