"""encode: what a source computes once a caption; and encodings opened for answers."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from relabel.errors import CheckError, FailedRowsError, MissingError
from relabel.sources.base import Relevance
from relabel.sources.reuse import reusing
from relabel.stages.job import Job, make_units
from relabel.stages.parts import refuse_cycle
from relabel.stages.project import Project
from relabel.store.manifest import Draft, Manifest, open_artefact, read_manifest
from relabel.store.work import Work


def encode(project: Project, label: str, split: str) -> Job:
    """Prepare to encode the captions of a split with the source of a label.

    Raises
    ------
    UsageError
        If there is no such label or split, or the label is made of itself.
    MissingError
        If the corpus, an asset of the source or the encoding of a label that it is made of is not there.
    """
    refuse_cycle(project.config, label)
    source, corpus, runtime = project.config.source(label), project.corpus, project.runtime
    rows = corpus.rows(project.splits(split))
    size = project.config.encode.rows_per_shard
    semantic = source.semantic(corpus, rows, runtime) | {"rows": [rows.start, rows.stop], "rows_per_shard": size}
    semantic["version"] = source.version

    def fill(work: Work) -> None:
        work.facts |= {
            "label": label,
            "kind": source.kind,
            "rows": [rows.start, rows.stop],
            "split": split,
            "bounds": list(source.bounds),
            "symmetric": source.symmetric,
            "orientation": "rows are images (reference sets), columns are captions",
        }
        make_units(project, units(), draft, work, encode, label, split)

    parts = {part: encoded(project, part, split) for part in source.parts()}
    source.check_parts(parts)
    identities = {f"encoding {part}": manifest.identity for part, manifest in parts.items()}
    draft = Draft("encoding", label, semantic, {"corpus": corpus.digest} | identities)
    out = project.layout.encoding(split, label)
    units = partial(reusing, partial(source.units, corpus, rows, size, runtime), out, semantic)
    return Job(out, draft, fill, runtime.progress, units)


def encoded(project: Project, label: str, split: str) -> Manifest:
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
    if manifest.fingerprint != job.draft.fingerprint:
        raise CheckError("encoded from another corpus or under other parameters", where=str(job.out), todo=todo)
    return manifest


def failed_rows(project: Project, labels: Iterable[str], split: str) -> list[tuple[str, FailedRowsError]]:
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


def open_label(project: Project, label: str, split: str) -> Relevance:
    """Open an encoding for answers.

    Raises
    ------
    MissingError, CheckError
        As `encoded`; and CheckError if a file is not what the manifest says.
    """
    manifest = encoded(project, label, split)
    folder = project.layout.encoding(split, label)
    open_artefact(folder, "encoding")
    source = project.config.source(label)
    parts = {part: open_label(project, part, split) for part in source.parts()}
    return source.open(project.corpus, folder, manifest, project.runtime, parts)
