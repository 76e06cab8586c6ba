"""export: a label in a format of another tool, as a lookup, or its neighbours by id; and the checks of all exports."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import yaml

from relabel.core.errors import CheckError, RelabelError
from relabel.core.tables import Table, markdown
from relabel.core.types import Queries
from relabel.datasets.evaluation_sets import ALL
from relabel.export import export_class
from relabel.export.base import ArtefactRef, ExportInputs
from relabel.export.params import ExportHfParams, ExportTrecParams, block_of
from relabel.judge.calibration import STATED
from relabel.judge.cxc_figures import NON_GT
from relabel.judge.report import LabelFigures
from relabel.stages.calibrate import find_calibration
from relabel.stages.corpus import open_corpus
from relabel.stages.encode import encoding, open_label, serving_split
from relabel.stages.ingest import FETCHED, caption_params
from relabel.stages.job import Job, export_job
from relabel.stages.judged import figures
from relabel.stages.neighbours import neighbour_table
from relabel.stages.session import Session
from relabel.store.artefact import Inputs, Recipe
from relabel.store.manifest import MANIFEST
from relabel.store.workdir import Work

if TYPE_CHECKING:
    from relabel.datasets.registry import Manifest as DatasetManifest


def format_export(session: Session, kind: str, label: str, split: str) -> Job:
    """Prepare to write a label in a format of another tool.

    Encoding and neighbours are those of the split if they exist, else those of all captions (`serving_split`).

    `kind`: one of `relabel.export.EXPORTS`. Its parameters are those of the block `block_of(kind)`.
    """
    folder, source = session.folder, session.config.source(label)
    export = export_class(kind)
    params = getattr(session.config.export, block_of(kind))
    lookups, sections = dict[str, Job](), dict[str, str]()
    if isinstance(params, ExportHfParams):
        lookups, sections = _lookups(session, label, split), _sections(session, label)
        if params.licence is None and (captions := _captions(session)):
            params = params.model_copy(update={"licence": captions.licence})
    if isinstance(params, ExportTrecParams) and params.queries == "images" and not params.levels:
        params = params.model_copy(update={"levels": _cut_points(session, label)})
    exporter = export(params)
    encoded = encoding(session, label, serving_split(session, lambda s: folder("encodings", s, label), split))
    table, queries = None, exporter.neighbours_of
    if queries is not None:
        candidates = serving_split(session, lambda s: folder("neighbours", s, queries, label), split)
        table = existing_neighbours(session, label, candidates, queries)
    config: dict[str, Any] = params.model_dump(mode="json") | {"split": split, "pooling": source.params.pooling}
    config |= {"sections": sections} if sections else {}

    def checked() -> dict[str, Any]:
        # A label that the format cannot hold is refused before anything is compared or written.
        exporter.check(_inputs(session, label, split, encoded, table))
        return config

    def fill(work: Work) -> None:
        copied = {name: ArtefactRef.of(job) for name, job in lookups.items()}
        given = replace(_inputs(session, label, split, encoded, table), lookups=copied, sections=sections)
        exporter.write(given, work)
        work.metadata |= {"label": label, "split": split, "bounds": list(source.spec.bounds)}
        work.metadata["rows"] = [given.rows.start, given.rows.stop]

    inputs = _identities(session, encoded, table) | {f"lookup {name}": job for name, job in lookups.items()}
    return export_job(session, label, split, Recipe(kind, label, checked, inputs, fill))


def _cut_points(session: Session, label: str) -> tuple[float, ...]:
    """Return the relevance of a probability of 0.5 and 0.8, by the label's calibration; empty without one.

    Calibrations are of images and captions. They do not apply to the relevance of two captions.
    """
    calibration, low = find_calibration(session, label), session.config.source(label).spec.bounds[0]
    cuts = [calibration.curve.threshold(probability) for probability in (0.5, STATED)] if calibration else []
    return tuple(sorted({cut for cut in cuts if cut is not None and cut > low}))


def _inputs(session: Session, label: str, split: str, encoded: Job, table: Job | None) -> ExportInputs:
    """Return what an export may read; `encoded` and `table` must be current."""
    corpus = open_corpus(session)
    return ExportInputs(
        corpus=corpus,
        dataset=session.config.ingest.dataset,
        label=label,
        params=session.config.params(label).model_dump(mode="json"),
        source=session.config.source(label),
        split=split,
        splits=corpus.splits if split == "all" else {split: corpus.split_rows(split)},
        encoding=ArtefactRef.of(encoded),
        neighbours=None if table is None else ArtefactRef.of(table),
        open_relevance=partial(open_label, session, label, str(encoded.open().metadata["split"])),
        runtime=session.runtime,
    )


def _identities(session: Session, encoded: Job, table: Job | None) -> Inputs:
    """Return the inputs of an export."""
    inputs: Inputs = {"corpus": open_corpus(session).digest, "encoding": encoded}
    return inputs if table is None else inputs | {"neighbours": table}


def existing_neighbours(session: Session, label: str, candidates: str, queries: Queries = "captions") -> Job | None:
    """Return the job of the neighbours of a label that an export adds; None if there are none on disk."""
    exists = session.folder("neighbours", candidates, queries, label, MANIFEST).exists()
    return neighbour_table(session, label, candidates, queries) if exists else None


def _captions(session: Session) -> DatasetManifest | None:
    """Return the manifest of fetched captions; None for captions of the user's own."""
    from relabel.datasets import load_manifest

    params = caption_params(session)
    fetched = FETCHED.get(params.complete)
    return load_manifest(fetched) if fetched is not None and params.path is None else None


