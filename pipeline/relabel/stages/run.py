"""run: the artefacts of one split in order, built or stated in advance with rows, bytes and time; and the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from relabel import stages
from relabel.core.errors import CheckError, MissingError, RelabelError
from relabel.corpus.params import PUBLISHED_FORMATS
from relabel.judge.report import BASELINE
from relabel.neighbours.spec import Split
from relabel.sources.base import Capability
from relabel.stages import Session
from relabel.stages.calibrate import calibration_steps
from relabel.stages.correlate import Against, EvaluationResult, is_complete, with_baseline
from relabel.stages.costs import PREDICTED, Basis, predict
from relabel.stages.ingest import FETCHED, corpus_warnings, preview_captions
from relabel.stages.job import Step
from relabel.stages.judged import label_steps
from relabel.stages.page import FILE, page
from relabel.store.manifest import MANIFEST, read_manifest

EACH_SPLIT = "SPLIT"
"""Stands for each split of captions that are not read yet."""


def run(
    session: Session,
    split: Split | None = None,
    labels: Sequence[str] = (),
    mirror: Path | None = None,
    *,
    exports: bool = True,
) -> EvaluationResult:
    """Run all stages for one split of a dataset, or for each of its splits; finished work is not repeated.

    The stages are fetch, ingest, tune and encode; judge and correlate on judged splits (val and test of COCO); then
    neighbours, a lookup for training, indexes of faiss for labels of vectors, and the report. A label that lacks
    something (Java, a model) is left out and named; all others are built. Unless it is among `labels`, a label without
    the word vectors that `relabel fetch` gets is only noted.

    `split`: by default `judge.split` of a benchmark, and each split of other data. `labels`: labels to build. If empty,
    every label on a judged split, and `export.labels` on any other. `mirror`: folder of files that are used instead of
    a download. `exports`: whether neighbours, lookups and indexes are made.
    """
    session.check_labels(labels)
    stages.fetch_and_ingest(session, mirror)
    of_captions = [(session.config.ingest.dataset, text) for text in corpus_warnings(session)]
    # A lookup and the neighbours in it are of one split, so that training sees no captions of another.
    results = {}
    for part in session.label_splits(split):
        with session.runtime.progress.artefacts(len(_split_steps(session, part, labels, exports))):
            results[part] = _run_split(session, part, labels, exports)
    if len(results) == 1:
        result = next(iter(results.values()))
        result.warnings[:0] = of_captions
        return result
    merged = EvaluationResult(session, warnings=of_captions)
    for part, result in results.items():
        # One split at most is judged, and has tables and rates of its labels: val, where the captions have no test.
        if result.report.tables:
            merged.report, merged.rates = result.report, result.rates
        merged.problems += [(f"{label} of {part}", error) for label, error in result.problems]
        merged.warnings += [(f"{name} of {part}", text) for name, text in result.warnings]
        merged.paths |= {f"{name} of {part}": path for name, path in result.paths.items()}
        merged.lookups += result.lookups
        merged.pages += result.pages
    return merged


def _run_split(session: Session, split: str, labels: Sequence[str], exports: bool) -> EvaluationResult:
    """Run the stages after the corpus for one split."""
    session, names, against = _resolve(session, split, labels)
    result, folder = EvaluationResult(session, is_complete(session, labels)), session.folder
    built = result.build_labels(names, split, against)
    result.add_encoded(built, against)
    for label in (name for name in built if name != BASELINE):
        manifest = read_manifest(folder("encodings", split, label))
        first, last = manifest.metadata["rows"]
        result.rates[label] = (last - first) / max(manifest.provenance["seconds"], 1e-3)
    if exports:
        exported = _exported(session, labels)
        result.build(_export_steps(session, exported, split))
        # Encodings with failed rows are used, and reported at the end.
        result.problems += stages.find_failed_rows(session, labels or session.config.sources, split)
        result.paths |= {"labels": folder("encodings", split), "lookups": folder("exports", split, "lookup")}
        lookups = [folder("exports", split, "lookup", label) for label in exported]
        result.lookups = [path for path in lookups if path.exists()]
    if built:
        try:
            # The page comes after the neighbours, which it reads.
            job = page(session, split, built, against)
            job.run()
            result.paths["report"] = job.out / FILE
            result.pages = [job.out / FILE]
        except RelabelError as error:
            # The page is the last part of a run: its failure must not hide the results before it.
            result.problems.append(("report", error))
    return result


def report(session: Session, split: Split | None = None, labels: Sequence[str] = ()) -> EvaluationResult:
    """Write the HTML page of a split, and the tables that it shows.

    Encodings and judgements that do not exist yet are built, as by `correlate`. On COCO's val and test the page shows
    agreement with CxC, and on test with ECCV Caption. Other splits and datasets have no human judgements of their
    captions. Sets of texts that were judged before are shown for every dataset.

    `split`, `labels`: as for `run`. A split has one page, of the last request. Returns EvaluationResult: `pages` has
    the file. Labels that could not be built are among `problems`.
    """
    return run(session, split, labels, exports=False)


@dataclass(frozen=True)
class PlannedStep:
    """One artefact of a run.

    `state`: "partly" if an interrupted run has left work that the next one continues.
    `rows`: captions; rows of the files if the captions are not read yet; None if unknown.
    `bytes`: size of its files: measured if it is done, else approximate; None if unknown.
    `seconds`: approximate time of the work; None if unknown or done.
    `basis`: where the time comes from: "measured here", of an artefact that this machine has finished, or "typical", of
        2 CPU cores.
    `note`: facts about captions that are not read yet, separated by semicolons.
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


