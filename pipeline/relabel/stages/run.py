"""run: all stages in order, for one split of a dataset."""

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
from relabel.stages.correlate import Against, EvaluationResult, correlate
from relabel.stages.page import add_page
from relabel.store.manifest import MANIFEST


def run(
    project: Project, split: Split | None = None, labels: Sequence[str] = (), mirror: Path | None = None
) -> EvaluationResult:
    """Run all stages for one split of a dataset; finished work is not repeated.

    The stages are fetch, ingest, tune and encode; judge and correlate on judged splits (val and test of COCO); then
    neighbours, a lookup for training, indexes of faiss for labels of vectors, and the report. A label that lacks
    something (Java, a model, vectors) is left out and named; all others are built.

    `split`: by default `judge.split`, or the only split of the corpus. `labels`: labels to build. If empty, every label
    on a judged split, and `export.labels` on any other. `mirror`: folder of files that are used instead of a download.
    """
    project, split, against = resolve_split(project, split, labels)
    stages.fetch_and_ingest(project, mirror)
    outcome = correlate(project, labels, against) if against else encode_labels(project, split, labels)
    left_out = {label for label, _ in outcome.problems}
    _note_without_neighbours(project, labels)
    for label in labels_to_export(project, labels):
        if label not in left_out:
            try:
                _search_and_export(project, split, label)
            except RelabelError as error:
                outcome.problems.append((label, error))
    # The page comes after the neighbours, which it reads.
    add_page(project, split, labels, default_labels(project, labels, judged=bool(against)), outcome)
    # Encodings with failed rows are used, and reported at the end.
    outcome.problems += stages.find_failed_rows(project, labels or project.config.sources, split)
    outcome.paths = _output_folders(project.layout, split, outcome.paths)
    return outcome


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
            splits = tuple(project.corpus.splits)
            split = split if split in splits else cast("Split", splits[0]) if len(splits) == 1 else "all"
    # Human judgements exist for COCO's val and test only.
    if project.namespace != "coco" or (split != "test" and split != "val"):
        return project, split, []
    judge = config.judge.model_copy(update={"split": split})
    project = replace(project, config=config.model_copy(update={"judge": judge}))
    return project, split, ["cxc", "eccv"] if split == "test" else ["cxc"]


def _note_without_neighbours(project: Project, labels: Sequence[str]) -> None:
    """Log why named labels get neither neighbours nor a lookup."""
    for label in labels:
        if (reason := project.config.source(label).supports("neighbours")) is not None:
            project.runtime.progress.note(f"{label} has neither neighbours nor a lookup from `run`: {reason}")


def default_labels(project: Project, labels: Sequence[str], judged: bool) -> list[str]:
    """Return the named labels; without a name, all on a judged split, and `export.labels` on any other."""
    return list(labels) or (list(project.config.sources) if judged else labels_to_export(project, []))


def encode_labels(project: Project, split: Split, labels: Sequence[str]) -> EvaluationResult:
    """Encode labels of a split without judgements."""
    outcome, names = EvaluationResult(), default_labels(project, labels, judged=False)
    for label in names:
        try:
            stages.build_encoding(project, label, split)
        except RelabelError as error:
            outcome.problems.append((label, error))
    if outcome.problems and len(outcome.problems) == len(names):
        raise outcome.problems[0][1]
    return outcome


def _search_and_export(project: Project, split: Split, label: str) -> None:
    """Find neighbours of captions within the split, and write the lookup and, for vectors, the indexes of faiss."""
    stages.neighbours(project, label, split, "captions", split).build()
    if (reason := project.config.source(label).supports("lookup")) is None:
        stages.export_lookup(project, label, split).build()
    else:
        project.runtime.progress.note(f"{label} has no lookup: {reason}")
    if project.config.source(label).spec.kind == "vectors":
        stages.export(project, "faiss", label, split).build()


def _output_folders(layout: Layout, split: Split, judged: dict[str, Path]) -> dict[str, Path]:
    """Return the folders of a run in the order of the stages; `judged` holds those of the report, if there is one."""
    folders = {"captions": layout.corpus, "labels": layout.encoding(split)}
    if tables := {name: path for name, path in judged.items() if name != "report"}:
        folders |= {"scores of judged pairs": layout.judgement(split), **tables}
    folders |= {"neighbours": layout.neighbours(split, "captions"), "lookups": layout.lookup(split)}
    # The report is the file to open, so it comes last.
    return folders | {name: path for name, path in judged.items() if name == "report"}
