"""export lookup: the arrays that training code reads."""

from __future__ import annotations

from functools import partial

from relabel.config import Config
from relabel.export.base import ArtefactRef
from relabel.stages.encode import open_label, read_encoding
from relabel.stages.export import read_current_neighbours, unchanged
from relabel.stages.job import Job
from relabel.stages.project import Project
from relabel.stages.variants import Values, label_values, variant
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
    from relabel.export.lookup import check_lookup_support, lookup_spec, write_lookup

    source, corpus, layout = project.config.source(label), project.corpus, project.layout
    check_lookup_support(source, label)
    encoding = read_encoding(project, label, split)
    near = layout.neighbours(within or split, "captions", label)
    neighbours = read_current_neighbours(near, label, within or split, encoding)
    artefact = lookup_spec(corpus, source, label, encoding, neighbours, project.config.export.lookup)

    def fill(work: Work) -> None:
        encoded = ArtefactRef(layout.encoding(split, label), encoding)
        table = None if neighbours is None else ArtefactRef(near, neighbours)
        opened = partial(open_label, project, label, split, encoding)
        with unchanged([part for part in (encoded, table) if part is not None], work):
            write_lookup(corpus, source, artefact, encoded, table, opened, work)

    def values(config: Config) -> Values:
        return label_values(config, label) | {"export.lookup.dtype": config.export.lookup.dtype}

    return Job(layout.lookup(split, label), artefact, fill, project.runtime.progress, variant=variant(project, values))