def plan_run(session: Session, split: Split | None = None, labels: Sequence[str] = ()) -> list[PlannedStep]:
    """List the artefacts that `run` would build, with their sizes and times, and build none of them.

    Of captions that are not read yet, the head is read; a file that is missing or not recognised raises as in `run`.
    """
    session.check_labels(labels)
    counts = {str(name): published.captions or 0 for name, published in session.config.ingest.counts.items()}
    # None, not 0, of a dataset that is not published.
    counts |= {"all": sum(counts.values())} if counts else {}
    planned = _corpus_steps(session, counts.get("all"))
    ingest = planned[-1]
    corpus = session.corpus if ingest.state == "done" else None
    unread = split or (session.config.judge.split if session.namespace in PUBLISHED_FORMATS else EACH_SPLIT)
    for part in session.label_splits(split) if corpus else (unread,):
        rows = len(corpus.rows(session.splits(part))) if corpus else counts.get(part, ingest.rows)
        planned += [_planned(session, step, rows) for step in _split_steps(session, part, labels)]
    return planned


def _split_steps(session: Session, split: str, labels: Sequence[str], exports: bool = True) -> list[Step]:
    """Return the steps after the corpus for one split, each once."""
    session, names, against = _resolve(session, split, labels)
    steps = [*label_steps(session, names, split, against), *calibration_steps(session, names, against)]
    if exports:
        steps += _export_steps(session, _exported(session, labels), split)
    out = session.folder("page", split)
    steps.append(Step("report", "report", split, out, lambda: page(session, split, names, against)))
    # Several labels may have a part in common.
    return [*{step.out: step for step in steps}.values()]


def _resolve(session: Session, split: str, labels: Sequence[str]) -> tuple[Session, list[str], list[Against]]:
    """Return the session with its judged split set, the labels to build, and the evaluation sets of the split."""
    config = session.config
    # Human judgements exist for COCO's val and test only.
    if session.namespace != "coco" or split not in ("test", "val"):
        return session, _exported(session, labels), []
    judge = config.judge.model_copy(update={"split": split})
    session = replace(session, config=config.model_copy(update={"judge": judge}))
    against = ["cxc", "eccv"] if split == "test" else ["cxc"]
    return session, with_baseline(session, list(labels) or session.available(config.sources), against), against


