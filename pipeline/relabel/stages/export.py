"""export: a label in a format of another tool, as a lookup, or its neighbours by id; and the checks of all exports."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from relabel.config import Config
from relabel.core.errors import CheckError, MissingError, RelabelError
from relabel.core.types import Of
from relabel.export import export_class
from relabel.export.base import ArtefactRef, Export, ExportInputs
from relabel.stages.encode import open_label, read_encoding, serving_split
from relabel.stages.ingest import FETCHED
from relabel.stages.job import Job, Values, check_current, label_values, variant
from relabel.stages.judge import judge
from relabel.stages.neighbours import neighbours as prepare_neighbours
from relabel.stages.project import Project
from relabel.store.manifest import ArtefactSpec, Manifest, open_artefact, read_manifest, refuse_replaced
from relabel.store.workdir import Work


def export(project: Project, kind: str, label: str, split: str) -> Job:
    """Prepare to write a label in a format of another tool.

    Encoding and neighbours are those of the split if they exist, else those of all captions (`serving_split`).

    `kind`: one of `relabel.export.EXPORTS`. Its parameters are those of `export.KIND`.
    """
    exporter = export_class(kind)(getattr(project.config.export, kind))
    inputs = export_inputs(project, exporter, label, split)
    source, encoding, neighbours = inputs.source, inputs.encoding, inputs.neighbours
    exporter.check(inputs)
    semantic: dict[str, Any] = {
        **exporter.fingerprint_params(),
        "version": exporter.version,
        "split": split,
        "pooling": source.params.pooling,
    }
    digests = {"corpus": inputs.corpus.digest, "encoding": encoding.manifest.identity}
    if neighbours is not None:
        digests["neighbours"] = neighbours.manifest.identity
    if exporter.figures:
        semantic |= {"figures": [dict(record) for record in inputs.figures], "licence of captions": inputs.licence}
    artefact = ArtefactSpec(kind, label, semantic, digests)

    def fill(work: Work) -> None:
        project.note_single_captions(label)
        with unchanged([part for part in (encoding, neighbours) if part is not None], work):
            exporter.write(inputs, work)
        work.facts |= {"label": label, "split": split, "bounds": list(source.spec.bounds)}

    def values(config: Config) -> Values:
        block = getattr(config.export, kind).model_dump(mode="json")
        return label_values(config, label) | {f"export.{kind}.{name}": value for name, value in block.items()}

    out = project.layout.export(split, kind, label)
    return Job(out, artefact, fill, project.runtime.progress, variant=variant(project, values))


def export_inputs(project: Project, exporter: Export[Any], label: str, split: str) -> ExportInputs:
    """Return everything that an export of a label over a split may read; raises as `export`."""
    source, corpus, layout = project.config.source(label), project.corpus, project.layout
    covering = serving_split(project, lambda s: layout.encoding(s, label), split)
    encoding = ArtefactRef(layout.encoding(covering, label), read_encoding(project, label, covering))
    neighbours, of = None, exporter.neighbours_of()
    if of is not None:
        within = serving_split(project, lambda s: layout.neighbours(s, of, label), split)
        neighbours = read_neighbours_of(project, label, within, encoding.manifest, of)
    figures = _figures(project, label) if exporter.figures else ()
    return ExportInputs(
        corpus=corpus,
        dataset=project.config.ingest.dataset,
        namespace=project.namespace,
        licence=_licence(project),
        label=label,
        params=project.config.params(label).model_dump(mode="json"),
        source=source,
        split=split,
        splits={name: corpus.rows([name]) for name in project.splits(split)},
        encoding=encoding,
        neighbours=neighbours,
        figures=figures,
        open_relevance=partial(open_label, project, label, covering, encoding.manifest),
        progress=project.runtime.progress,
        device=project.runtime.device,
    )


def read_neighbours_of(
    project: Project, label: str, within: str, encoding: Manifest, of: Of = "captions"
) -> ArtefactRef | None:
    """Return the neighbours of a label that an export adds; None if there are none."""
    again = project.command("neighbours", label=label, within=within, of=of)
    todo = f"Run {again} again, or delete them to export without."
    try:
        table = read_current_neighbours(project, label, within, of, todo)
    except MissingError:
        return None
    # Stale neighbours are an error rather than left out: the user expects an export with neighbours.
    if table.manifest.inputs.get("encoding") != encoding.identity:
        raise CheckError("neighbours made from another encoding", where=str(table.folder), todo=todo)
    return table


def read_current_neighbours(project: Project, label: str, within: str, of: Of, todo: str) -> ArtefactRef:
    """Return a table of neighbours."""
    folder = project.layout.neighbours(within, of, label)
    manifest = read_manifest(folder, "neighbours")
    # `within` and `of` are in the path; k and an index may come from the command that made the table.
    of_table = {"within": within, "of": of, "split": manifest.facts["split"], "index": None}
    params = project.config.neighbours.model_copy(update=of_table)
    today = partial(prepare_neighbours, project, label, params)
    check_current(project, manifest, folder, today, todo, own=("k", "index"))
    return ArtefactRef(folder, manifest)


@contextmanager
def unchanged(inputs: Sequence[ArtefactRef], work: Work) -> Iterator[None]:
    """Verify the inputs of an export before the body, and drop its files if another run rebuilt an input meanwhile."""
    for part in inputs:
        open_artefact(part.folder, part.manifest.kind)
    yield
    # The files may be of two builds: the next run must not resume from them.
    try:
        for part in inputs:
            refuse_replaced(part.folder, part.manifest)
    except CheckError:
        for name in list(work.entries()):
            work.drop(name)
        raise


def _licence(project: Project) -> str | None:
    """Return the licence of fetched captions; None for captions of the user's own."""
    from relabel.datasets import load_manifest

    dataset = project.config.ingest.dataset
    if dataset not in FETCHED or project.reused_corpus is not None or project.config.ingest.has_location:
        return None
    return load_manifest(FETCHED[dataset]).licence


