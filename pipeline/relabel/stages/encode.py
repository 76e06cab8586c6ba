"""encode: what a source computes once a caption; and encodings opened for answers."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from relabel.config import Config
from relabel.core.errors import CheckError, FailedRowsError, MissingError, UsageError
from relabel.sources.base import OpenEncoding
from relabel.sources.relevance import Relevance
from relabel.sources.text_reuse import with_text_reuse
from relabel.stages.job import Job, run_tasks
from relabel.stages.project import Project
from relabel.stages.tune import check_word2vec
from relabel.stages.variants import encoding_variant
from relabel.store.manifest import ArtefactSpec, Manifest, read_manifest
from relabel.store.reading import read_artefact
from relabel.store.workdir import Work


def encode(project: Project, label: str, split: str) -> Job:
    """Prepare to encode the captions of a split with the source of a label.

    Raises
    ------
    UsageError
        If there is no such label or split, or the label is made of itself.
    MissingError
        If the corpus, an asset of the source or the encoding of a label that it is made of is not there.
    """
    check_acyclic(project.config, label)
    check_word2vec(project, label)
    source, corpus, runtime = project.config.source(label), project.corpus, project.runtime
    rows = corpus.rows(project.splits(split))
    size = project.config.encode.rows_per_shard
    semantic = source.fingerprint_params(corpus, rows, runtime) | {
        "rows": [rows.start, rows.stop],
        "rows_per_shard": size,
    }
    semantic["version"] = source.spec.version

    def fill(work: Work) -> None:
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

    parts = {part: read_encoding(project, part, split) for part in source.input_labels()}
    source.check_inputs(parts)
    identities = {f"encoding {part}": manifest.identity for part, manifest in parts.items()}
    artefact = ArtefactSpec("encoding", label, semantic, {"corpus": corpus.digest} | identities)
    out = project.layout.encoding(split, label)
    tasks = partial(with_text_reuse, partial(source.tasks, corpus, rows, size, runtime), out, semantic)
    return Job(out, artefact, fill, runtime.progress, tasks, encoding_variant(project, label))


def check_acyclic(config: Config, label: str, above: tuple[str, ...] = ()) -> None:
    """Refuse a label that is made of itself.

    Raises
    ------
    UsageError
        With the way from the label back to it; or if it, or a part, is no label.
    """
    if label in above:
        way = " -> ".join((*above[above.index(label) :], label))
        raise UsageError(f"label {label} is made of itself: {way}", todo="Take it out of the parts of one of these.")
    for part in config.source(label).input_labels():
        check_acyclic(config, part, (*above, label))


def read_encoding(project: Project, label: str, split: str) -> Manifest:
    """Read the manifest of an encoding, made of this corpus under these parameters.

    Raises
    ------
    MissingError
        If it is not there.
    CheckError
        If it was made of another corpus or under other parameters.
    """
    job, todo = encode(project, label, split), f"Run `relabel encode --label {label} --split {split}`."
    try:
        manifest = read_manifest(job.out, "encoding")
    except MissingError as error:
        raise MissingError(error.what, where=error.where, todo=todo) from error
    if manifest.fingerprint != job.artefact.fingerprint:
        raise CheckError("encoded from another corpus or under other parameters", where=str(job.out), todo=todo)
    return manifest


def find_failed_rows(project: Project, labels: Iterable[str], split: str) -> list[tuple[str, FailedRowsError]]:
    """Tell which labels' encodings have failed rows, whatever captions and parameters they were made with."""
    found = []
    for label in labels:
        folder = project.layout.encoding(split, label)
        with suppress(MissingError, CheckError):
            manifest = read_manifest(folder, "encoding")
            if manifest.failed:
                row, reason = manifest.facts["failed"]["first"][0]
                what = f"{manifest.failed:,} captions could not be encoded; first {row}: {reason}"
                todo = f"Run `relabel encode --label {label} --split {split}` again: it makes their shards anew."
                found.append((label, FailedRowsError(what, where=str(folder), todo=todo)))
    return found


def open_label(project: Project, label: str, split: str, encoding: Manifest | None = None) -> Relevance:
    """Open an encoding for answers.

    Parameters
    ----------
    project : Project
    label, split : str
    encoding : Manifest, optional
        What `read_encoding` returned, if it was called before.

    Raises
    ------
    MissingError, CheckError
        As `read_encoding`; CheckError if a file differs from the manifest or another run rebuilds the encoding.
    """
    wanted = (encoding or read_encoding(project, label, split)).fingerprint
    folder = project.layout.encoding(split, label)
    source = project.config.source(label)
    parts = {part: open_label(project, part, split) for part in source.input_labels()}

    def read(manifest: Manifest) -> Relevance:
        if manifest.fingerprint != wanted:
            what = "encoded under other parameters while it was opened"
            raise CheckError(what, where=str(folder), todo="Run it again.")
        return source.open(OpenEncoding(project.corpus, folder, manifest, project.runtime, parts))

    return read_artefact(folder, "encoding", read)
