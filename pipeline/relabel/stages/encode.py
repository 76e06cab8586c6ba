"""encode: does the work of a source that is needed once per caption. Also opens encodings for scoring."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from relabel.config import Config
from relabel.core.errors import CheckError, MissingError, PartialError, UsageError
from relabel.core.tables import plural
from relabel.datasets import locate
from relabel.sources.encoding import encoding_recipe, open_encoding
from relabel.sources.relevance import Relevance
from relabel.stages.corpus import open_corpus
from relabel.stages.ingest import corpus_warnings
from relabel.stages.job import Job, PendingJob, Values, label_values, make_steps
from relabel.stages.session import Session
from relabel.stages.tune import cross_encoder, derived_model, model_folder, tuned_model
from relabel.store.manifest import MANIFEST, Manifest, read_manifest
from relabel.store.workdir import Work


def check_label_names(config: Config, labels: Iterable[str]) -> None:
    """Raise UsageError for an unknown label, before less helpful errors can occur."""
    for label in labels:
        config.params(label)


def available_labels(session: Session, labels: Collection[str]) -> list[str]:
    """Return the labels with all files that `relabel fetch` downloads for them; note the others.

    Raises MissingError if all of them lack files.
    """
    missing = {label: error for label in labels if (error := missing_files(session, label))}
    for label, error in missing.items():
        session.note_once(f"{label} is left out: {error}")
    available = [label for label in labels if label not in missing]
    if missing and not available:
        raise next(iter(missing.values()))
    return available


def missing_files(session: Session, label: str) -> MissingError | None:
    """Return the error of a label without a file that `relabel fetch` downloads for it."""
    try:
        for name in _fetched(session.config, label):
            locate(name, None, session.runtime.data)
    except MissingError as error:
        return error
    return None


def _fetched(config: Config, label: str) -> list[str]:
    """Return the names of the files that `relabel fetch` downloads for a label and its parts."""
    # A fuse without its model is reported when it is used.
    with suppress(MissingError):
        return [name for source in config.with_parts(label).values() for name in source.params.fetched()]
    return []


def encoding(session: Session, label: str, split: str) -> Job:
    """Prepare to encode the captions of a split with the source of a label."""
    session.config.parts(label)  # raises if the label is part of itself
    source, corpus, runtime = session.config.source(label), open_corpus(session), session.runtime
    rows = corpus.split_rows(split)
    size = runtime.rows_per_shard
    shape = {"rows": [rows.start, rows.stop], "rows_per_shard": size}
    parts = {part: encoding(session, part, split) for part in source.input_labels()}

    def config() -> Values:
        check_models(session, label)
        return source.fingerprint_params(corpus, rows, runtime) | shape

    def fill(work: Work) -> None:
        source.check_inputs({part: job.open() for part, job in parts.items()})
        work.metadata |= shape | {"label": label, "kind": source.spec.kind, "split": split}
        make_steps(job, work, encoding, label, split)

    job = Job(
        session,
        session.folder("encodings", split, label),
        encoding_recipe(label, source, corpus, parts, config, fill),
        session.command("encode", label=label, split=split),
        label_values(session.config, label),
        lambda work: source.steps(corpus, rows, size, work, runtime),
    )
    return job


def check_models(session: Session, label: str) -> None:
    """Raise unless the models of a label match the current captions and parameters."""
    session = session.parent or session
    for name in session.config.params(label).tuned_models():
        # Sources raise for a missing model themselves, except for word vectors: sources do not know the dataset.
        if name == "word2vec" or (model_folder(session, name) / MANIFEST).exists():
            (cross_encoder(session) if name == "bert_sts" else tuned_model(session, name)).open()
    derived = session.config.source(label).derived_model(session.runtime.data)
    if derived is not None and (derived.folder / MANIFEST).exists():
        derived_model(session, label).open()


def encoding_jobs(session: Session, label: str, split: str) -> Iterator[PendingJob]:
    """Yield the models and encodings of the parts and gates of a label, and then those of the label."""
    session.config.parts(label)  # raises if the label is part of itself
    # The threshold of a gate needs the model of the gate.
    for part in session.config.source(label).input_labels():
        for job in encoding_jobs(session, part, split):
            yield replace(job, label=label)
    yield from model_jobs(session, label, label)
    prepare = partial(encoding, session, label, split)
    yield PendingJob(label, "encode", label, session.folder("encodings", split, label), prepare)


def model_jobs(session: Session, label: str, part: str) -> Iterator[PendingJob]:
    """Yield the models of `part`, a part or gate of `label`."""
    for name in session.config.params(part).tuned_models():
        yield PendingJob(label, "tune", name, model_folder(session, name), partial(tuned_model, session, name))
    if (derived := session.config.source(part).derived_model(session.runtime.data)) is not None:
        yield PendingJob(label, "tune", derived.name, derived.folder, partial(derived_model, session, part))


def build_encoding(session: Session, label: str, split: str) -> Manifest:
    """Build the encodings of a label's parts, its model and its encoding; return the manifest of the encoding."""
    return [job.prepare().run()[0] for job in encoding_jobs(session, label, split)][-1]


