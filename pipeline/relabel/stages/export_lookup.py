"""export lookup: the arrays that training code reads."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from relabel.config import Config
from relabel.core.errors import CheckError, MissingError
from relabel.core.hints import command
from relabel.stages.encode import open_label, read_encoding
from relabel.stages.job import Job
from relabel.stages.project import Project
from relabel.stages.variants import Values, label_values, variant
from relabel.store.manifest import Manifest, open_artefact, read_manifest, refuse_replaced
from relabel.store.workdir import Work


def export_lookup(project: Project, label: str, split: str, within: str | None = None) -> Job:
    """Prepare to write the lookup of a label over a split, with its neighbours if these exist.

    Parameters
    ----------
    project : Project
    label, split : str
        The encoding to export.
    within : str, optional
        Split of the neighbours to include; `split` by default.

    Raises
    ------
    UsageError
        If there is no such label or split, or its source scores pair by pair.
    MissingError
        If the encoding is missing.
    CheckError
        If the encoding or the neighbours were made of other captions or under other parameters.
    """
    from relabel.export.lookup import ArtefactRef, check_lookup_support, lookup_spec, write_lookup

    source, corpus, layout = project.config.source(label), project.corpus, project.layout
    check_lookup_support(source, label)
    encoding = read_encoding(project, label, split)
    near = layout.neighbours(within or split, "captions", label)
    neighbours = _neighbours(near, label, within or split, encoding)
    artefact = lookup_spec(corpus, source, label, encoding, neighbours, project.config.export.lookup)

    def fill(work: Work) -> None:
        encoded = ArtefactRef(layout.encoding(split, label), encoding)
        table = None if neighbours is None else ArtefactRef(near, neighbours)
        inputs = [part for part in (encoded, table) if part is not None]
        # Every file of the inputs is verified before it is copied or converted.
        for part in inputs:
            open_artefact(part.folder, part.manifest.kind)
        opened = partial(open_label, project, label, split, encoding)
        write_lookup(corpus, source, artefact, encoded, table, opened, work)
        # If another run rebuilt an input meanwhile, the arrays may be of two encodings: the next run must not resume
        # from them.
        try:
            for part in inputs:
                refuse_replaced(part.folder, part.manifest)
        except CheckError:
            for name in list(work.entries()):
                work.drop(name)
            raise

    def values(config: Config) -> Values:
        return label_values(config, label) | {"export.lookup.dtype": config.export.lookup.dtype}

    return Job(layout.lookup(split, label), artefact, fill, project.runtime.progress, variant=variant(project, values))


def _neighbours(folder: Path, label: str, within: str, encoding: Manifest) -> Manifest | None:
    """Return the manifest of neighbours of captions; None if there are none."""
    try:
        manifest = read_manifest(folder, "neighbours")
    except MissingError:
        return None
    # Stale neighbours are an error rather than left out: the user expects a lookup with neighbours.
    if manifest.inputs.get("encoding") != encoding.identity:
        again = command("neighbours", "--label", label, "--within", within)
        todo = f"Run {again} again, or delete them to export without."
        raise CheckError("neighbours made from another encoding", where=str(folder), todo=todo)
    return manifest
