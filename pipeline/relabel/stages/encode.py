"""encode: the part of a source's work that is done once per caption; and encodings opened for scoring."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from relabel.core.errors import CheckError, MissingError, PartialError, UsageError
from relabel.core.tables import plural
from relabel.sources.base import GATE, INT8, Encoding
from relabel.sources.relevance import Relevance
from relabel.stages.ingest import corpus_warnings
from relabel.stages.job import Job, Step, Values, label_values, make_steps
from relabel.stages.session import Session
from relabel.stages.tune import check_model, model_folder, tuned_model
from relabel.store.artefact import Inputs, Recipe
from relabel.store.manifest import MANIFEST, Manifest, read_manifest, version_of
from relabel.store.workdir import Work


def encode(session: Session, label: str, split: str) -> Job:
    """Prepare to encode the captions of a split with the source of a label."""
    session.config.parts(label)  # raises if the label is made of itself
    source, corpus, runtime = session.config.source(label), session.corpus, session.runtime
    rows = corpus.rows(session.splits(split))
    size = runtime.rows_per_shard
    shape = {"rows": [rows.start, rows.stop], "rows_per_shard": size}
    parts = {part: encode(session, part, split) for part in source.input_labels()}

    def config() -> Values:
        for model in session.config.params(label).tuned_models():
            check_model(session, model, label)
        return source.fingerprint_params(corpus, rows, runtime) | shape

    def fill(work: Work) -> None:
        source.check_inputs({part: job.open() for part, job in parts.items()})
        work.metadata |= shape | {"label": label, "kind": source.spec.kind, "split": split}
        make_steps(job, work, encode, label, split)

    # The parts' identities are inputs, so that a rebuilt part makes this encoding stale.
    inputs: Inputs = {"corpus": corpus.digest} | {f"encoding {part}": one for part, one in parts.items()}
    if (tokenizer := source.tokenizer()) is not None:
        inputs["tokens"] = f"{tokenizer} {version_of('tokens')}"
    job = Job(
        session,
        session.folder("encodings", split, label),
        Recipe("encoding", label, config, inputs, fill),
        session.command("encode", label=label, split=split),
        label_values(session.config, label),
        lambda work: source.steps(corpus, rows, size, work, runtime),
    )
    return job


def encoding_steps(session: Session, label: str, split: str) -> Iterator[Step]:
    """Yield the models and encodings that a label is made of or gated by, and its own encoding."""
    session.config.parts(label)  # raises if the label is made of itself
    # The threshold of a gate needs the model of the gate.
    for part in session.config.source(label).input_labels():
        for step in encoding_steps(session, part, split):
            yield replace(step, label=label)
    yield from model_steps(session, label, label)
    yield Step(
        label, "encode", label, session.folder("encodings", split, label), partial(encode, session, label, split)
    )


def model_steps(session: Session, label: str, part: str) -> Iterator[Step]:
    """Yield the models of `part`, which `label` needs."""
    for model in session.config.params(part).tuned_models():
        yield Step(label, "tune", model, model_folder(session, model, part), partial(tuned_model, session, model, part))


def build_encoding(session: Session, label: str, split: str) -> Manifest:
    """Build a label's model, the encodings of its parts and its own encoding; return the manifest of the last one."""
    return [step.prepare().run()[0] for step in encoding_steps(session, label, split)][-1]


def build_inputs(session: Session, label: str, split: str) -> None:
    """Build the int8 model of a label, and the encodings that it is made of or gated by, with their models."""
    source, models = session.config.source(label), session.config.params(label).tuned_models()
    if INT8 in models:
        tuned_model(session, INT8, label).run()
    if (parts := source.input_labels()) and GATE not in models:
        # Whatever the label itself lacks is reported before minutes of work on its parts.
        source.fingerprint_params(session.corpus, session.corpus.rows(session.splits(split)), session.runtime)
    for part in parts:
        build_encoding(session, part, split)
    if GATE in models:
        tuned_model(session, GATE, label).run()


def encoded_split(session: Session, label: str) -> str:
    """Return the split that a label is encoded for: the only one, or `all` if it is among several."""
    session.config.params(label)  # an unknown label is a better message than a missing encoding
    encoded = [s for s in (*session.corpus.splits, "all") if session.folder("encodings", s, label, MANIFEST).exists()]
    if not encoded:
        todo = f"Run {session.command('encode', label=label)}."
        raise MissingError(f"{label} is not encoded", where=str(session.folder("encodings", "SPLIT", label)), todo=todo)
    if len(encoded) > 1 and "all" not in encoded:
        raise UsageError(f"{label} is encoded for the splits {', '.join(encoded)}", todo="Name one of them.")
    return encoded[-1]


def serving_split(session: Session, folder: Callable[[str], Path], split: str) -> str:
    """Return the split whose artefact serves a split: the split itself, else `all` if it has one, which is logged."""
    if (folder(split) / MANIFEST).exists() or not (folder("all") / MANIFEST).exists():
        return split
    session.runtime.progress.note(f"{folder(split)} does not exist: {folder('all')} serves split {split}")
    return "all"


def find_failed_rows(session: Session, labels: Iterable[str], split: str) -> list[tuple[str, PartialError]]:
    """Return the labels whose encodings have failed rows, each with an error that names the first row.

    Corpus and parameters of the encodings are not checked.
    """
    errors = []
    for label in labels:
        folder = session.folder("encodings", split, label)
        # A missing or damaged encoding is reported by the command that needs it.
        with suppress(MissingError, CheckError):
            manifest = read_manifest(folder, "encoding")
            if manifest.failed:
                row, reason = manifest.metadata["failed"]["first"][0]
                captions = plural(manifest.failed, "caption", "captions")
                message = f"{captions} could not be encoded; first {row}: {reason}"
                command = session.command("encode", label=label, split=split)
                todo = f"Their labels are NaN. Run {command} with --retry-failed if the reason is gone."
                errors.append((label, PartialError(message, where=str(folder), todo=todo)))
    return errors


def named_warnings(session: Session, labels: Iterable[str], split: str) -> list[tuple[str, str]]:
    """Return the warnings of the captions, and of the encodings of labels and of the labels in them, each once.

    Returns list of (str, str): the dataset or label, and its warning.
    """
    named = [(session.config.ingest.dataset, text) for text in corpus_warnings(session)]
    for name in dict.fromkeys(part for label in labels for part in session.config.with_parts(label)):
        folder = session.folder("encodings", split, name)
        named += [(name, text) for text in read_manifest(folder, "encoding").warnings]
    return list(dict.fromkeys(named))


def open_label(session: Session, label: str, split: str, opened: dict[str, Relevance] | None = None) -> Relevance:
    """Open an encoding for scoring.

    `opened`: labels of the split that are open already. The label and those it is made of are added.
    """
    opened = {} if opened is None else opened
    # A label may be part of several others.
    if label not in opened:
        job, source = encode(session, label, split), session.config.source(label)
        manifest = job.open()
        parts = {part: open_label(session, part, split, opened) for part in source.input_labels()}
        bounds = {part: session.config.source(part).spec.bounds for part in parts}
        opened[label] = source.open(Encoding(session.corpus, job.out, manifest, session.runtime, parts, bounds))
    return opened[label]