def build_inputs(session: Session, label: str, split: str) -> None:
    """Build the encodings of the parts and gates of a label, with their models, and then its derived model."""
    source, corpus = session.config.source(label), open_corpus(session)
    derived, parts = source.derived_model(session.runtime.data), source.input_labels()
    if parts and derived is None:
        # Report missing requirements of the label before working on its parts for minutes.
        source.fingerprint_params(corpus, corpus.split_rows(split), session.runtime)
    for part in parts:
        build_encoding(session, part, split)
    if derived is not None:
        derived_model(session, label).run()


def encoded_split(session: Session, label: str) -> str:
    """Return the only split for which a label is encoded, or `all` if there are several and `all` is among them."""
    session.config.params(label)  # raises for an unknown label
    encoded = [
        s for s in (*open_corpus(session).splits, "all") if session.folder("encodings", s, label, MANIFEST).exists()
    ]
    if not encoded:
        hint = f"Run {session.command('encode', label=label)}."
        raise MissingError(f"{label} is not encoded", where=str(session.folder("encodings", "SPLIT", label)), hint=hint)
    if len(encoded) > 1 and "all" not in encoded:
        raise UsageError(f"{label} is encoded for the splits {', '.join(encoded)}", hint="Select one of them.")
    return encoded[-1]


def serving_split(session: Session, folder: Callable[[str], Path], split: str) -> str:
    """Return the split with the artefact to use: the split itself, or `all` if only that exists, with a log message."""
    if (folder(split) / MANIFEST).exists() or not (folder("all") / MANIFEST).exists():
        return split
    session.runtime.progress.note(f"{folder(split)} does not exist: using {folder('all')} for split {split}")
    return "all"


def find_failed_rows(session: Session, labels: Iterable[str], split: str) -> list[tuple[str, PartialError]]:
    """Return the labels with failed rows in their encodings, each with an error about the first row.

    The corpus and parameters of the encodings are not checked.
    """
    errors = []
    for label in labels:
        folder = session.folder("encodings", split, label)
        # Missing and damaged encodings are reported by the commands that need them.
        with suppress(MissingError, CheckError):
            manifest = read_manifest(folder, "encoding")
            if manifest.failed:
                row, reason = manifest.metadata["failed"]["first"][0]
                captions = plural(manifest.failed, "caption", "captions")
                message = f"{captions} could not be encoded; first {row}: {reason}"
                command = session.command("encode", label=label, split=split)
                hint = f"Their labels are NaN. To try them again, run {command} with --retry-failed."
                errors.append((label, PartialError(message, where=str(folder), hint=hint)))
    return errors


def named_warnings(session: Session, labels: Iterable[str], split: str) -> list[tuple[str, str]]:
    """Return the warnings of the captions, and of the encodings of labels and their parts, without duplicates.

    Returns list of (str, str): the dataset or label, and its warning.
    """
    named = [(session.config.ingest.dataset, text) for text in corpus_warnings(session)]
    for name in dict.fromkeys(part for label in labels for part in session.config.with_parts(label)):
        folder = session.folder("encodings", split, name)
        named += [(name, text) for text in read_manifest(folder, "encoding").warnings]
    return list(dict.fromkeys(named))


def open_label(session: Session, label: str, split: str, opened: dict[str, Relevance] | None = None) -> Relevance:
    """Open an encoding for scoring.

    `opened`: labels of the split that are already open. The label and its parts are added to it.
    """

    def find(part: str) -> tuple[Path, Manifest]:
        job = encoding(session, part, split)
        return job.out, job.open()

    opened = {} if opened is None else opened
    return open_encoding(label, session.config.source, find, open_corpus(session), session.runtime, opened)
