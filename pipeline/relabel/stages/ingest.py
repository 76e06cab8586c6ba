"""fetch and ingest: download and verify the captions of a dataset, and convert them to one table."""

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
"""Files that are fetched for each dataset if there is no path."""


def caption_params(session: Session) -> IngestParams:
    """Return the parameters of the captions.

    Users pass a path once, to `ingest`, and later only name the dataset. So if the parameters have no path or URL, they
    are completed with those of the existing corpus.
    """
    params = session.config.ingest
    if params.url is not None:
        if params.path is not None:
            raise UsageError("path and url are mutually exclusive", where="ingest")
        from relabel.corpus.readers.remote import fetch_captions

        copied = fetch_captions(params, session.runtime.data, session.runtime.progress)
        return params.model_copy(update={"path": copied, "url": None})
    if (folder := _reused_corpus(session)) is None:
        return params
    recorded = read_manifest(folder, "corpus").provenance[PARAMETERS]
    before = {name.partition(".")[2]: value for name, value in recorded.items()}
    place = before["path"] and Path(os.path.relpath(folder / before["path"]))
    explicit = params.model_dump(include=params.model_fields_set)
    return IngestParams.model_validate(before | explicit | {"dataset": params.dataset, "path": place})


def namespace(session: Session) -> str:
    """Return the prefix of the ids. The captions need not be ingested yet."""
    params = session.config.ingest
    return (params if params.url else caption_params(session)).prefix


def reads_again(session: Session, location: str) -> bool:
    """Return True if a corpus was ingested from this location, and the session has its parameters."""
    path = caption_params(session).path if _reused_corpus(session) else None
    return path is not None and path.resolve() == Path(location).resolve()


def _reused_corpus(session: Session) -> Path | None:
    """Return the folder of the corpus from which missing parameters are taken, or None.

    It is the corpus of the dataset or, if the dataset is limited to first images, of the complete one.
    """
    params = session.config.ingest
    folders = [session.labels / name / "corpus" for name in (params.dataset, params.complete)]
    folder = next((folder for folder in folders if (folder / MANIFEST).exists()), None)
    if params.has_location or folder is None:
        return None
    recorded = read_manifest(folder, "corpus").provenance[PARAMETERS]
    return folder if recorded["ingest.path"] or recorded.get("ingest.limit") else None


def ingestion(session: Session) -> Job:
    """Prepare to ingest the captions as a corpus."""
    params, folder = caption_params(session), session.folder("corpus")
    values = params.model_dump(mode="json", exclude={"dataset", "url"})
    if params.path is not None:
        # A relative path remains valid if captions and corpus are moved together. Links are not resolved.
        values["path"] = os.path.relpath(params.path, folder)
    parameters: Values = {f"ingest.{name}": value for name, value in values.items()}
    command = session.command("ingest", path=params.path)
    return Job(session, folder, ingest(params, session.runtime), command, parameters)


def check_captions(session: Session) -> None:
    """Raise CheckError if the captions or parameters of the corpus have changed since it was ingested."""
    try:
        job = ingestion(session)
    except MissingError as error:
        corpus = f"the corpus of {session.config.ingest.dataset}"
        session.note_once(f"cannot check {corpus} ({error}); using the files on disk")
        return
    job.open()


def preview_captions(session: Session) -> tuple[str, int | None]:
    """Return the result of `preview`, or ("", None) for captions that must be fetched first."""
    if session.config.ingest.url is not None or (params := _known_captions(session)).path is None:
        return "", None
    layout, rows = preview(params, session.runtime)
    return layout, rows if params.limit is None else None


def row_ids(session: Session, corpus: Corpus) -> list[RowIds]:
    """Return the caption ids of each row of the ingested table."""
    job = ingestion(session)
    if job.open().metadata["digest"] != corpus.digest:
        raise CheckError(
            "the captions were replaced after they were opened", where=str(job.out), hint="Open them again."
        )
    return read_row_ids(caption_params(session), session.runtime, corpus)


def corpus_warnings(session: Session) -> list[str]:
    """Return the warnings of a corpus. For unpublished captions, they include the captions that were left out."""
    manifest = read_manifest(session.folder("corpus"), "corpus")
    lost = [] if manifest.config["namespace"] in PUBLISHED_FORMATS else losses(manifest.metadata["report"])
    return [*manifest.warnings, *(f"{title}: {text}" for title, text in lost)]


def fetch_and_ingest(session: Session, mirror: Path | None = None) -> Manifest:
    """Fetch the captions unless they have a path, in the parameters or in the existing corpus, and ingest them."""
    from relabel.datasets import fetch

    params = _known_captions(session)
    if params.path is None:
        fetch(FETCHED[params.complete], session.runtime.data, mirror, session.runtime.progress)
    return ingestion(session).run()[0]


def _known_captions(session: Session) -> IngestParams:
    """Return the parameters of the captions. Raises UsageError if they have no location and cannot be fetched."""
    params = caption_params(session)
    if params.path is None and params.complete not in FETCHED:
        hint = f"Set ingest.path, or use {', '.join(FETCHED)}."
        raise UsageError(f"no captions for dataset {params.complete}", hint=hint)
    return params
