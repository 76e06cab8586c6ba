"""Scored pairs and tuples of captions, drawn for the losses of sentence-transformers.

Candidates of an anchor are its nearest captions if the label has neighbours, other captions of its image, and random
captions of the split, drawn in turn. Random captions alone would hardly ever be relevant. Captions of equal text are
one candidate, and the text of the anchor is none. `sides` is the one rule for which of them are positives and
negatives, of these exports and of those in `groups.py`.

For pairs, the range between the least and the largest score of the candidates is divided into bins of equal width.
Equally many pairs are drawn from each bin. Bins with fewer pairs give all of theirs, and the others give more.

A tuple has an anchor, a positive and negatives. The candidate of highest relevance is the positive. The negatives
among the candidates, ordered by relevance, are divided into as many groups as a tuple has, and one is drawn from each.

Each file has its own random generator and its own anchors, so that any file can be made again by itself.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.errors import CheckError, UsageError
from relabel.core.types import Rows, Scores
from relabel.corpus import Corpus, References
from relabel.export.base import Export, ExportInputs, shards
from relabel.export.neighbours import NeighbourTable, read_neighbours
from relabel.export.params import ExportSamplesParams, ExportTuplesParams
from relabel.sources.relevance import Relevance
from relabel.store.workdir import Work

_DEPTH = 32  # nearest captions from which neighbours are drawn
_SEED = 0  # of the draws: another sample of the same captions is worth no more
_BINS = 10  # of equal width over the range of scores

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

    def candidates(self, anchors: Rows, count: int, rng: np.random.Generator) -> tuple[Rows, Scores, NDArray[np.bool_]]:
        """Draw `count` candidates per anchor and score them with the anchor as the only reference.

        Returns `rows, scores, own`, (A, count) each: int32; float64, NaN for the anchor's own text and without a score;
        whether a caption of the anchor's image has the text of the candidate.
        """
        left, right = self.draw(anchors, count, rng)
        # A caption may be drawn for an anchor several times, and is scored once.
        keys = left.astype(np.int64) * len(self.corpus) + right
        _, first, back = np.unique(keys, return_index=True, return_inverse=True)
        scores = self.relevance.pairs(References.single(left[first]), right[first], "first")[back]
        scores = np.where((self.text[left] != self.text[right]) & np.isfinite(scores), scores, np.nan)
        # Captions of other images may repeat one of this image's.
        image, size = self.corpus.image.astype(np.int64), len(self.corpus) + 1
        own = np.isin(image[left] * size + self.text[right], image * size + self.text)
        shape = len(anchors), count
        return right.reshape(shape), scores.reshape(shape), own.reshape(shape)

    @cached_property
    def text(self) -> NDArray[np.int64]:
        """Number of the text of each caption of the corpus: equal for equal texts."""
        return np.asarray(pc.rank(self.corpus.table["text"], tiebreaker="dense"), np.int64)

    def table(self, texts: dict[str, Rows], scores: dict[str, pa.Array], ids: Sequence[str]) -> pa.Table:
        """Return the texts of some rows by column, their scores, and the ids of the texts under other names."""

        def values(column: str, names: Iterable[str]) -> dict[str, pa.Array]:
            taken = (self.corpus.table[column].take(pa.array(rows)) for rows in texts.values())
            return dict(zip(names, taken, strict=True))

        return pa.table(values("text", texts) | scores | values("caption_id", ids))


def sides(scores: Scores, own: NDArray[np.bool_], margin: float) -> NDArray[np.int8]:
    """Return 1 for the positives, -1 for the negatives and 0 for the other candidates of each anchor.

    The positive of an anchor is the best candidate of its own image, or else the best candidate, with score p.
    Positives have at least p. Negatives are captions of other images below ``p - margin``.

    `scores`: (A, W) float64; NaN for what is no candidate, which has 0. `own`: (A, W); captions of the anchor's image.
    """
    of_image = np.fmax.reduce(np.where(own, scores, np.nan), axis=1, keepdims=True)
    best = np.where(np.isnan(of_image), np.fmax.reduce(scores, axis=1, keepdims=True), of_image)
    return (scores >= best).astype(np.int8) - ((scores < best - margin) & ~own)


class SamplesExport(Export[S]):
    """Files ``data/SPLIT-00000-of-000NN``, each of them drawn with its own anchors and generator."""

    neighbours_of = "captions"
    least = 2
    """Captions that a split must have."""
    candidates = 8
    """Candidates that are scored for each row."""

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
        relevance = inputs.open_relevance()
        for number, (split, rows) in enumerate(inputs.splits.items()):
            nearest = None if near is None else read_neighbours(near, rows, _DEPTH, 1)
            pool = CandidatePool(inputs.corpus, relevance, rows, nearest)
            order = np.random.default_rng((_SEED, number)).permutation(len(rows)) + rows.start
            for i, (name, part) in enumerate(shards(f"data/{split}", range(params.count), self.rows_per_file)):
                anchors = order[np.arange(part.start, part.stop) % len(order)].astype(np.int32)
                rng = np.random.default_rng((_SEED, number, i))
                self.write_file(work, name, pool, anchors, rng)
        written = {split: sum(map(_rows_of, (work.folder / "data").glob(f"{split}-*"))) for split in inputs.splits}
        if not any(written.values()):
            todo = "Use fewer negatives, a smaller margin, or a label with neighbours."
            raise CheckError("no caption has a positive and negatives of other texts", where=inputs.split, todo=todo)
        for split in (split for split, rows in written.items() if rows < params.count):
            text = "the others repeat a row, or lack positives or negatives of other texts among their candidates"
            inputs.runtime.progress.note(f"{split}: {written[split]:,} of {params.count:,} rows; {text}")
        work.metadata["written"] = written

    @abstractmethod
    def write_file(self, work: Work, name: str, pool: CandidatePool, anchors: Rows, rng: np.random.Generator) -> None:
        """Write one file, drawn for some anchors. `name`: without its ending."""

    def sides(self, scores: Scores, own: NDArray[np.bool_]) -> NDArray[np.int8]:
        """Return positives and negatives among candidates by the margins of the format."""
        return sides(scores, own, self.params.margin)


def _rows_of(path: Path) -> int:
    """Return the number of rows of a file."""
    if path.suffix == ".parquet":
        return int(pq.read_metadata(path).num_rows)
    with path.open("rb") as file:
        return sum(1 for _ in file)


class TablesExport(SamplesExport[S]):
    """Parquet files. Ids follow the columns that sentence-transformers reads, in columns of their own."""

    @override
    def write_file(self, work: Work, name: str, pool: CandidatePool, anchors: Rows, rng: np.random.Generator) -> None:
        work.table(f"{name}.parquet", partial(self.draw, pool, anchors, rng))

    @abstractmethod
    def draw(self, pool: CandidatePool, anchors: Rows, rng: np.random.Generator) -> pa.Table:
        """Return the table of one file, drawn for some anchors."""


class PairsExport(TablesExport[ExportSamplesParams]):
    """Columns sentence1, sentence2 and score, and the ids caption_id1 and caption_id2."""

    @override
    def draw(self, pool: CandidatePool, anchors: Rows, rng: np.random.Generator) -> pa.Table:
        rows, scores, own = pool.candidates(anchors, self.candidates, rng)
        # Only captions of other images within the margin of the positive are neither alike nor different.
        kept = ~np.isnan(scores) & (own | (self.sides(scores, own) != 0))
        left, right, scores = np.repeat(anchors, kept.sum(axis=1)), rows[kept], scores[kept]
        # A pair of texts is drawn once, in one of its two orders.
        one, other = pool.text[left], pool.text[right]
        keys = np.minimum(one, other) * (len(pool.corpus) + 1) + np.maximum(one, other)
        first = np.sort(np.unique(keys, return_index=True)[1])
        drawn = first[draw_from_bins(scores[first], _BINS, len(anchors), rng)]
        texts = {"sentence1": left[drawn], "sentence2": right[drawn]}
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


def ranked(rows: Rows, texts: NDArray[np.int64], scores: Scores, side: NDArray[np.int8]) -> NDArray[np.int64]:
    """Return the indices of the positives and negatives of one anchor by falling score, each text once.

    `rows`, `texts`, `scores`, `side`: (N,); its candidates.
    """
    usable = np.flatnonzero(side)
    # np.unique sorts by text: equal texts keep their first index.
    usable = usable[np.unique(texts[usable], return_index=True)[1]]
    return usable[np.lexsort((rows[usable], -scores[usable]))]


class TuplesExport(TablesExport[ExportTuplesParams]):
    """Columns anchor, positive, negative_1, ..., scores, and an id of each text: anchor_id, positive_id, ..."""

    def __init__(self, params: ExportTuplesParams) -> None:
        super().__init__(params)
        self.least = params.negatives + 2

    @override
    def draw(self, pool: CandidatePool, anchors: Rows, rng: np.random.Generator) -> pa.Table:
        count = self.params.negatives
        # A third of the candidates is random, and hardly anything else is sure to be a negative.
        rows, scores, own = pool.candidates(anchors, max(self.candidates, 3 * (count + 1)), rng)
        drawn = dict[bytes, tuple[list[int], Scores]]()
        for anchor, near, values, side in zip(anchors.tolist(), rows, scores, self.sides(scores, own), strict=True):
            order = ranked(near, pool.text[near], values, side)
            negatives = order[side[order] < 0]
            if len(negatives) >= count:
                chosen = [order[0], *(rng.choice(group) for group in np.array_split(negatives, count))]
                members = [anchor, *near[chosen].tolist()]
                # A small split has the same texts several times.
                drawn.setdefault(pool.text[members].tobytes(), (members, values[chosen]))
        names = ["anchor", "positive", *(f"negative_{i}" for i in range(1, count + 1))]
        texts = np.array([rows for rows, _ in drawn.values()], np.int32).reshape(-1, count + 2).T
        flat = pa.array(np.array([values for _, values in drawn.values()], np.float32).reshape(-1))
        lists = {"scores": pa.FixedSizeListArray.from_arrays(flat, count + 1)}
        return pool.table(dict(zip(names, texts, strict=True)), lists, [f"{name}_id" for name in names])
