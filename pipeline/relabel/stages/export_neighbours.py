"""export neighbours: tables of neighbours by id, for tools that do not know the corpus."""

from __future__ import annotations

from typing import Any

from relabel.core.errors import CheckError, MissingError
from relabel.core.hints import command
from relabel.core.types import Of
from relabel.stages.job import Job
from relabel.stages.project import Project
from relabel.store.manifest import ArtefactSpec, open_artefact, read_manifest
from relabel.store.workdir import Work


def export_neighbours(project: Project, label: str, within: str, of: Of = "captions") -> Job:
    """Prepare to write the neighbours of a label with the ids of captions and images.

    Parameters
    ----------
    project : Project
    label : str
    within : str
        Split of the neighbours.
    of : "captions" or "images"
        Queries of the table.

    Raises
    ------
    UsageError
        If there is no such label or split.
    MissingError
        If the neighbours are missing.
    CheckError
        If they were made from another corpus.
    """
    from relabel.export.neighbours import write_neighbour_ids

    # Called for its error: a label that the parameters lack is refused before any file is read.
    project.config.params(label)
    corpus, folder = project.corpus, project.layout.neighbours(within, of, label)
    todo = f"Run {command('neighbours', '--label', label, '--within', within, '--of', of)}."
    try:
        table = read_manifest(folder, "neighbours")
    except MissingError as error:
        raise MissingError(f"no neighbours of {of} by {label}", where=str(folder), todo=todo) from error
    # Neighbours are row numbers, which name other captions in another corpus.
    if table.inputs.get("corpus") != corpus.digest:
        raise CheckError("neighbours made from another corpus", where=str(folder), todo=todo)
    semantic: dict[str, Any] = {"of": of, "within": within, "version": 1}
    inputs = {"corpus": corpus.digest, "neighbours": table.identity}
    artefact = ArtefactSpec("neighbour_ids", label, semantic, inputs)

    def fill(work: Work) -> None:
        # The hashes are compared here, since a large table takes time to read and a current export needs none.
        open_artefact(folder, "neighbours")
        write_neighbour_ids(corpus, folder, table, work)
        names = ("label", "of", "rows", "within", "bounds", "order", "without_encoding")
        work.facts |= {name: table.facts[name] for name in names}

    return Job(project.layout.neighbour_ids(within, of, label), artefact, fill, project.runtime.progress)
