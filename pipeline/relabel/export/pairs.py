"""Scored pairs and tuples of captions, drawn for the losses of sentence-transformers.

Candidates of an anchor are its nearest captions if the label has neighbours, other captions of its image, and random
captions of the split, drawn in turn. Random captions alone would hardly ever be relevant.

For pairs, the range between the least and the largest score of the candidates is divided into bins of equal width.
Equally many pairs are drawn from each bin. Bins with fewer pairs give all of theirs, and the others give more.

A tuple has an anchor, a positive and negatives. The candidate of highest relevance is the positive. The other
candidates, ordered by relevance, are divided into as many groups as there are negatives, and one is drawn from each
group.

Each file has its own random generator and its own anchors, so that any file can be made again by itself.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.errors import UsageError
from relabel.core.types import Rows, Scores
from relabel.corpus import Corpus, References
from relabel.export.base import Export, ExportInputs, shards
from relabel.export.neighbours import NeighbourTable, read_neighbours
from relabel.export.params import ExportPairsParams, ExportSamplesParams, ExportTuplesParams
from relabel.sources.relevance import Relevance
from relabel.store.workdir import Work

_DEPTH = 32  # nearest captions from which neighbours are drawn

S = TypeVar("S", bound=ExportSamplesParams)


@dataclass(frozen=True, eq=False)
class CandidatePool:
    """Captions that are drawn as candidates of an anchor: neighbours, captions of its image, and random ones."""

    corpus: Corpus
    relevance: Relevance
    rows: range
    near: NeighbourTable | None

    def draw(self, anchors: Rows, count: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
        """Draw `count` candidates per anchor, the kinds in turn, among them perhaps the anchor itself.

        Returns `left, right`, (A * count,) int32: anchor and candidate of each pair.
        """
        left = np.repeat(anchors, count)
        right = rng.integers(self.rows.start, self.rows.stop, len(left), dtype=np.int32)
        turn = np.tile(np.arange(count), len(anchors)) % (2 if self.near is None else 3)
        # Turn 0 keeps the random caption; turn 1 is a caption of the same image.
        sibling = np.flatnonzero(turn == 1)
        image = self.corpus.image[left[sibling]]
        right[sibling] = rng.integers(self.corpus.indptr[image], self.corpus.indptr[image + 1])
        if self.near is not None:
            slot = np.flatnonzero(turn == 2)
            near = self.near.rows[left[slot] - self.near.first, rng.integers(0, self.near.width, len(slot))]
            # Neighbours within all captions may lie outside the split: the random caption stays in their place.
            inside = (near >= self.rows.start) & (near < self.rows.stop)
            right[slot[inside]] = near[inside]
        return left, right

    def score(self, left: Rows, right: Rows) -> Scores:
        """Score captions with one caption each as the only reference."""
        return self.relevance.pairs(References.single(left), right, "first")

    def table(self, texts: dict[str, Rows], scores: dict[str, pa.Array], ids: Sequence[str]) -> pa.Table:
        """Return the texts of some rows by column, their scores, and the ids of the texts under other names."""

        def values(column: str, names: Iterable[str]) -> dict[str, pa.Array]:
            taken = (self.corpus.table[column].take(pa.array(rows)) for rows in texts.values())
            return dict(zip(names, taken, strict=True))

        return pa.table(values("text", texts) | scores | values("caption_id", ids))


class SamplesExport(Export[S]):
    """Parquet files ``data/SPLIT-00000-of-000NN.parquet``, each of them drawn with its own anchors and generator.

    Ids follow the columns that sentence-transformers reads, in columns of their own.
    """

    neighbours_of = "captions"
    least = 2
    """Captions that a split must have."""

    @override
    def check(self, inputs: ExportInputs) -> None:
        # Captions are compared with captions, so the label must score single references.
        inputs.source.check_pooling("first")
        for split, rows in inputs.splits.items():
            if len(rows) < self.least:
                message = f"{len(rows)} captions are too few to draw from; {self.least} are needed"
                raise UsageError(message, where=split)

    @override
    def write(self, inputs: ExportInputs, work: Work) -> None:
        params, near = self.params, inputs.neighbours
        with closing(inputs.open_relevance()) as relevance:
            for number, (split, rows) in enumerate(inputs.splits.items()):
                nearest = None if near is None else read_neighbours(near, rows, _DEPTH, 1)
                pool = CandidatePool(inputs.corpus, relevance, rows, nearest)
                order = np.random.default_rng((params.seed, number)).permutation(len(rows)) + rows.start
                for i, (name, part) in enumerate(shards(f"data/{split}", range(params.count), params.rows_per_shard)):
                    anchors = order[np.arange(part.start, part.stop) % len(order)].astype(np.int32)
                    rng = np.random.default_rng((params.seed, number, i))
                    work.table(f"{name}.parquet", partial(self.draw, pool, anchors, rng))

    @abstractmethod
    def draw(self, pool: CandidatePool, anchors: Rows, rng: np.random.Generator) -> pa.Table:
        """Return the table of one file, drawn for some anchors."""


class PairsExport(SamplesExport[ExportPairsParams]):
    """Columns sentence1, sentence2 and score, and the ids caption_id1 and caption_id2."""

    @override
    def draw(self, pool: CandidatePool, anchors: Rows, rng: np.random.Generator) -> pa.Table:
        left, right = pool.draw(anchors, self.params.candidates, rng)
        left, right = left[left != right], right[left != right]
        # A pair of captions is drawn once, in one of its two orders.
        keys = np.minimum(left, right).astype(np.int64) * len(pool.corpus) + np.maximum(left, right)
        first = np.sort(np.unique(keys, return_index=True)[1])
        scores = pool.score(left[first], right[first])
        first, scores = first[np.isfinite(scores)], scores[np.isfinite(scores)]
        drawn = draw_from_bins(scores, self.params.bins, len(anchors), rng)
        texts = {"sentence1": left[first[drawn]], "sentence2": right[first[drawn]]}
        score = pa.array(scores[drawn].astype(np.float32))
        return pool.table(texts, {"score": score}, ("caption_id1", "caption_id2"))


def draw_from_bins(scores: Scores, bins: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw equally many scores from each bin of equal width between the least and the largest score.

    `scores`: (N,) float64. Returns (min(N, count),) int64: indices of the drawn scores, in random order. Bins that hold
    fewer than their share give all of theirs, and the others share the rest.
    """
    if not len(scores):
        return np.empty(0, np.int64)
    low, high = float(scores.min()), float(scores.max())
    width = (high - low) / bins or 1.0
    number = np.minimum(((scores - low) / width).astype(np.int64), bins - 1)
    order = rng.permutation(len(scores))
    members = [order[number[order] == b] for b in range(bins)]
    shares = np.zeros(bins, np.int64)
    remaining = min(count, len(scores))
    # Smallest bins first: their shortfall is divided among the bins that are still to come.
    for position, b in enumerate(np.argsort([len(group) for group in members], kind="stable").tolist()):
        shares[b] = min(len(members[b]), -(-remaining // (bins - position)))
        remaining -= shares[b]
    drawn = np.concatenate([group[:share] for group, share in zip(members, shares.tolist(), strict=True)])
    return rng.permutation(drawn)


class TuplesExport(SamplesExport[ExportTuplesParams]):
    """Columns anchor, positive, negative_1, ..., scores, and an id of each text: anchor_id, positive_id, ..."""

    def __init__(self, params: ExportTuplesParams) -> None:
        super().__init__(params)
        self.least = params.negatives + 2

    @override
    def draw(self, pool: CandidatePool, anchors: Rows, rng: np.random.Generator) -> pa.Table:
        count = self.params.negatives
        # Self pairs and repeated candidates are left out, so more are drawn than a tuple needs.
        width = max(self.params.candidates, 2 * (count + 1))
        left, right = pool.draw(anchors, width, rng)
        scores, near = pool.score(left, right).reshape(-1, width), right.reshape(-1, width)
        tuples, drawn_scores = list[NDArray[np.int32]](), list[Scores]()
        for anchor, rows, values in zip(anchors, near, scores, strict=True):
            chosen = draw_tuple(rows, values, int(anchor), count, rng)
            if chosen is not None:
                tuples.append(np.append(anchor, rows[chosen]))
                drawn_scores.append(values[chosen])
        names = ["anchor", "positive", *(f"negative_{i}" for i in range(1, count + 1))]
        members = dict(zip(names, np.array(tuples, np.int32).reshape(-1, count + 2).T, strict=True))
        flat = pa.array(np.array(drawn_scores, np.float32).reshape(-1))
        lists = {"scores": pa.FixedSizeListArray.from_arrays(flat, count + 1)}
        return pool.table(members, lists, [f"{name}_id" for name in names])


def draw_tuple(
    rows: Rows, scores: Scores, anchor: int, negatives: int, rng: np.random.Generator
) -> NDArray[np.int64] | None:
    """Draw a positive and negatives of one anchor among its candidates.

    `rows`: (N,) int32; candidates. `scores`: (N,) float64. `anchor`: row of the anchor. Returns (negatives + 1,) int64
    or None: indices of the positive and then of the negatives, by falling rank. None if there are too few distinct
    candidates with a score.
    """
    usable = np.flatnonzero((rows != anchor) & np.isfinite(scores))
    # np.unique sorts by row: equal rows keep their first index.
    usable = usable[np.unique(rows[usable], return_index=True)[1]]
    if len(usable) <= negatives:
        return None
    ranked = usable[np.lexsort((rows[usable], -scores[usable]))]
    groups = np.array_split(ranked[1:], negatives)
    return np.array([ranked[0], *(rng.choice(group) for group in groups)], np.int64)
