"""Relevance of the pairs that people judged in CxC, by the protocol of SAM (WACV 2022) and BCLS (arXiv 2210.11319).

SITS (caption c, image i): r(V_i, c), with the first five captions of i as references V_i. If i is the image of c, the
references include c, as in both papers. This raises the figure over all pairs (CIDEr-D: 0.74; 0.43 without c).

STS (captions c, d): r with c as the only reference and d as the candidate. If the source is not symmetric, the mean of
both orders.

SIS (images a, b): the references of b against those of a (`Relevance.set_pairs`). Most sources score every caption of b
against the references of a and pool over the captions of b as over references: the maximum for `max`, the mean for
`mean` and `set`, the first caption for `first`. If the source is not symmetric, the mean of both orders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.core.runtime import SILENT, Progress
from relabel.core.types import Rows, Scores
from relabel.corpus import Corpus, References
from relabel.datasets.cxc import METHODS, SIDES, TASKS, HumanScores, JudgedSplit, Side, Task, human_scores
from relabel.datasets.evaluation_sets import ALL
from relabel.sources.judged import find_items
from relabel.sources.relevance import Relevance
from relabel.store.workdir import Work

_BATCH = 8192  # pairs between two updates of the progress bar


@dataclass(frozen=True, eq=False)
class ScoredPairs:
    """Judged pairs of a task and their relevance.

    `relevance`: (P,) float64; NaN if there is none, with the reason in `missing`.
    `cluster`: (P,) int; image by which a pair is resampled, or -1 if unknown: the image (SITS), the image of the left
        caption (STS) or the left image (SIS).
    """

    human: HumanScores
    relevance: Scores
    missing: Sequence[str | None]
    cluster: Rows

    @cached_property
    def method(self) -> NDArray[np.str_]:
        """Sampling method of each pair."""
        return np.array(self.human.method)

    def subset(self, name: str) -> NDArray[np.bool_]:
        """Return the mask of the pairs of a subset: "all" or a sampling method."""
        return np.full(len(self.human), True) if name == ALL else np.asarray(self.method == name)

    @property
    def scored(self) -> NDArray[np.bool_]:
        """Mask of the pairs that have a relevance."""
        return ~np.isnan(self.relevance)

    def table(self) -> pa.Table:
        """Return the pairs as a table. A missing `relevance` and an unknown `cluster` are null."""
        human = self.human
        columns = {
            "left": human.left,
            "right": human.right,
            "human": human.score,
            "method": pa.array(human.method).dictionary_encode(),
            "relevance": pa.array(self.relevance, mask=~self.scored),
            "missing": pa.array(self.missing, pa.string()).dictionary_encode(),
            "cluster": pa.array(self.cluster, pa.int32(), mask=self.cluster < 0),
        }
        return pa.table(columns)

    @classmethod
    def of(cls, task: Task, split: JudgedSplit, table: pa.Table) -> ScoredPairs:
        """Convert a table from `table` back to pairs."""
        # Arrow converts dictionary values to Python ten times as slowly as strings.
        texts = (table[n].cast(pa.string()).to_pylist() for n in ("left", "right", "method", "missing"))
        left, right, method, missing = texts
        human = HumanScores(task, split, left, right, table["human"].to_numpy(), method)
        relevance = pc.fill_null(table["relevance"], float("nan")).to_numpy()
        return cls(human, relevance, missing, pc.fill_null(table["cluster"], -1).to_numpy())


def score_cxc(
    corpus: Corpus,
    relevance: Relevance,
    symmetric: bool,
    split: JudgedSplit,
    work: Work,
    progress: Progress = SILENT,
    *,
    leave_one_out: bool = False,
    tasks: Sequence[Task] = TASKS,
) -> None:
    """Score all judged pairs of CxC and write them to `sts-00000-of-00001.parquet`, ....

    `relevance`: the opened label, with its `pooling`. `symmetric`: True if its source is symmetric. `leave_one_out`:
    for SITS, remove the judged caption from its image's references.
    """
    scorer = _Scorer(corpus, relevance, symmetric, leave_one_out)

    def make(task: Task) -> pa.Table:
        return _score(scorer, human_scores(task, split), progress).table()

    for task in tasks:
        work.table(_file(task), partial(make, task))


def score_at_once(
    corpus: Corpus, relevance: Relevance, split: JudgedSplit, progress: Progress = SILENT, leave_one_out: bool = False
) -> dict[Task, ScoredPairs]:
    """Score all judged pairs in both orders, with one call of `Relevance.pairs` per task and order."""
    scorer = _Scorer(corpus, relevance, False, leave_one_out)
    return {task: _score(scorer, human_scores(task, split), progress, batch=1 << 31) for task in TASKS}


def read_cxc(folder: Path, split: JudgedSplit) -> dict[Task, ScoredPairs]:
    """Read the pairs that `score_cxc` wrote. Returns them by task, in the order of the human scores."""
    paths = {task: folder / _file(task) for task in TASKS}
    return {task: ScoredPairs.of(task, split, pq.read_table(path)) for task, path in paths.items() if path.exists()}


def sibling_std(folder: Path) -> float | None:
    """Return the standard deviation of relevance over STS pairs within an image, or None if there are no such pairs.

    BCLS (arXiv 2210.11319) uses it as alpha. `folder`: output folder of `score_cxc`.
    """
    if not (path := folder / _file("sts")).exists():
        return None
    method, relevance = pq.read_table(path, columns=["method", "relevance"]).columns
    siblings = relevance.filter(pc.equal(method.cast(pa.string()), METHODS["sts"][0])).drop_null()
    return float(np.std(siblings.to_numpy())) if len(siblings) else None


def _file(task: Task) -> str:
    return f"{task}-00000-of-00001.parquet"


@dataclass(frozen=True)
class _Scorer:
    """Relevance of pairs by the protocol of this module. Arguments are encoded rows or image numbers of the corpus."""

    corpus: Corpus
    relevance: Relevance
    symmetric: bool
    leave_one_out: bool

    def score(self, task: Task, left: Rows, right: Rows) -> Scores:
        if task == "sits":
            return self.sits(left, right)
        forward = self.one_order(task, left, right)
        # People scored these pairs without a direction.
        return forward if self.symmetric else (forward + self.one_order(task, right, left)) / 2

    def one_order(self, task: Task, left: Rows, right: Rows) -> Scores:
        if task == "sts":
            return self.relevance.pairs(References.single(left), right)
        return self.relevance.set_pairs(self.corpus.references(left), self.corpus.references(right))

    def sits(self, captions: Rows, images: Rows) -> Scores:
        references = self.corpus.references(images)
        if not self.leave_one_out:
            return self.relevance.pairs(references, captions)
        # An image with only the judged caption is left without references, and the pair gets NaN.
        remaining = references.rows != np.repeat(captions, np.diff(references.indptr))
        sizes = np.add.reduceat(remaining, references.indptr[:-1], dtype=np.int64)
        scored = sizes > 0
        indptr = np.concatenate([[0], np.cumsum(sizes[scored])])
        out = np.full(len(captions), np.nan)
        if scored.any():
            out[scored] = self.relevance.pairs(References(indptr, references.rows[remaining]), captions[scored])
        return out


def _score(scorer: _Scorer, human: HumanScores, progress: Progress, batch: int = _BATCH) -> ScoredPairs:
    """Score the judged pairs of a task in batches."""
    corpus, relevance = scorer.corpus, scorer.relevance
    kinds = SIDES[human.task]
    (left, why_left), (right, why_right) = (
        _locate(ids, kind, corpus, relevance) for ids, kind in zip((human.left, human.right), kinds, strict=True)
    )
    missing = [a or b for a, b in zip(why_left, why_right, strict=True)]
    complete = np.flatnonzero([reason is None for reason in missing])
    scores = np.full(len(human), np.nan)
    with progress.bar(f"{human.task} {human.split}", len(complete), "pairs") as bar:
        for a in range(0, len(complete), batch):
            chosen = complete[a : a + batch]
            scores[chosen] = scorer.score(human.task, left[chosen], right[chosen])
            bar.advance(len(chosen))
    # A source may return NaN for an encoded pair, for example if no reference remains.
    for i in np.flatnonzero(np.isnan(scores)):
        missing[i] = missing[i] or "relevance undefined"
    # The bootstrap resamples images, because the pairs of one image are not independent.
    owner, kind = (right, kinds[1]) if human.task == "sits" else (left, kinds[0])
    cluster = np.where(owner < 0, -1, corpus.image[owner]) if kind == "caption" else owner
    return ScoredPairs(human, scores, missing, cluster)


def _locate(ids: list[str], kind: Side, corpus: Corpus, relevance: Relevance) -> tuple[Rows, list[str | None]]:
    """Return the rows of captions or numbers of images, -1 if missing, and the reasons why items cannot be scored."""
    numbers, encoded = find_items(corpus, kind, ids), relevance.rows
    # A split contains only complete images, so an image is encoded if its first caption is.
    first = numbers if kind == "caption" else np.where(numbers < 0, -1, corpus.indptr[:-1][numbers])
    reason: list[str | None] = [None] * len(ids)
    for i in np.flatnonzero((first < encoded.start) | (first >= encoded.stop)):
        reason[i] = f"{kind} not in the corpus" if numbers[i] < 0 else f"{kind} not encoded"
    for i in np.flatnonzero(np.isin(numbers, relevance.failed)) if kind == "caption" else ():
        reason[i] = "caption could not be encoded"
    return numbers, reason
