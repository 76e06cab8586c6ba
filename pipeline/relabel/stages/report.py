"""report: the figures of labels, their relevance and their neighbours, in one HTML page."""

from __future__ import annotations

from collections.abc import Sequence

from relabel import stages
from relabel.neighbours.spec import Within as Split
from relabel.stages.correlate import EvaluationResult, correlate
from relabel.stages.page import add_page
from relabel.stages.project import Project
from relabel.stages.run import default_labels, encode_labels, resolve_split


def report(project: Project, split: Split | None = None, labels: Sequence[str] = ()) -> EvaluationResult:
    """Write the HTML page of a split, and the tables that it shows.

    Encodings and judgements that do not exist yet are built, as by `correlate`. On COCO's val and test the page shows
    agreement with CxC, and on test with ECCV Caption. Other splits and datasets have no human judgements of their
    captions. Sets of texts that were judged before are shown for every dataset.

    `split`: by default `judge.split`, or the only split of the corpus. `labels`: names in params.yaml. If empty, every
    label on a judged split, and `export.labels` on any other. The page of other labels or parameters than those of the
    file has a folder beside ``page/SPLIT``. Returns EvaluationResult: ``paths["report"]`` is the file. Labels that
    could not be built are among `problems`.
    """
    project, split, against = resolve_split(project, split, labels)
    stages.fetch_and_ingest(project)
    result = correlate(project, labels, against) if against else encode_labels(project, split, labels)
    add_page(project, split, labels, default_labels(project, labels, judged=bool(against)), result)
    return result
