"""Judged pairs of CxC's val split, and the features that parts compute for them, by the protocol of evaluation.

SITS compares a caption with the first five captions of an image, which may include itself. STS compares a caption with
another one as its only reference, in both directions. `relabel.judge.cxc` implements the same protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.core.errors import CheckError
from relabel.core.progress import Progress
from relabel.core.types import Rows, Scores
from relabel.corpus import Corpus, References
from relabel.datasets.cxc import HumanScores, human_scores
from relabel.sources.base import Source
from relabel.sources.fuse.features import SINGLE_POOLINGS, Feature, FeaturePooling, pair_features
from relabel.sources.relevance import Relevance

Task = Literal["sits", "sts"]
TASKS: tuple[Task, ...] = ("sits", "sts")
OUT_OF_FOLD = "out_of_fold.parquet"
"""File in the folder of a model that was tuned on val: predictions by models that had not seen a pair's images."""
_STEP = 2048  # pairs between two updates of the progress bar


@dataclass(frozen=True, eq=False)
class JudgedPairs:
    """Judged pairs of one task.

    Attributes
    ----------
    task : "sits" or "sts"
    human : HumanScores
    left, right : (P,) int32
        Rows of captions; the right sides of SITS are numbers of images.
    images : (P, 2) int32
        Images of both sides.
    """

    task: Task
    human: HumanScores
    corpus: Corpus
    left: Rows
    right: Rows

    @classmethod
    def of(cls, task: Task, corpus: Corpus) -> JudgedPairs:
        """Find the pairs of val in a corpus.

        Raises
        ------
        CheckError
            If the corpus lacks a caption or image of a pair.
        """
        human = human_scores(task, "val")
        right_of = corpus.image_of if task == "sits" else corpus.row_of
        try:
            left = [corpus.row_of[i] for i in human.left]
            right = [right_of[i] for i in human.right]
        except KeyError as error:
            message = f"the corpus lacks {error.args[0]}, which has human scores"
            raise CheckError(message, todo="Ingest COCO's captions with Karpathy's val split.") from error
        return cls(task, human, corpus, np.array(left, np.int32), np.array(right, np.int32))

    @cached_property
    def images(self) -> NDArray[np.int32]:
        """Images of both sides of each pair, (P, 2) int32."""
        image = self.corpus.image
        return np.stack([image[self.left], self.right if self.task == "sits" else image[self.right]], axis=1)

    @property
    def directions(self) -> list[tuple[References, Rows]]:
        """Reference sets and captions to score: one direction for SITS, both for STS."""
        if self.task == "sits":
            return [(self.corpus.references(self.right), self.left)]
        return [(References.single(a), b) for a, b in ((self.left, self.right), (self.right, self.left))]

    def table(
        self, label: str, relevance: Relevance, poolings: Sequence[FeaturePooling], progress: Progress
    ) -> pa.Table:
        """Compute the features of a part: one column per pooling and direction (`max 0`), one row per pair."""
        features = [Feature(label, pooling) for pooling in poolings]
        columns: dict[str, Scores] = {}
        title = f"{label}, {self.task} val"
        with progress.bar(title, len(self.left) * len(self.directions), "pairs") as bar:
            for direction, (references, captions) in enumerate(self.directions):
                pieces = []
                for a in range(0, len(captions), _STEP):
                    batch = np.arange(a, min(a + _STEP, len(captions)))
                    pieces.append(pair_features({label: relevance}, features, references.take(batch), captions[batch]))
                    bar.advance(len(batch))
                columns |= {
                    f"{f.pooling} {direction}": v for f, v in zip(features, np.concatenate(pieces).T, strict=True)
                }
        return pa.table(columns)

    def out_of_fold(self, path: Path, poolings: Sequence[FeaturePooling]) -> pa.Table:
        """Read the features of a part that was itself tuned on val; NaN for pairs between folds.

        Raises
        ------
        CheckError
            If the file lacks a column, or has no judged pair of val.
        """
        table = pq.read_table(path)
        if missing := {"task", "left", "right", *poolings} - set(table.column_names):
            raise CheckError(f"no column {', '.join(sorted(missing))}", where=str(path), todo="Tune the model again.")
        names = ("task", "left", "right")
        keys = zip(*(table[name].cast(pa.string()).to_pylist() for name in names), strict=True)
        row_of = {key: i for i, key in enumerate(keys)}
        pairs = ((self.task, a, b) for a, b in zip(self.human.left, self.human.right, strict=True))
        at = np.fromiter((row_of.get(key, -1) for key in pairs), np.int64, len(self.left))
        if (at < 0).all():
            raise CheckError(f"no judged pair of {self.task} val", where=str(path), todo="Tune the model again.")
        # Both directions get the same columns: such a file has one prediction per pair.
        columns = {pooling: np.where(at < 0, np.nan, table[pooling].to_numpy()[at]) for pooling in poolings}
        return pa.table(
            {
                f"{pooling} {direction}": columns[pooling]
                for direction in range(len(self.directions))
                for pooling in poolings
            }
        )


def poolings_of(source: Source[Any], task: Task) -> tuple[FeaturePooling, ...]:
    """Return the poolings of a part's features.

    Examples
    --------
    >>> from relabel.sources.cider import Cider, CiderParams
    >>> from relabel.sources.fuse.tune_data import poolings_of
    >>> source = Cider(CiderParams())
    >>> poolings_of(source, "sits"), poolings_of(source, "sts")
    (('refs', 'max', 'second'), ('max',))
    """
    # A single reference has one score under every pooling. A source that scores the set itself is read by that score in
    # place of the mean, and by nothing else if it scores pair by pair, which is slow.
    if task == "sts":
        return ("max",)
    if "refs" in source.spec.refused_poolings:
        return SINGLE_POOLINGS
    return ("refs",) if source.is_pairwise() else ("refs", "max", "second")


def read_features(table: pa.Table, poolings: Sequence[FeaturePooling], directions: int) -> Scores:
    """Read a table of `JudgedPairs.table` as an array, (directions, P, len(poolings)) float64."""
    return np.stack(
        [
            np.stack([table[f"{pooling} {direction}"].to_numpy() for pooling in poolings], axis=1)
            for direction in range(directions)
        ]
    )
