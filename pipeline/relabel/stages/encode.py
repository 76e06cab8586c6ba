"""encode: the part of a source's work that is done once per caption; and encodings opened for scoring."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

from relabel.config import Config
from relabel.core.errors import CheckError, FailedRowsError, MissingError, UsageError
from relabel.sources.base import OpenEncoding
from relabel.sources.relevance import Relevance
from relabel.stages.job import Job, encoding_variant, refuse_stale, run_logged, run_tasks
from relabel.stages.project import Project
from relabel.stages.tune import check_model, ensure_model
from relabel.store.manifest import MANIFEST, ArtefactSpec, Manifest, read_artefact, read_manifest
from relabel.store.workdir import Work


def encode(project: Project, label: str, split: str) -> Job:
    """Prepare to encode the captions of a split with the source of a label."""
    check_acyclic(project.config, label)
    for model in project.config.params(label).tuned_models():
        check_model(project, model)
    source, corpus, runtime = project.config.source(label), project.corpus, project.runtime
    rows = corpus.rows(project.splits(split))
    size = project.config.encode.rows_per_shard
    shape = {"rows": [rows.start, rows.stop], "rows_per_shard": size, "version": source.spec.version}
    semantic = source.fingerprint_params(corpus, rows, runtime) | shape

    tasks = partial(source.tasks, corpus, rows, size, runtime)

    def fill(work: Work) -> None:
        project.note_single_captions(label)
        work.facts |= {
            "label": label,
            "kind": source.spec.kind,
            "rows": [rows.start, rows.stop],
            "split": split,
            "bounds": list(source.spec.bounds),
            "symmetric": source.spec.symmetric,
            "orientation": "rows are images (reference sets), columns are captions",
        }
        run_tasks(project, tasks(), artefact, work, encode, label, split)

    # The parts' identities are inputs, so that a rebuilt part makes this encoding stale.
    parts = {part: read_encoding(project, part, split) for part in source.input_labels()}
    source.check_inputs(parts)
    identities = {f"encoding {part}": manifest.identity for part, manifest in parts.items()}
    artefact = ArtefactSpec("encoding", label, semantic, {"corpus": corpus.digest} | identities)
    out = project.layout.encoding(split, label)
    return Job(out, artefact, fill, runtime.progress, tasks, encoding_variant(project, label))


def build_encoding(project: Project, label: str, split: str) -> Manifest:
    """Build a label's model, the encodings of its parts and its own encoding; return the manifest of the last one."""
    for model in project.config.params(label).tuned_models():
        ensure_model(project, model)
    build_inputs(project, label, split)
    return run_logged(project, encode(project, label, split))


def build_inputs(project: Project, label: str, split: str) -> None:
    """Build the encodings that a label is made of or gated by, with their models."""
    # Checked before the recursion, which would not end for a label that is part of itself.
    check_acyclic(project.config, label)
    source = project.config.source(label)
    if parts := source.input_labels():
        # Whatever the label itself lacks is reported before minutes of work on its parts.
        source.fingerprint_params(project.corpus, project.corpus.rows(project.splits(split)), project.runtime)
    for part in parts:
        build_encoding(project, part, split)


def check_acyclic(config: Config, label: str, above: tuple[str, ...] = ()) -> None:
    """Raise if a label is composed of itself.

    `above`: the labels that led to this one.
    """
    if label in above:
        chain = " -> ".join((*above[above.index(label) :], label))
        raise UsageError(f"label {label} is made of itself: {chain}", todo="Take it out of the parts of one of these.")
    for part in config.source(label).input_labels():
        check_acyclic(config, part, (*above, label))


def read_encoding(project: Project, label: str, split: str) -> Manifest:
    """Return the manifest of an encoding of this corpus under these parameters."""
    job, todo = encode(project, label, split), f"Run {project.command('encode', label=label, split=split)}."
    try:
        manifest = read_manifest(job.out, "encoding")
    except MissingError as error:
        raise MissingError(error.problem, where=error.where, todo=todo) from error
    refuse_stale(manifest, job.out, job.artefact, todo)
    return manifest


def encoded_split(project: Project, label: str) -> str:
    """Return the split that a label is encoded for: the only one, or `all` if it is among several."""
    project.config.params(label)  # an unknown label is a better message than a missing encoding
    encoded = [s for s in (*project.corpus.splits, "all") if (project.layout.encoding(s, label) / MANIFEST).exists()]
    if not encoded:
        todo = f"Run {project.command('encode', label=label)}."
        raise MissingError(f"{label} is not encoded", where=str(project.layout.encoding("SPLIT", label)), todo=todo)
    if len(encoded) > 1 and "all" not in encoded:
        raise UsageError(f"{label} is encoded for the splits {', '.join(encoded)}", todo="Name one of them.")
    return encoded[-1]


def serving_split(project: Project, folder: Callable[[str], Path], split: str) -> str:
    """Return the split whose artefact serves a split: the split itself, else `all` if it has one, which is logged."""
    if (folder(split) / MANIFEST).exists() or not (folder("all") / MANIFEST).exists():
        return split
    project.runtime.progress.note(f"{folder(split)} does not exist: {folder('all')} serves split {split}")
    return "all"


def find_failed_rows(project: Project, labels: Iterable[str], split: str) -> list[tuple[str, FailedRowsError]]:
    """Return the labels whose encodings have failed rows, each with an error that names the first row.

    Corpus and parameters of the encodings are not checked.
    """
    errors = []
    for label in labels:
        folder = project.layout.encoding(split, label)
        # A missing or damaged encoding is reported by the command that needs it.
        with suppress(MissingError, CheckError):
            manifest = read_manifest(folder, "encoding")
            if manifest.failed:
                row, reason = manifest.facts["failed"]["first"][0]
                message = f"{manifest.failed:,} captions could not be encoded; first {row}: {reason}"
                todo = f"Run {project.command('encode', label=label, split=split)} again to rebuild their shards."
                errors.append((label, FailedRowsError(message, where=str(folder), todo=todo)))
    return errors


def open_label(
    project: Project,
    label: str,
    split: str,
    encoding: Manifest | None = None,
    opened: dict[str, Relevance] | None = None,
) -> Relevance:
    """Open an encoding for scoring.

    `encoding`: the result of an earlier call of `read_encoding`. `opened`: labels of the split that are open already.
    The label and those it is made of are added.
    """
    opened = {} if opened is None else opened
    # A label may be part of several others.
    if label in opened:
        return opened[label]
    expected = (encoding or read_encoding(project, label, split)).fingerprint
    folder = project.layout.encoding(split, label)
    source = project.config.source(label)
    parts = {part: open_label(project, part, split, opened=opened) for part in source.input_labels()}

    def read(manifest: Manifest) -> Relevance:
        # Another process may have replaced the folder since its manifest was read.
        if manifest.fingerprint != expected:
            message = "encoded under other parameters while it was opened"
            raise CheckError(message, where=str(folder), todo="Run it again.")
        return source.open(OpenEncoding(project.corpus, folder, manifest, project.runtime, parts))

    opened[label] = read_artefact(folder, "encoding", read)
    return opened[label]
