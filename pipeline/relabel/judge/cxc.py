"""Relevance of CxC's human-judged pairs, by the papers' protocol (SAM, WACV 2022; BCLS, arXiv 2210.11319).

SITS (caption c, image i): r(V_i, c), the references being the first five captions of i. c itself stays among them where
i is its own image, as in both papers, which makes the all-pairs figure high (CIDEr-D: 0.74, without c 0.43).

STS (captions c, d): r with c as the only reference and d as the candidate; the mean of both orders where the source is
not symmetric.

SIS (images a, b): the references of b against those of a (`Relevance.set_pairs`). As a rule every caption of b against
the reference set of a, then pooled over the captions of b as over the references: max for `max`, mean for `mean` and
`refs`, the first alone for `paired`. The mean of both orders where the source is not symmetric.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from relabel.core.runtime import SILENT, Advance, Progress
from relabel.core.types import Rows, Scores
from relabel.corpus import Corpus, References
from relabel.datasets.cxc import SIDES, TASKS, HumanScores, Side, Split, Task, human_scores
from relabel.sources.base import Source
from relabel.sources.relevance import Relevance
from relabel.store.workdir import Work

SCHEMA = pa.schema(
    [
        pa.field("left", pa.string(), nullable=False),
        pa.field("right", pa.string(), nullable=False),
        pa.field("human", pa.float64(), nullable=False),
        pa.field("method", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("relevance", pa.float64()),
        pa.field("missing", pa.dictionary(pa.int32(), pa.string())),
        pa.field("cluster", pa.int32()),
    ]
)
"""`relevance` is null where `missing` says why. `cluster` is the corpus's number of the image that a pair counts under
in the bootstrap: SITS the image, STS the left caption's image, SIS the left image; null where the corpus lacks it."""

SHOWN = 5
_BATCH = 8192  # pairs between two advances of the bar


def score_cxc(
    corpus: Corpus,
    relevance: Relevance,
    source: Source[Any] | type[Source[Any]],
    split: Split,
    work: Work,
    progress: Progress = SILENT,
    *,
    include_self: bool = True,
    tasks: Sequence[Task] = TASKS,
) -> None:
    """Write the relevance of every judged pair: `sts-00000-of-00001.parquet`, ... with `SCHEMA`.

    `relevance`: the opened label, with its `pooling`. `source`: source of the label. `work`: ``work.facts["cxc"]``
    counts the pairs that could not be scored and names the first few. `include_self`: SITS: keep the judged caption
    among its own image's references.
    """
    scorer = _Scorer(corpus, relevance, source.spec.symmetric, include_self)
    missing: dict[str, Any] = {}
    for task in tasks:
        human = human_scores(task, split)
        pairs = _JudgedPairs.of(human, corpus, relevance.rows, relevance.failed)
        missing[task] = pairs.missing()
        if count := missing[task]["count"]:
            first = ", ".join(missing[task]["first"])
            progress.note(f"{task}: {count:,} of {len(human):,} pairs cannot be scored: {first}, ...")
        complete = np.flatnonzero([reason is None for reason in pairs.reason])
        references, captions = scorer.caption_pairs(task, pairs.left[complete], pairs.right[complete])
        # A source with a limit refuses too many pairs before any is scored.
        relevance.pairs_to_score(references, captions, len(captions))
        with progress.bar(f"{task} {split}", len(human), "pairs") as bar:
            work.table(_file(task), partial(_table, pairs, scorer.of(task), bar.advance))
    work.facts["cxc"] = {"split": split, "include_self": include_self, "missing": missing}


def read_cxc(folder: Path) -> dict[Task, pa.Table]:
    """Read the tables that `score_cxc` wrote, one per task, in the order of the human scores."""
    return {task: pq.read_table(folder / _file(task)) for task in TASKS if (folder / _file(task)).exists()}


def _file(task: Task) -> str:
    return f"{task}-00000-of-00001.parquet"


class _JudgedPairs:
    """Judged pairs of a task as rows (captions) and numbers (images) of a corpus; -1 where the corpus lacks one."""

    def __init__(self, human: HumanScores, left: Rows, right: Rows, cluster: Rows, reason: list[str | None]) -> None:
        self.human, self.left, self.right, self.cluster, self.reason = human, left, right, cluster, reason

    @classmethod
    def of(cls, human: HumanScores, corpus: Corpus, encoded: range, failed: Rows) -> _JudgedPairs:
        sides = [
            _locate(ids, side, corpus, encoded, failed)
            for ids, side in zip((human.left, human.right), SIDES[human.task], strict=True)
        ]
        (left, why_left), (right, why_right) = sides
        # The bootstrap resamples images, since the pairs of one image are not independent: a caption counts under its
        # image.
        owner, side = (right, "image") if human.task == "sits" else (left, SIDES[human.task][0])
        image = np.where(owner < 0, -1, corpus.image[owner]) if side == "caption" else owner
        reason = [a or b for a, b in zip(why_left, why_right, strict=True)]
        return cls(human, left, right, image.astype(np.int32), reason)

    def missing(self) -> dict[str, Any]:
        """Count the pairs that cannot be scored and name the first few."""
        index = [i for i, reason in enumerate(self.reason) if reason]
        first = [f"{self.human.left[i]} {self.human.right[i]} ({self.reason[i]})" for i in index[:SHOWN]]
        return {"count": len(index), "first": first}


