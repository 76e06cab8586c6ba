"""dry run: the artefacts that `run` would build, with their rows, bytes and seconds, before any work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Literal

from relabel import stages
from relabel.core.errors import CheckError, MissingError, RelabelError
from relabel.corpus.params import Expected
from relabel.neighbours.spec import Within as Split
from relabel.page.captions import CAPTIONS
from relabel.sources import source_class
from relabel.sources.base import COCO_CAPTIONS, TypicalCost
from relabel.stages import Job, Project
from relabel.stages.ingest import FETCHED
from relabel.stages.page import page_folder, page_is_current
from relabel.stages.run import default_labels, labels_to_export, neighbours_params, resolve_split
from relabel.store.artefact import is_current
from relabel.store.manifest import MANIFEST, Manifest, read_manifest
from relabel_train.lookup.format import DESCRIPTION

_ROWS_OF_CAPTIONS = ("ingest", "encode", "neighbours", "export")

# A caption of COCO's corpus: benchmarks/results/full_run_coco.json.
_INGEST_COST = TypicalCost(32_470_025 / COCO_CAPTIONS, 10.5 / COCO_CAPTIONS)

# The page of COCO's test split, 25,010 captions: plotly, the captions, and the nearest captions of each label.
_PAGE_BYTES, _PAGE_CAPTION_BYTES, _PAGE_LABEL_BYTES = 2_000_000, 34, 36


@dataclass(frozen=True)
class Step:
    """One artefact of a run.

    `state`: "waits" if an input of the artefact, or something that it needs, is missing.
    `rows`, `bytes`: rows and size of its data files, without the few KB of `manifest.json` and `lookup.json`; None if
        unknown.
    `exact`: whether `bytes` is exact rather than an estimate.
    `seconds`: typical time of the work on 2 CPU cores; None if unknown or done.
    """

    stage: str
    name: str
    out: str
    state: Literal["done", "to do", "waits"] = "waits"
    rows: int | None = None
    bytes: int | None = None
    exact: bool = False
    seconds: float | None = None


def plan_run(project: Project, split: Split | None = None, labels: Sequence[str] = ()) -> list[Step]:
    """List the artefacts that `run` would build, with their sizes, and build none of them.

    Sizes are estimated from samples of captions, which are encoded and exported in a temporary folder. Without a
    corpus, sizes come from `Source.typical_cost`; times always do.
    """
    project, split, against = resolve_split(project, split, labels)
    layout, dataset = project.layout, project.config.ingest.dataset
    steps = [Step("ingest", dataset, str(layout.corpus), "to do")]
    has_corpus = (layout.corpus / MANIFEST).exists()
    if has_corpus:
        steps = [_completed(steps[0], read_manifest(layout.corpus, "corpus"))]
    elif not project.config.ingest.has_location and dataset in FETCHED:
        steps = [*_fetch_steps(project, FETCHED[dataset]), *steps]
    names = default_labels(project, labels, judged=bool(against))
    if any(stages.needs_word2vec(project.config.params(label)) for label in names):
        state: Literal["done", "to do"] = "done" if stages.word2vec_is_current(project) else "to do"
        steps.append(Step("tune", "cbow", str(project.word2vec), state))
    exported = labels_to_export(project, labels)
    for label in names:
        encoding = Step("encode", label, str(layout.encoding(split, label)))
        of_label = [_look_up(encoding, partial(stages.encode, project, label, split))]
        if against:
            judgement = Step("judge", label, str(layout.judgement(split, label)))
            of_label.append(_look_up(judgement, partial(stages.judge, project, label)))
        if label in exported:
            of_label += _export_steps(project, split, label)
            # Samples are drawn from the corpus, and cost some seconds.
            if has_corpus and any(step.state != "done" for step in of_label):
                of_label = _with_estimates(project, split, label, of_label)
        steps += of_label
    counts = project.config.ingest.counts
    steps = [_with_typical_cost(_with_published_rows(step, counts, split), project) for step in steps]
    return [*steps, _page_step(project, split, labels, names, steps)]


def _page_step(
    project: Project, split: Split, labels: Sequence[str], names: Sequence[str], steps: Sequence[Step]
) -> Step:
    """Return the step of the HTML page, which shows the artefacts of all other steps."""
    folder = page_folder(project, split, labels)
    captions = next((other.rows for other in steps if other.stage == "encode"), None)
    # A large split is shown by a sample.
    rows = None if captions is None else min(captions, CAPTIONS)
    step = Step("report", split, str(folder), rows=rows)
    if all(other.state == "done" for other in steps):
        judged = any(other.stage == "judge" for other in steps)
        if page_is_current(project, split, labels, names, judged):
            return replace(_completed(step, read_manifest(folder, "page")), rows=rows)
        step = replace(step, state="to do")
    if rows is None:
        return step
    # The baseline has no nearest captions.
    searched = sum(not project.config.source(name).spec.baseline for name in names)
    return replace(step, bytes=_PAGE_BYTES + rows * (_PAGE_CAPTION_BYTES + searched * _PAGE_LABEL_BYTES))


def _fetch_steps(project: Project, name: str) -> list[Step]:
    """Return the step that fetches the files of a dataset; none if all of them are there."""
    from relabel.datasets.registry import load_manifest

    manifest, folder = load_manifest(name), project.runtime.data / name
    missing = [file for file in manifest.files if not (folder / file.name).exists()]
    if manifest.alternatives:
        missing = missing[:1] if len(missing) == len(manifest.files) else []
    size = sum(file.bytes for file in missing)
    return [Step("fetch", name, str(folder), "to do", bytes=size)] if missing else []


def _with_typical_cost(step: Step, project: Project) -> Step:
    """Return the step with its typical seconds, and with its typical bytes if they are unknown."""
    if step.state == "done" or step.rows is None:
        return step
    k, index = project.config.neighbours.k, project.config.neighbours.index
    if step.stage == "ingest":
        estimate = _INGEST_COST.estimate("encode", step.rows, k)
    else:
        # Unresolved parameters name a tuned model; resolved ones hold its folder.
        params = project.config.params(step.name)
        cost = source_class(params.source)(params).typical_cost()
        # The cost of an approximate search depends on its index.
        approximate = step.stage == "neighbours" and index is not None
        estimate = None if cost is None or approximate else cost.estimate(step.stage, step.rows, k)
    if estimate is None:
        return step
    return replace(step, bytes=estimate[0] if step.bytes is None else step.bytes, seconds=estimate[1])


def _with_published_rows(step: Step, counts: Expected, split: Split) -> Step:
    """Return the step with the rows that a published dataset gives it, if they are unknown."""
    if step.rows is not None or step.stage not in _ROWS_OF_CAPTIONS:
        return step
    published = counts.get("all" if step.stage == "ingest" else split)
    return step if published is None else replace(step, rows=published.captions)


def _export_steps(project: Project, split: Split, label: str) -> list[Step]:
    near = Step("neighbours", label, str(project.layout.neighbours(split, "captions", label)))
    steps = [_look_up(near, partial(stages.neighbours, project, label, neighbours_params(project, split)))]
    if project.config.source(label).lookup_blocker() is None:
        lookup = Step("export", label, str(project.layout.lookup(split, label)))
        steps.append(_look_up(lookup, partial(stages.export_lookup, project, label, split)))
    return steps


def _look_up(step: Step, prepare: Callable[[], Job]) -> Step:
    """Return the step with the state of its artefact on disk."""
    try:
        job = prepare()
    except (MissingError, CheckError):
        # Its inputs are missing or stale: it waits for them.
        return step
    step = replace(step, out=str(job.out))
    if not is_current(job.out, job.artefact):
        # A dry run refuses the replacements that the run would refuse.
        job.check()
        return replace(step, state="to do")
    return _completed(step, read_manifest(job.out, job.artefact.kind))


def _completed(step: Step, manifest: Manifest) -> Step:
    size = sum(entry.bytes for name, entry in manifest.files.items() if name != DESCRIPTION)
    rows = manifest.facts.get("rows")
    count = rows[1] - rows[0] if isinstance(rows, list) else None
    return replace(step, state="done", rows=count, bytes=size, exact=True)


def _with_estimates(project: Project, split: Split, label: str, steps: list[Step]) -> list[Step]:
    """Return the steps with estimated sizes; those of a label that cannot be encoded stay as they are."""
    from relabel.stages.estimate import estimate_sizes

    try:
        sizes = estimate_sizes(project, label, split)
    except RelabelError as error:
        project.runtime.progress.note(f"{label}: no estimate: {error}")
        return steps
    return [
        replace(step, **asdict(sizes[step.stage])) if step.stage in sizes and step.state != "done" else step
        for step in steps
    ]
