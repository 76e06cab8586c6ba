"""CxC val's judged pairs as a fuse sees them: the features that its parts give them, by the judge's protocol.

SITS: a caption against the first five captions of an image, itself among them where it is one. STS: a caption against
another as its only reference, both ways round. See `relabel.judge.cxc`.
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
from relabel.sources.fuse.features import SINGLES, Feature, Look, of_pairs
from relabel.sources.relevance import Relevance

Task = Literal["sits", "sts"]
TASKS: tuple[Task, ...] = ("sits", "sts")
OUT_OF_FOLD = "out_of_fold.parquet"
"""In the folder of a model that was itself tuned on val: what models that had not seen a pair's images make of it."""
_STEP = 2048  # pairs between two moves of the bar


@dataclass(frozen=True, eq=False)
class Judged:
    """The pairs of one task.

    Attributes
    ----------
    task : "sits" or "sts"
    human : HumanScores
    left, right : (P,) int32
        Captions by row; SITS's right sides are images by number.
    images : (P, 2) int32
        The images of both sides.
    """

    task: Task
    human: HumanScores
    corpus: Corpus
    left: Rows
    right: Rows

    @classmethod
    def of(cls, task: Task, corpus: Corpus) -> Judged:
        """Find the pairs of val in a corpus.

        Raises
        ------
        CheckError
            If the corpus lacks one.
        """
        human = human_scores(task, "val")
        known = corpus.image_of if task == "sits" else corpus.row_of
        try:
            left = [corpus.row_of[i] for i in human.left]
            right = [known[i] for i in human.right]
        except KeyError as error:
            what = f"the corpus lacks {error.args[0]}, which people judged"
            raise CheckError(what, todo="Ingest COCO's captions with Karpathy's val split.") from error
        return cls(task, human, corpus, np.array(left, np.int32), np.array(right, np.int32))

    @cached_property
    def images(self) -> NDArray[np.int32]:
        """See the class."""
        image = self.corpus.image
        return np.stack([image[self.left], self.right if self.task == "sits" else image[self.right]], axis=1)

    @property
    def ways(self) -> list[tuple[References, Rows]]:
        """The sets and captions that are scored: one way for SITS, both for STS."""
        if self.task == "sits":
            return [(self.corpus.references(self.right), self.left)]
        return [(References.single(a), b) for a, b in ((self.left, self.right), (self.right, self.left))]

    def table(self, label: str, relevance: Relevance, looks: Sequence[Look], progress: Progress) -> pa.Table:
        """Ask a part: one column a pooling and way (`max 0`), one row a pair."""
        features = [Feature(label, look) for look in looks]
        columns: dict[str, Scores] = {}
        title = f"{label}, {self.task} val"
        with progress.bar(title, len(self.left) * len(self.ways), "pairs") as bar:
            for way, (references, captions) in enumerate(self.ways):
                found = []
                for a in range(0, len(captions), _STEP):
                    some = np.arange(a, min(a + _STEP, len(captions)))
                    found.append(of_pairs({label: relevance}, features, references.take(some), captions[some]))
                    bar.advance(len(some))
                columns |= {f"{f.pooling} {way}": v for f, v in zip(features, np.concatenate(found).T, strict=True)}
        return pa.table(columns)

    def out_of_fold(self, path: Path, looks: Sequence[Look]) -> pa.Table:
        """Read the same of a part that was itself tuned on val; NaN for pairs that its folds cut through.

        Raises
        ------
        CheckError
            If the file lacks a column, or has no pair of val.
        """
        table = pq.read_table(path)
        if missing := {"task", "left", "right", *looks} - set(table.column_names):
            raise CheckError(f"no column {', '.join(sorted(missing))}", where=str(path), todo="Tune the model again.")
        names = ("task", "left", "right")
        keys = zip(*(table[name].cast(pa.string()).to_pylist() for name in names), strict=True)
        place = {key: i for i, key in enumerate(keys)}
        mine = ((self.task, a, b) for a, b in zip(self.human.left, self.human.right, strict=True))
        at = np.fromiter((place.get(key, -1) for key in mine), np.int64, len(self.left))
        if (at < 0).all():
            raise CheckError(f"no judged pair of {self.task} val", where=str(path), todo="Tune the model again.")
        columns = {look: np.where(at < 0, np.nan, table[look].to_numpy()[at]) for look in looks}
        return pa.table({f"{look} {way}": columns[look] for way in range(len(self.ways)) for look in looks})


def looks_of(source: Source[Any], task: Task) -> tuple[Look, ...]:
    """Say how a part is looked at. A single reference has one score, whatever the pooling.

    A source that takes the set itself is asked for that, in place of the mean; if it scores pair by pair, which is
    slow, for nothing else.
    """
    if task == "sts":
        return ("max",)
    if "refs" in source.spec.refused_poolings:
        return SINGLES
    return ("refs",) if source.is_pairwise() else ("refs", "max", "second")


def values_of(table: pa.Table, looks: Sequence[Look], ways: int) -> Scores:
    """Read a table of `Judged.table` as (ways, P, len(looks)) float64."""
    return np.stack([np.stack([table[f"{look} {way}"].to_numpy() for look in looks], axis=1) for way in range(ways)])