def _figures(project: Project, label: str) -> tuple[dict[str, str], ...]:
    """Return the records of a label in the current report of the judged split; none if it is missing or stale."""
    folder, records = project.layout.report(project.config.judge.split), []
    with suppress(RelabelError):
        report = open_artefact(folder, "report")
        current = judge(project, label).artefact.fingerprint
        for name in ("cxc", "eccv"):
            if report.inputs.get(f"{name}/{label}") == current:
                with (folder / f"{name}.csv").open(newline="", encoding="utf-8") as file:
                    records += [record for record in csv.DictReader(file) if record["label"] == label]
    return tuple(records)


def export_lookup(project: Project, label: str, split: str, within: str | None = None) -> Job:
    """Prepare to write the lookup of a label over a split, with its neighbours if these exist.

    `label`, `split`: the encoding to export. `within`: split of the neighbours to include; `split` by default.
    """
    from relabel.export.lookup import check_lookup_support, lookup_spec, write_lookup

    source, corpus, layout = project.config.source(label), project.corpus, project.layout
    check_lookup_support(source, label)
    encoding = read_encoding(project, label, split)
    table = read_neighbours_of(project, label, within or split, encoding)
    near = None if table is None else table.manifest
    artefact = lookup_spec(corpus, source, label, encoding, near, project.config.export.lookup)
    params = project.config.params(label).model_dump(mode="json")

    def fill(work: Work) -> None:
        project.note_single_captions(label)
        encoded = ArtefactRef(layout.encoding(split, label), encoding)
        opened = partial(open_label, project, label, split, encoding)
        with unchanged([part for part in (encoded, table) if part is not None], work):
            write_lookup(corpus, source, params, artefact, encoded, table, opened, work)

    def values(config: Config) -> Values:
        return label_values(config, label) | {"export.lookup.dtype": config.export.lookup.dtype}

    return Job(layout.lookup(split, label), artefact, fill, project.runtime.progress, variant=variant(project, values))


def export_neighbours(project: Project, label: str, within: str, of: Of = "captions") -> Job:
    """Prepare to write the neighbours of a label with the ids of captions and images.

    `within`: split of the neighbours. `of`: queries of the table.
    """
    from relabel.export.neighbours import write_neighbour_ids

    # Called for its error: a label that the parameters lack is refused before any file is read.
    project.config.params(label)
    corpus = project.corpus
    todo = f"Run {project.command('neighbours', label=label, within=within, of=of)}."
    try:
        near = read_current_neighbours(project, label, within, of, todo)
    except MissingError as error:
        raise MissingError(f"no neighbours of {of} by {label}", where=error.where, todo=todo) from error
    folder, table = near.folder, near.manifest
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
