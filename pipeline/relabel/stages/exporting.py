"""export: what training code reads."""

from __future__ import annotations

from relabel.errors import CheckError, MissingError
from relabel.stages.encoding import encoded
from relabel.stages.job import Job
from relabel.stages.project import Project
from relabel.store.manifest import Manifest, open_artefact, read_manifest
from relabel.store.work import Work


def export_lookup(project: Project, label: str, split: str) -> Job:
    """Prepare to write the lookup of a label over a split, with its neighbours if they were found before.

    Raises
    ------
    UsageError
        If there is no such label or split, or its source scores pair by pair.
    MissingError
        If the encoding is not there.
    CheckError
        If the encoding or the neighbours were made of other captions or under other parameters.
    """
    from relabel.export.lookup import Made, lookup_draft, refuse_pairs, write_lookup

    source, corpus, layout = project.config.source(label), project.corpus, project.layout
    refuse_pairs(source, label)
    encoding = encoded(project, label, split)
    neighbours = _neighbours(project, label, split, encoding)
    draft = lookup_draft(corpus, source, label, encoding, neighbours, project.config.export.lookup)

    def fill(work: Work) -> None:
        made = Made(layout.encoding(split, label), encoding)
        found = None if neighbours is None else Made(layout.neighbours(split, "captions", label), neighbours)
        for artefact in (made, found):
            if artefact is not None:
                open_artefact(artefact.folder, artefact.manifest.kind)
        write_lookup(corpus, source, draft, made, found, work)

    return Job(layout.lookup(split, label), draft, fill, project.runtime.progress)


def _neighbours(project: Project, label: str, split: str, encoding: Manifest) -> Manifest | None:
    """Read the manifest of neighbours of captions within the split, None if there are none."""
    folder = project.layout.neighbours(split, "captions", label)
    try:
        found = read_manifest(folder, "neighbours")
    except MissingError:
        return None
    if found.inputs.get("encoding") != encoding.fingerprint:
        todo = f"Run `relabel neighbours --label {label} --within {split}`, or delete them to export without."
        raise CheckError("neighbours in another encoding", where=str(folder), todo=todo)
    return found