def _lookups(session: Session, label: str, split: str) -> dict[str, Job]:
    """Return the lookups of a split, or of every split, that exist and are current."""
    names = (*open_corpus(session).splits, "all") if split == "all" else (split,)
    jobs = {
        name: lookup_export(session, label, name)
        for name in names
        if (session.folder("exports", name, "lookup", label) / MANIFEST).exists()
    }
    return {name: job for name, job in jobs.items() if _is_current(session, job)}


def _is_current(session: Session, job: Job) -> bool:
    try:
        job.open()
    except CheckError as error:
        session.note_once(f"left out: {error}")
        return False
    return True


def _sections(session: Session, label: str) -> dict[str, str]:
    """Return what a card says of agreement with people, of the model and of the origin of the captions."""
    sections, agreement = dict[str, str](), list[tuple[str, ...]]()
    for split in ("val", "test"):
        if (session.folder("figures", split, label) / MANIFEST).exists():
            job = figures(session.judged_on(split), label)
            if _is_current(session, job):
                agreement += [row for record in LabelFigures.read(job.out).records if (row := _agreement(record))]
    if agreement:
        header = ("split", "pairs", "subset", "n", "Pearson's r", "95% interval", "Spearman's rho")
        notes = ("non-GT: pairs with a caption that was written for another image.",)
        table = Table("Correlation with the human scores of Crisscrossed Captions", header, tuple(agreement), notes)
        sections["Agreement with people"] = markdown(table)
    params = session.config.params(label)
    if model := getattr(params, "model", None) or getattr(params, "vectors", None):
        sections["Licence of the model"] = f"`{model}`: {_model_licence(str(model)) or 'not recorded'}."
    if captions := _captions(session):
        sections["Origin of the captions"] = f"{captions.title}, {captions.homepage}. {captions.citation}"
    return sections


def _agreement(record: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the row of a card for a record of figures; None for subsets by the way in which pairs were drawn."""
    pairs = {"sits": "image and caption", "sts": "two captions", "sis": "two images"}.get(record["task"])
    subset = {ALL: "all", NON_GT: "non-GT"}.get(record["subset"])
    if pairs is None or subset is None or record["pearson"] is None:
        return None
    interval = "" if record["low"] is None else f"{record['low']:.3f} to {record['high']:.3f}"
    values = (f"{record['n']:,}", f"{record['pearson']:.3f}", interval, f"{record['spearman']:.3f}")
    return (record["split"], pairs, subset, *values)


def _model_licence(name: str) -> str | None:
    """Return the licence that a fetched asset or the card of a model on disk states."""
    from relabel.datasets import load_manifest, names
    from relabel.sources.models.files import find_model

    if name in names():
        return load_manifest(name).licence
    with suppress(RelabelError, OSError, yaml.YAMLError):
        card = (find_model(name).folder / "README.md").read_text(encoding="utf-8")
        header = yaml.safe_load(card.split("---\n")[1]) if card.startswith("---\n") else {}
        return header.get("license") if isinstance(header, dict) else None
    return None


def lookup_export(session: Session, label: str, split: str, candidates: str | None = None) -> Job:
    """Prepare to write the lookup of a label over a split, with its neighbours in `candidates` if these exist."""
    from relabel.export.lookup import lookup_parameters, write_lookup

    source = session.config.source(label)
    source.require("lookup")
    encoded, table = encoding(session, label, split), existing_neighbours(session, label, candidates or split)
    config = partial(lookup_parameters, source, session.config.export.lookup)
    curve = None
    try:
        if calibration := find_calibration(session, label):
            curve = calibration.curve
    except CheckError as error:
        # The relevance of the lookup does not depend on it.
        session.note_once(f"lookup {label} is exported without calibration: {error}")

    def fill(work: Work) -> None:
        write_lookup(_inputs(session, label, split, encoded, table), recipe.spec(), work, curve)

    inputs = _identities(session, encoded, table)
    if curve is not None:
        inputs["curve"] = hashlib.sha256(json.dumps(asdict(curve)).encode()).hexdigest()
    recipe = Recipe("lookup", label, config, inputs, fill)
    return export_job(session, label, split, recipe)


def neighbours_export(session: Session, label: str, candidates: str, queries: Queries = "captions") -> Job:
    """Prepare to write the neighbours of a label with the ids of captions and images."""
    from relabel.export.neighbours import write_neighbour_ids

    corpus, table = open_corpus(session), neighbour_table(session, label, candidates, queries)
    config: dict[str, Any] = {"queries": queries, "candidates": candidates}

    def fill(work: Work) -> None:
        near = ArtefactRef.of(table)
        write_neighbour_ids(corpus, near, queries, work)
        names = ("label", "queries", "rows", "candidates", "bounds", "without_encoding")
        work.metadata |= {name: near.manifest.metadata[name] for name in names}

    return Job(
        session,
        session.folder("exports", candidates, "neighbours", queries, label),
        Recipe("neighbour_ids", label, lambda: config, {"corpus": corpus.digest, "neighbours": table}, fill),
        session.command("export neighbours", label=label, split=candidates, queries=queries),
        table.parameters,
    )
