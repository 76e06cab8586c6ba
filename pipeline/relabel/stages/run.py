"""run: all stages in order, for one split of a dataset; and the report, the last of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from relabel import stages
from relabel.core.errors import RelabelError
from relabel.core.layout import Layout
from relabel.neighbours.spec import Within as Split
from relabel.stages import Project
from relabel.stages.correlate import Against, EvaluationResult, is_complete
from relabel.stages.page import FILE, page
from relabel.stages.steps import build_steps, export_steps
from relabel.store.manifest import MANIFEST, read_manifest


def run(
    project: Project,
    split: Split | None = None,
    labels: Sequence[str] = (),
    mirror: Path | None = None,
    *,
    exports: bool = True,
) -> EvaluationResult:
    """Run all stages for one split of a dataset; finished work is not repeated.

    The stages are fetch, ingest, tune and encode; judge and correlate on judged splits (val and test of COCO); then
    neighbours, a lookup for training, indexes of faiss for labels of vectors, and the report. A label that lacks
    something (Java, a model, vectors) is left out and named; all others are built.

    `split`: by default `judge.split`, or the only split of the corpus. `labels`: labels to build. If empty, every label
    on a judged split, and `export.labels` on any other. `mirror`: folder of files that are used instead of a download.
    `exports`: whether neighbours, lookups and indexes are made.
    """
    project, split, against = resolve_split(project, split, labels)
    stages.fetch_and_ingest(project, mirror)
    result = EvaluationResult(project, is_complete(project, labels))
    built = result.build(default_labels(project, labels, judged=bool(against)), split, against)
    result.add_encoded(built, against)
    if exports:
        _note_without_exports(project, labels)
        exported = [label for label in labels_to_export(project, labels) if label in built]
        result.problems += build_steps(export_steps(project, exported, split))
        # Encodings with failed rows are used, and reported at the end.
        result.problems += stages.find_failed_rows(project, labels or project.config.sources, split)
        result.paths = _output_folders(project.layout, split, result.paths)
    if built:
        try:
            # The page comes after the neighbours, which it reads.
            job = page(project, split, labels, built, against)
            job.build()
            result.paths["report"] = job.out / FILE
        except RelabelError as error:
            # The page is the last part of a run: its failure must not hide the results before it.
            result.problems.append(("report", error))
    return result


def report(project: Project, split: Split | None = None, labels: Sequence[str] = ()) -> EvaluationResult:
    """Write the HTML page of a split, and the tables that it shows.

    Encodings and judgements that do not exist yet are built, as by `correlate`. On COCO's val and test the page shows
    agreement with CxC, and on test with ECCV Caption. Other splits and datasets have no human judgements of their
    captions. Sets of texts that were judged before are shown for every dataset.

    `split`, `labels`: as for `run`. The page of other labels or parameters than those of the file has a folder beside
    ``page/SPLIT``. Returns EvaluationResult: ``paths["report"]`` is the file. Labels that could not be built are among
    `problems`.
    """
    return run(project, split, labels, exports=False)


def labels_to_export(project: Project, labels: Sequence[str]) -> list[str]:
    """Return the labels that get neighbours and a lookup.

    These are the named labels, or `export.labels` if none is named, without those whose source has no neighbours.
    """
    config = project.config
    candidates = labels or [label for label in config.export.labels if label in config.sources]
    return [label for label in candidates if config.source(label).supports("neighbours") is None]


def resolve_split(
    project: Project, split: Split | None, labels: Sequence[str] = ()
) -> tuple[Project, Split, list[Against]]:
    """Return the project with its judged split set, the split, and the judged sets of that split.

    Without a split it is `judge.split`, or the only split of the corpus, or all splits if the corpus lacks that one.
    """
    config = project.config
    for label in labels:
        config.params(label)
    if split is None:
        split = config.judge.split
        # Captions of the user's own may have no split of that name.
        if (project.layout.corpus / MANIFEST).exists():
            # `Corpus` would refuse captions that were edited, which `run` ingests again.
            splits = list(read_manifest(project.layout.corpus, "corpus").facts["splits"])
            split = split if split in splits else cast("Split", splits[0]) if len(splits) == 1 else "all"
    # Human judgements exist for COCO's val and test only.
    if project.namespace != "coco" or (split != "test" and split != "val"):
        return project, split, []
    judge = config.judge.model_copy(update={"split": split})
    project = replace(project, config=config.model_copy(update={"judge": judge}))
    return project, split, ["cxc", "eccv"] if split == "test" else ["cxc"]


def default_labels(project: Project, labels: Sequence[str], judged: bool) -> list[str]:
    """Return the named labels; without a name, all on a judged split, and `export.labels` on any other."""
    return list(labels) or (list(project.config.sources) if judged else labels_to_export(project, []))


def _note_without_exports(project: Project, labels: Sequence[str]) -> None:
    """Log why labels get no neighbours, if they are named, or no lookup."""
    for label in labels:
        if (reason := project.config.source(label).supports("neighbours")) is not None:
            project.runtime.progress.note(f"{label} has neither neighbours nor a lookup from `run`: {reason}")
    for label in labels_to_export(project, labels):
        if (reason := project.config.source(label).supports("lookup")) is not None:
            project.runtime.progress.note(f"{label} has no lookup: {reason}")


def _output_folders(layout: Layout, split: Split, tables: dict[str, Path]) -> dict[str, Path]:
    """Return the folders of a run in the order of the stages; `tables` are those of the reports."""
    scores = {"scores of judged pairs": layout.judgement(split)} if tables else {}
    folders = {"captions": layout.corpus, "labels": layout.encoding(split), **scores, **tables}
    return folders | {"neighbours": layout.neighbours(split, "captions"), "lookups": layout.lookup(split)}
