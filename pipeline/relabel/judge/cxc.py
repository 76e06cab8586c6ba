"""Relevance of CxC's human-judged pairs, by the papers' protocol (SAM, WACV 2022; BCLS, arXiv 2210.11319).

SITS (caption c, image i): r(V_i, c), the references being the first five captions of i. c itself stays among them where
i is its own image, as in both papers, which makes the all-pairs figure high (CIDEr-D: 0.74, without c 0.43).

STS (captions c, d): r with c as the only reference and d as the candidate; the mean of both orders where the source is
not symmetric.

SIS (images a, b): the references of b against those of a (`Relevance.set_pairs`). As a rule every caption of b against
the reference set of a, then pooled over the captions of b as over the references: max for `max`, mean for `mean` and
`set`, the first alone for `first`. The mean of both orders where the source is not symmetric.
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

_BATCH = 8192  # pairs between two advances of the bar


@dataclass(frozen=True, eq=False)
class ScoredPairs:
    """Judged pairs of a task and their relevance.

    `relevance`: (P,) float64; NaN where `missing` has the reason.
    `cluster`: (P,) int; image under which a pair is resampled, -1 where it is unknown: SITS the image, STS the left
        caption's image, SIS the left image.
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
        """Return the mask of a subset's pairs: "all" or a sampling method."""
        return np.full(len(self.human), True) if name == ALL else np.asarray(self.method == name)

    @property
    def scored(self) -> NDArray[np.bool_]:
        """Mask of the pairs that have a relevance."""
        return ~np.isnan(self.relevance)

    def table(self) -> pa.Table:
        """Return the pairs as a table: `relevance` is null where `missing` says why, and so is an unknown `cluster`."""
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
        """Read a table that `table` returned."""
        # A dictionary's values are turned into Python's one by one, ten times as slowly as texts.
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
    """Write the relevance of every judged pair: `sts-00000-of-00001.parquet`, ....

    `relevance`: the opened label, with its `pooling`. `symmetric`: whether its source is. `leave_one_out`: SITS: leave
    the judged caption out of its own image's references.
    """
    scorer = _Scorer(corpus, relevance, symmetric, leave_one_out)

    def make(task: Task) -> pa.Table:
        return _score(scorer, human_scores(task, split), progress).table()

    for task in tasks:
        work.table(_file(task), partial(make, task))


def score_at_once(
    corpus: Corpus, relevance: Relevance, split: JudgedSplit, progress: Progress = SILENT, leave_one_out: bool = False
) -> dict[Task, ScoredPairs]:
    """Score every judged pair, in both orders, by one call of `Relevance.pairs` per task and order."""
    scorer = _Scorer(corpus, relevance, False, leave_one_out)
    return {task: _score(scorer, human_scores(task, split), progress, batch=1 << 31) for task in TASKS}


def read_cxc(folder: Path, split: JudgedSplit) -> dict[Task, ScoredPairs]:
    """Read the pairs that `score_cxc` wrote, by task, in the order of the human scores."""
    paths = {task: folder / _file(task) for task in TASKS}
    return {task: ScoredPairs.of(task, split, pq.read_table(path)) for task, path in paths.items() if path.exists()}


def sibling_std(folder: Path) -> float | None:
    """Return the standard deviation of relevance over STS pairs of two captions of one image; None without such pairs.

    BCLS sets alpha to it (arXiv 2210.11319). `folder`: where `score_cxc` wrote.
    """
    if not (path := folder / _file("sts")).exists():
        return None
    method, relevance = pq.read_table(path, columns=["method", "relevance"]).columns
    own = relevance.filter(pc.equal(method.cast(pa.string()), METHODS["sts"][0])).drop_null()
    return float(np.std(own.to_numpy())) if len(own) else None


def _file(task: Task) -> str:
    return f"{task}-00000-of-00001.parquet"


@dataclass(frozen=True)
class _Scorer:
    """Relevance of pairs by the protocol of this module. Arguments are encoded rows and images of the corpus."""

    corpus: Corpus
    relevance: Relevance
    symmetric: bool
    leave_one_out: bool

    def score(self, task: Task, left: Rows, right: Rows) -> Scores:
        if task == "sits":
            return self.sits(left, right)
        forward = self.one_order(task, left, right)
        # The human score of such a pair has no direction, so neither has its relevance.
        return forward if self.symmetric else (forward + self.one_order(task, right, left)) / 2

    def one_order(self, task: Task, left: Rows, right: Rows) -> Scores:
        if task == "sts":
            return self.relevance.pairs(References.single(left), right)
        return self.relevance.set_pairs(self.corpus.references(left), self.corpus.references(right))

    def sits(self, captions: Rows, images: Rows) -> Scores:
        references = self.corpus.references(images)
        if not self.leave_one_out:
            return self.relevance.pairs(references, captions)
        # Without the judged caption, an image of one caption has no references, and its pair no score.
        remaining = references.rows != np.repeat(captions, np.diff(references.indptr))
        sizes = np.add.reduceat(remaining, references.indptr[:-1], dtype=np.int64)
        scored = sizes > 0
        indptr = np.concatenate([[0], np.cumsum(sizes[scored])])
        out = np.full(len(captions), np.nan)
        if scored.any():
            out[scored] = self.relevance.pairs(References(indptr, references.rows[remaining]), captions[scored])
        return out


def _score(scorer: _Scorer, human: HumanScores, progress: Progress, batch: int = _BATCH) -> ScoredPairs:
    """Score the judged pairs of a task, in batches."""
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
    # A source may have no score for a complete pair, for example where no reference remains.
    for i in np.flatnonzero(np.isnan(scores)):
        missing[i] = missing[i] or "relevance undefined"
    # The bootstrap resamples images, since the pairs of one image are not independent.
    owner, kind = (right, kinds[1]) if human.task == "sits" else (left, kinds[0])
    cluster = np.where(owner < 0, -1, corpus.image[owner]) if kind == "caption" else owner
    return ScoredPairs(human, scores, missing, cluster)


def _locate(ids: list[str], kind: Side, corpus: Corpus, relevance: Relevance) -> tuple[Rows, list[str | None]]:
    """Return rows of captions or numbers of images, -1 where the corpus lacks one, and why an item cannot be scored."""
    numbers, encoded = find_items(corpus, kind, ids), relevance.rows
    # A split is a run of rows of complete images, so an image is encoded where its first caption is.
    first = numbers if kind == "caption" else np.where(numbers < 0, -1, corpus.indptr[:-1][numbers])
    reason: list[str | None] = [None] * len(ids)
    for i in np.flatnonzero((first < encoded.start) | (first >= encoded.stop)):
        reason[i] = f"{kind} not in the corpus" if numbers[i] < 0 else f"{kind} not encoded"
    for i in np.flatnonzero(np.isin(numbers, relevance.failed)) if kind == "caption" else ():
        reason[i] = "caption could not be encoded"
    return numbers, reason
