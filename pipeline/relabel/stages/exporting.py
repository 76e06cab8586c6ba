"""export: what training code reads."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from relabel.errors import CheckError, MissingError
from relabel.stages.encoding import encoded, open_label
from relabel.stages.job import Job
from relabel.stages.project import Project
from relabel.store.manifest import Manifest, open_artefact, read_manifest
from relabel.store.work import Work


def export_lookup(project: Project, label: str, split: str, within: str | None = None) -> Job:
    """Prepare to write the lookup of a label over a split, with its neighbours if they were found before.

    Parameters
    ----------
    project : Project
    label, split : str
        An encoding.
    within : str, optional
        The split whose captions' neighbours go in; `split` itself where not given.

    Raises
    ------
    UsageError
        If there is no such label or split, or its source scores pair by pair.
    MissingError
        If the encoding is not there.
    CheckError
        If the encoding or the neighbours were made of other captions or under other parameters.
    """
    from relabel.export.lookup import Made, lookup_draft, refuse_without_lookup, write_lookup

    source, corpus, layout = project.config.source(label), project.corpus, project.layout
    refuse_without_lookup(source, label)
    encoding = encoded(project, label, split)
    near = layout.neighbours(within or split, "captions", label)
    neighbours = _neighbours(near, label, within or split, encoding)
    draft = lookup_draft(corpus, source, label, encoding, neighbours, project.config.export.lookup)

    def fill(work: Work) -> None:
        made = Made(layout.encoding(split, label), encoding)
        found = None if neighbours is None else Made(near, neighbours)
        for artefact in (made, found):
            if artefact is not None:
                open_artefact(artefact.folder, artefact.manifest.kind)
        write_lookup(corpus, source, draft, made, found, partial(open_label, project, label, split), work)

    return Job(layout.lookup(split, label), draft, fill, project.runtime.progress)


def _neighbours(folder: Path, label: str, within: str, encoding: Manifest) -> Manifest | None:
    """Read the manifest of neighbours of captions, None if there are none."""
    try:
        found = read_manifest(folder, "neighbours")
    except MissingError:
        return None
    if found.inputs.get("encoding") != encoding.identity:
        todo = f"Run `relabel neighbours --label {label} --within {within}` again, or delete them to export without."
        raise CheckError("neighbours by another encoding", where=str(folder), todo=todo)
    return found