def _locate(ids: list[str], side: Side, corpus: Corpus, encoded: range, failed: Rows) -> tuple[Rows, list[str | None]]:
    lookup = corpus.row_of if side == "caption" else corpus.image_of
    numbers = np.fromiter((lookup.get(i, -1) for i in ids), np.int32, len(ids))
    # A split is a run of rows of complete images, so an image is encoded where its first caption is.
    first = numbers if side == "caption" else np.where(numbers < 0, -1, corpus.indptr[:-1][numbers])
    reason: list[str | None] = [None] * len(ids)
    for i in np.flatnonzero((first < encoded.start) | (first >= encoded.stop)):
        reason[i] = f"{side} not in the corpus" if numbers[i] < 0 else f"{side} not encoded"
    for i in np.flatnonzero(np.isin(numbers, failed)) if side == "caption" else ():
        reason[i] = "caption could not be encoded"
    return numbers, reason


class _Scorer:
    """Relevance of pairs by the protocol of this module. Arguments are encoded rows and images of the corpus."""

    def __init__(self, corpus: Corpus, relevance: Relevance, symmetric: bool, include_self: bool) -> None:
        self.corpus, self.relevance, self.symmetric, self.include_self = corpus, relevance, symmetric, include_self

    def of(self, task: Task) -> Callable[[Rows, Rows], Scores]:
        return {"sts": self.sts, "sits": self.sits, "sis": self.sis}[task]

    def caption_pairs(self, task: Task, left: Rows, right: Rows) -> tuple[References, Rows]:
        """Return the reference sets and captions of which judged pairs consist."""
        if task == "sts":
            return References.single(left), right
        if task == "sits":
            return self.corpus.references(right), left
        sets, others = self.corpus.references(left), self.corpus.references(right)
        return sets.take(np.repeat(np.arange(len(right)), np.diff(others.indptr))), others.rows

    def sts(self, left: Rows, right: Rows) -> Scores:
        return self._symmetrised(lambda a, b: self.relevance.pairs(References.single(a), b), left, right)

    def sits(self, captions: Rows, images: Rows) -> Scores:
        references = self.corpus.references(images)
        if self.include_self:
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

    def sis(self, left: Rows, right: Rows) -> Scores:
        return self._symmetrised(self._set_against_set, left, right)

    def _set_against_set(self, a: Rows, b: Rows) -> Scores:
        return self.relevance.set_pairs(self.corpus.references(a), self.corpus.references(b))

    def _symmetrised(self, score: Callable[[Rows, Rows], Scores], left: Rows, right: Rows) -> Scores:
        # The human score of such a pair has no direction, so neither has its relevance.
        return score(left, right) if self.symmetric else (score(left, right) + score(right, left)) / 2


def _table(pairs: _JudgedPairs, score: Callable[[Rows, Rows], Scores], advance: Advance) -> pa.Table:
    human, reason = pairs.human, [*pairs.reason]
    relevance = np.full(len(human), np.nan)
    for a in range(0, len(human), _BATCH):
        batch = range(a, min(a + _BATCH, len(human)))
        # Pairs with an item outside the corpus have their reason already.
        complete = np.array([i for i in batch if pairs.reason[i] is None], np.int64)
        if len(complete):
            relevance[complete] = score(pairs.left[complete], pairs.right[complete])
        advance(len(batch))
    # A source may have no score for a complete pair, for example where no reference remains.
    for i in np.flatnonzero(np.isnan(relevance)):
        reason[i] = reason[i] or "relevance undefined"
    return pair_table(human, relevance, reason, pairs.cluster)


def pair_table(human: HumanScores, relevance: Scores, reason: list[str | None], cluster: Rows) -> pa.Table:
    """Return scored pairs with `SCHEMA`: relevance NaN and cluster -1 are null there."""
    return pa.table(
        {
            "left": human.left,
            "right": human.right,
            "human": human.score,
            "method": pa.array(human.method).dictionary_encode(),
            "relevance": pa.array(relevance, mask=np.isnan(relevance)),
            "missing": pa.array(reason, pa.string()).dictionary_encode(),
            "cluster": pa.array(cluster, mask=cluster < 0),
        },
        schema=SCHEMA,
    )
