"""run: builds or plans all artefacts of a split in order. report: writes the report of a split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from relabel.core.errors import CheckError, MissingError, RelabelError
from relabel.corpus.params import PUBLISHED_FORMATS
from relabel.datasets.cxc import TASKS
from relabel.datasets.evaluation_sets import ALL
from relabel.judge.report import BASELINE, Record
from relabel.sources.base import Capability
from relabel.stages.calibrate import calibration_jobs
from relabel.stages.corpus import label_splits, open_corpus
from relabel.stages.correlate import (
    Against,
    EvaluationResult,
    build_labels,
    encoded_sections,
    is_complete,
    total_report,
    with_baseline,
    write_sections,
)
from relabel.stages.costs import PREDICTED, Basis, predict
from relabel.stages.encode import available_labels, check_label_names, find_failed_rows
from relabel.stages.export import format_export, lookup_export
from relabel.stages.ingest import FETCHED, corpus_warnings, fetch_and_ingest, ingestion, namespace, preview_captions
from relabel.stages.job import PendingJob, run_jobs
from relabel.stages.judged import label_jobs
from relabel.stages.neighbours import neighbour_table
from relabel.stages.page import FILE, page
from relabel.stages.session import Session
from relabel.store.manifest import MANIFEST, read_manifest

EACH_SPLIT = "SPLIT"
"""Placeholder for each split of captions that were not read yet."""


@dataclass
class RunResult(EvaluationResult):
    """Result of a run. Its report is that of the judged split.

    `rates`: speed of each label, in encoded captions or scored pairs per second, and the unit.
    `lookups`, `pages`: folders of lookups, and HTML files.
    """

    rates: dict[str, tuple[float, str]] = field(default_factory=dict)
    lookups: list[Path] = field(default_factory=list)
    pages: list[Path] = field(default_factory=list)

    def add(self, split: str, result: RunResult) -> None:
        """Add the result of another split."""
        # At most one split is judged and has tables and rates: test, or val if the captions have no test split.
        if result.report.tables:
            self.report, self.rates = result.report, result.rates
        self.problems += [(f"{label} of {split}", error) for label, error in result.problems]
        self.warnings += [(f"{name} of {split}", text) for name, text in result.warnings]
        self.paths |= {f"{name} of {split}": path for name, path in result.paths.items()}
        self.lookups += result.lookups
        self.pages += result.pages


def run(
    session: Session,
    split: str | None = None,
    labels: Sequence[str] = (),
    mirror: Path | None = None,
    *,
    exports: bool = True,
    images: str | None = None,
) -> RunResult:
    """Run all stages for one split of a dataset, or for each of its splits. Finished work is not repeated.

    The stages are fetch, ingest, tune and encode; judge and correlate on judged splits (val and test of COCO); then
    neighbours, a lookup for training, faiss indexes for labels of vectors, and the report. A label that lacks
    something, such as Java or a model, is left out and reported. A label that lacks only word vectors from
    `relabel fetch` is just noted, unless it is in `labels`.

    `split`: by default `judge.split` for a benchmark, and every split for other data. `labels`: labels to build. If
    empty, all labels on a judged split, and `export.labels` on any other. `mirror`: folder of files to use instead of
    downloads. `exports`: True to build neighbours, lookups and indexes. `images`: as for `report`.
    """
    check_label_names(session.config, labels)
    fetch_and_ingest(session, mirror)
    of_captions = [(session.config.ingest.dataset, text) for text in corpus_warnings(session)]
    # Lookups and their neighbours contain one split, so training does not see captions of others.
    parts = label_splits(session, split)
    jobs = {part: _split_jobs(session, part, labels, exports) for part in parts}
    seconds = {job.out: _expected_seconds(session, job, part) for part in parts for job in jobs[part]}
    with session.runtime.progress.artefacts(seconds):
        results = {part: _run_split(session, part, labels, exports, images) for part in parts}
    if len(results) == 1:
        (result,) = results.values()
        result.warnings[:0] = of_captions
        return result
    merged = RunResult(warnings=of_captions)
    for part, result in results.items():
        merged.add(part, result)
    return merged


def _expected_seconds(session: Session, job: PendingJob, split: str) -> float:
    """Return the predicted time of an artefact in seconds, or 0 if it exists or its stage has no predictions."""
    if job.stage not in PREDICTED or ((job.out / MANIFEST).exists() and not session.runtime.rebuild):
        return 0.0
    return predict(session, job.stage, job.name, len(open_corpus(session).split_rows(split))).seconds or 0.0


def _run_split(session: Session, split: str, labels: Sequence[str], exports: bool, images: str | None) -> RunResult:
    """Run the stages after the corpus for one split."""
    session, names, against = _resolve(session, split, labels)
    result, folder = RunResult(), session.folder
    built = build_labels(session, names, split, against, result)
    sections = encoded_sections(session, built, against)
    result.report = total_report(sections)
    if is_complete(session, labels):
        result.paths |= write_sections(session, sections)
    result.rates = {name: _rate(session, name, split, result.report.records) for name in built if name != BASELINE}
    if exports:
        exported = _exported(session, labels)
        run_jobs(_export_jobs(session, exported, split), result)
        # Encodings with failed rows are used anyway, and reported at the end.
        result.problems += find_failed_rows(session, labels or session.config.sources, split)
        result.paths |= {"labels": folder("encodings", split), "lookups": folder("exports", split, "lookup")}
        lookups = [folder("exports", split, "lookup", label) for label in exported]
        result.lookups = [path for path in lookups if path.exists()]
    if built:
        try:
            # The page reads the neighbours, so it is built after them.
            job = page(session, split, built, against, images)
            job.run()
            result.paths["report"] = job.out / FILE
            result.pages = [job.out / FILE]
        except RelabelError as error:
            # If the page fails, the other results must still be returned.
            result.problems.append(("report", error))
    return result


def _rate(session: Session, label: str, split: str, records: Sequence[Record]) -> tuple[float, str]:
    """Return the speed of a label per second, and its unit: captions, or judged pairs if it scores pair by pair.

    For labels of pairs, encoding captions is only a small part of the work.
    """
    of_label = [record for record in records if (record["label"], record["subset"]) == (label, ALL)]
    scored = [record["n"] + record["missing"] for record in of_label if record["task"] in TASKS]
    pairwise = bool(scored) and session.config.source(label).is_pairwise()
    manifest = read_manifest(session.folder("judgements" if pairwise else "encodings", split, label))
    first, last = (0, sum(scored)) if pairwise else manifest.metadata["rows"]
    return (last - first) / max(manifest.provenance["seconds"], 1e-3), "pairs" if pairwise else "captions"


def report(
    session: Session, split: str | None = None, labels: Sequence[str] = (), images: str | None = None
) -> RunResult:
    """Write the HTML page of a split, and its tables. An existing page of the split is replaced.

    As with `correlate`, missing encodings and judgements are built. The page shows the agreement with CxC on COCO's val
    and test, and with ECCV Caption on test. Other splits and datasets do not have human judgements of their captions.
    Sets of texts on which labels were judged before are shown for every dataset.

    `split`, `labels`: as for `run`. `images`: folder of the images, or a URL with `{image_id}`. A split has one page,
    of the last request. Returns RunResult: `pages` has the file. Labels that could not be built are among `problems`.
    """
    return run(session, split, labels, exports=False, images=images)


@dataclass(frozen=True)
class PlannedJob:
    """One artefact of a run.

    `state`: "partly" if an interrupted run left work to continue.
    `rows`: number of captions, or of rows of the files if the captions were not read yet; None if unknown.
    `bytes`: size of its files, approximate unless it is done; None if unknown.
    `seconds`: approximate time of the work; None if unknown or done.
    `basis`: source of the time: "measured here" for times from artefacts that this machine has built, or "typical" for
        times on 2 CPU cores.
    `note`: facts about captions that were not read yet, separated by semicolons.
    """

    stage: str
    name: str
    out: str
    state: str = "to do"
    rows: int | None = None
    bytes: int | None = None
    seconds: float | None = None
    basis: Basis | None = None
    note: str = ""


def plan_run(session: Session, split: str | None = None, labels: Sequence[str] = ()) -> list[PlannedJob]:
    """List the artefacts that `run` would build, with their sizes and times, without building them.

    Only the head of new captions is read. Missing and unsupported files raise the same errors as in `run`.
    """
    check_label_names(session.config, labels)
    counts = {str(name): published.captions or 0 for name, published in session.config.ingest.counts.items()}
    # Without published counts, the number is None and not 0.
    counts |= {"all": sum(counts.values())} if counts else {}
    planned = _corpus_jobs(session, counts.get("all"))
    ingest = planned[-1]
    corpus = open_corpus(session) if ingest.state == "done" else None
    unread = split or (session.config.judge.split if namespace(session) in PUBLISHED_FORMATS else EACH_SPLIT)
    for part in label_splits(session, split) if corpus else (unread,):
        rows = len(corpus.split_rows(part)) if corpus else counts.get(part, ingest.rows)
        planned += [_planned(session, job, rows) for job in _split_jobs(session, part, labels)]
    return planned


def _split_jobs(session: Session, split: str, labels: Sequence[str], exports: bool = True) -> list[PendingJob]:
    """Return the jobs after the corpus for one split, without duplicates."""
    session, names, against = _resolve(session, split, labels)
    jobs = [*label_jobs(session, names, split, against), *calibration_jobs(session, names, against)]
    if exports:
        jobs += _export_jobs(session, _exported(session, labels), split)
    out = session.folder("page", split)
    jobs.append(PendingJob("report", "report", split, out, lambda: page(session, split, names, against)))
    # Several labels may share a part.
    return [*{job.out: job for job in jobs}.values()]


def _resolve(session: Session, split: str, labels: Sequence[str]) -> tuple[Session, list[str], list[Against]]:
    """Return the session with `judge.split` set, the labels to build, and the evaluation sets of the split."""
    config = session.config
    # Only COCO's val and test have human judgements.
    if namespace(session) != "coco" or split not in ("test", "val"):
        return session, _exported(session, labels), []
    session = session.judged_on(split)
    against = ["cxc", "eccv"] if split == "test" else ["cxc"]
    return session, with_baseline(session, list(labels) or available_labels(session, config.sources), against), against


def _exported(session: Session, labels: Sequence[str]) -> list[str]:
    """Return the named labels, by default those of `export.labels`."""
    return list(labels) or available_labels(session, session.config.exported)


def _export_jobs(session: Session, labels: Sequence[str], split: str) -> Iterator[PendingJob]:
    """Yield the jobs of neighbours, lookups and faiss indexes of labels. A note lists what sources do not support."""
    folder, single = session.folder, _has_one_caption(session, split)
    if single:
        session.note_once(f"neighbours of {split} are left out: it has only one caption")
    for label in labels:
        if not single and _has(session, label, "neighbours"):
            prepare = partial(neighbour_table, session, label, split, "captions", split)
            yield PendingJob(label, "neighbours", label, folder("neighbours", split, "captions", label), prepare)
        if _has(session, label, "lookup"):
            prepare = partial(lookup_export, session, label, split)
            yield PendingJob(label, "export", label, folder("exports", split, "lookup", label), prepare)
        if session.config.source(label).spec.kind == "vectors":
            prepare = partial(format_export, session, "faiss", label, split)
            yield PendingJob(label, "export faiss", label, folder("exports", split, "faiss", label), prepare)


def _has(session: Session, label: str, what: Capability) -> bool:
    """Return True if the source of a label has a capability; if not, note the reason."""
    reason = session.config.source(label).supports(what)
    if reason is not None:
        session.note_once(f"{label} has no {what}: {reason}")
    return reason is None


def _has_one_caption(session: Session, split: str) -> bool:
    """Return True if a split is known to have only one caption."""
    # In a dry run, the captions may not be read yet.
    with suppress(MissingError, CheckError):
        return len(open_corpus(session).split_rows(split)) == 1
    return False


def _corpus_jobs(session: Session, rows: int | None) -> list[PlannedJob]:
    """Return the jobs that build the corpus. The last one ingests it."""
    config = session.config.ingest
    job = PendingJob("ingest", "ingest", config.dataset, session.folder("corpus"), partial(ingestion, session))
    ingest = _planned(session, job, rows)
    if ingest.state == "done":
        return [ingest]
    note, counted = preview_captions(session)
    ingest = replace(_planned(session, job, rows or counted), note=note)
    fetched = config.complete in FETCHED and not config.has_location and not note
    return [*(_fetch_jobs(session, FETCHED[config.complete]) if fetched else []), ingest]


def _fetch_jobs(session: Session, name: str) -> list[PlannedJob]:
    """Return the job that fetches the files of a dataset; [] if all of them exist."""
    from relabel.datasets.registry import load_manifest

    manifest, folder = load_manifest(name), session.runtime.data / name
    missing = [file for file in manifest.files if not (folder / file.name).exists()]
    if manifest.alternatives:
        missing = missing[:1] if len(missing) == len(manifest.files) else []
    size = sum(file.bytes for file in missing)
    return [PlannedJob("fetch", name, str(folder), bytes=size)] if missing else []


def _planned(session: Session, job: PendingJob, captions: int | None = None) -> PlannedJob:
    """Return a job with its state and, if it is not done, its predicted size and time.

    `captions`: number of captions to process, or None if unknown.
    """
    state = "to do"
    # Preparing a job of a new artefact may need a download.
    if job.stage not in ("ingest", "tune") or (job.out / MANIFEST).exists():
        # Inputs may be missing or stale.
        with suppress(MissingError, CheckError):
            state = job.prepare().state()
    rows = captions if job.stage in PREDICTED else None
    planned = PlannedJob(job.stage, job.name, str(job.out), state, rows)
    if state == "done":
        manifest = read_manifest(job.out)
        span = manifest.metadata.get("rows")
        return replace(planned, rows=span[1] - span[0] if isinstance(span, list) else rows, bytes=manifest.bytes)
    if rows is None:
        return planned
    return replace(planned, **predict(session, job.stage, job.name, rows)._asdict())