def _exported(session: Session, labels: Sequence[str]) -> list[str]:
    """Return the named labels, or those of `export.labels` if none is named."""
    return list(labels) or session.available(session.config.exported)


def _export_steps(session: Session, labels: Sequence[str], split: str) -> Iterator[Step]:
    """Yield the neighbours, the lookup and the index of faiss of labels. What their sources do not have is noted."""
    folder, single = session.folder, _has_one_caption(session, split)
    if single:
        session.note_once(f"neighbours of {split} are left out: it has only one caption")
    for label in labels:
        if not single and _has(session, label, "neighbours"):
            prepare = partial(stages.neighbours, session, label, split, "captions", split)
            yield Step(label, "neighbours", label, folder("neighbours", split, "captions", label), prepare)
        if _has(session, label, "lookup"):
            prepare = partial(stages.export_lookup, session, label, split)
            yield Step(label, "export", label, folder("exports", split, "lookup", label), prepare)
        if session.config.source(label).spec.kind == "vectors":
            prepare = partial(stages.export, session, "faiss", label, split)
            yield Step(label, "export faiss", label, folder("exports", split, "faiss", label), prepare)


def _has(session: Session, label: str, what: Capability) -> bool:
    """Return whether the source of a label can do something; if not, the reason is noted."""
    reason = session.config.source(label).supports(what)
    if reason is not None:
        session.note_once(f"{label} has no {what}: {reason}")
    return reason is None


def _has_one_caption(session: Session, split: str) -> bool:
    """Return whether a split is known to have only one caption."""
    # A dry run lists steps before the captions are read.
    with suppress(MissingError, CheckError):
        return len(session.corpus.rows(session.splits(split))) == 1
    return False


def _corpus_steps(session: Session, rows: int | None) -> list[PlannedStep]:
    """Return the steps that make the corpus; the last one ingests it."""
    config = session.config.ingest
    step = Step("ingest", "ingest", config.dataset, session.folder("corpus"), partial(stages.ingest, session))
    ingest = _planned(session, step, rows)
    if ingest.state == "done":
        return [ingest]
    note, counted = preview_captions(session)
    ingest = replace(_planned(session, step, rows or counted), note=note)
    fetched = config.dataset in FETCHED and not config.has_location and not note
    return [*(_fetch_steps(session, FETCHED[config.dataset]) if fetched else []), ingest]


def _fetch_steps(session: Session, name: str) -> list[PlannedStep]:
    """Return the step that fetches the files of a dataset; none if all of them are there."""
    from relabel.datasets.registry import load_manifest

    manifest, folder = load_manifest(name), session.runtime.data / name
    missing = [file for file in manifest.files if not (folder / file.name).exists()]
    if manifest.alternatives:
        missing = missing[:1] if len(missing) == len(manifest.files) else []
    size = sum(file.bytes for file in missing)
    return [PlannedStep("fetch", name, str(folder), bytes=size)] if missing else []


def _planned(session: Session, step: Step, captions: int | None = None) -> PlannedStep:
    """Return a step with its state; if it is not done, with its predicted size and time.

    `captions`: number of captions that it works on, where it is known.
    """
    state = "to do"
    # To prepare what does not exist yet may take a download.
    if step.stage not in ("ingest", "tune") or (step.out / MANIFEST).exists():
        # Its inputs may be missing or stale.
        with suppress(MissingError, CheckError):
            state = step.prepare().state()
    rows = captions if step.stage in PREDICTED else None
    planned = PlannedStep(step.stage, step.name, str(step.out), state, rows)
    if state == "done":
        manifest = read_manifest(step.out)
        made = manifest.metadata.get("rows")
        return replace(planned, rows=made[1] - made[0] if isinstance(made, list) else rows, bytes=manifest.bytes)
    if rows is None:
        return planned
    return replace(planned, **predict(session, step.stage, step.name, rows)._asdict())
