"""Scored pairs and tuples of captions, sampled for the losses of sentence-transformers.

Candidates of an anchor are drawn in turn from its nearest captions (if the label has neighbours), the other captions of
its image, and random captions of the split. With only random captions, relevant pairs would be very rare. Captions with
equal texts count as one candidate, and captions with the anchor's text are excluded. `sides` defines positives and
negatives, here and in `groups.py`.

Pairs: the range of the candidates' scores is divided into bins of equal width. The same number of pairs is drawn from
each bin. If a bin has too few pairs, all of them are taken, and the other bins contribute more.

Tuples: a tuple has an anchor, a positive and negatives. The positive is the candidate with the highest relevance. The
negatives are sorted by relevance and divided into as many groups as a tuple has negatives. One is drawn from each.

Each file has its own random generator and its own anchors and can be written independently of the others.
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

_DEPTH = 32  # number of nearest captions from which neighbours are drawn
_SEED = 0  # fixed, because another sample of the same captions would not be better
_BINS = 10  # number of bins of equal width over the range of scores

S = TypeVar("S", bound=ExportSamplesParams)


@dataclass(frozen=True, eq=False)
class CandidatePool:
    """Pool of candidates for anchors: neighbours, captions of the same image, and random captions."""

    corpus: Corpus
    relevance: Relevance
    rows: range
    near: NeighbourTable | None

    def draw(self, anchors: Rows, count: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
        """Draw `count` candidates per anchor, of each kind in turn. They may include the anchor itself.

        Returns `left, right`, (A * count,) int32: anchor and candidate of each pair.
        """
        left = np.repeat(anchors, count)
        right = rng.integers(self.rows.start, self.rows.stop, len(left), dtype=np.int32)
        turn = np.tile(np.arange(count), len(anchors)) % (2 if self.near is None else 3)
        # Turn 0: the random caption. Turn 1: a caption of the same image. Turn 2: a neighbour.
        sibling = np.flatnonzero(turn == 1)
        image = self.corpus.image[left[sibling]]
        right[sibling] = rng.integers(self.corpus.indptr[image], self.corpus.indptr[image + 1])
        if self.near is not None:
            slot = np.flatnonzero(turn == 2)
            near = self.near.rows[left[slot] - self.near.first, rng.integers(0, self.near.width, len(slot))]
            # Neighbours among all captions can be outside the split. Then keep the random caption.
            inside = (near >= self.rows.start) & (near < self.rows.stop)
            right[slot[inside]] = near[inside]
        return left, right

    def candidates(self, anchors: Rows, count: int, rng: np.random.Generator) -> tuple[Rows, Scores, NDArray[np.bool_]]:
        """Draw `count` candidates per anchor and score them with the anchor as the only reference.

        Returns `rows, scores, own`, (A, count) each. `rows`: int32. `scores`: float64; NaN if undefined or if the texts
        are equal. `own`: bool; whether a caption of the anchor's image has the text of the candidate.
        """
        left, right = self.draw(anchors, count, rng)
        # Score distinct pairs only, because a caption may be drawn several times for an anchor.
        keys = left.astype(np.int64) * len(self.corpus) + right
        _, first, back = np.unique(keys, return_index=True, return_inverse=True)
        scores = self.relevance.pairs(References.single(left[first]), right[first], "first")[back]
        scores = np.where((self.text[left] != self.text[right]) & np.isfinite(scores), scores, np.nan)
        # Captions of other images can have the same text as a caption of the anchor's image.
        image, size = self.corpus.image.astype(np.int64), len(self.corpus) + 1
        own = np.isin(image[left] * size + self.text[right], image * size + self.text)
        shape = len(anchors), count
        return right.reshape(shape), scores.reshape(shape), own.reshape(shape)

    @cached_property
    def text(self) -> NDArray[np.int64]:
        """Number of each caption's text, (N,): equal texts have equal numbers."""
        return np.asarray(pc.rank(self.corpus.table["text"], tiebreaker="dense"), np.int64)

    def table(self, texts: dict[str, Rows], scores: dict[str, pa.Array], ids: Sequence[str]) -> pa.Table:
        """Create a table of texts, scores and caption ids. `texts`: rows by text column. `ids`: names of id columns."""

        def values(column: str, names: Iterable[str]) -> dict[str, pa.Array]:
            taken = (self.corpus.table[column].take(pa.array(rows)) for rows in texts.values())
            return dict(zip(names, taken, strict=True))

        return pa.table(values("text", texts) | scores | values("caption_id", ids))


def sides(scores: Scores, own: NDArray[np.bool_], margin: float) -> NDArray[np.int8]:
    """Return 1 for the positives, -1 for the negatives and 0 for the other candidates of each anchor: (A, W) int8.

    Let p be the score of the best candidate of the anchor's image, or of the best candidate if there is none. Positives
    have a score of at least p. Negatives are captions of other images with a score below ``p - margin``.

    `scores`: (A, W) float64; NaN gives 0. `own`: (A, W) bool; captions of the anchor's image.
    """
    of_image = np.fmax.reduce(np.where(own, scores, np.nan), axis=1, keepdims=True)
    best = np.where(np.isnan(of_image), np.fmax.reduce(scores, axis=1, keepdims=True), of_image)
    return (scores >= best).astype(np.int8) - ((scores < best - margin) & ~own)


class SamplesExport(Export[S]):
    """Files ``data/SPLIT-00000-of-000NN``, each sampled with its own anchors and random generator."""

    neighbours_of = "captions"
    minimum = 2
    """Minimum number of captions of a split."""
    candidates = 8
    """Number of candidates to score per row."""

    @override
    def check(self, inputs: ExportInputs) -> None:
        # Captions are compared with captions, so the label must score single references.
        inputs.source.check_pooling("first")
        for split, rows in inputs.splits.items():
            if len(rows) < self.minimum:
                message = f"{len(rows)} captions are too few for sampling; at least {self.minimum} are needed"
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
            hint = "Use fewer negatives, a smaller margin, or a label with neighbours."
            raise CheckError("no caption has a positive and negatives of other texts", where=inputs.split, hint=hint)
        for split in (split for split, rows in written.items() if rows < params.count):
            text = "the others are duplicates, or have no positives or negatives with other texts"
            inputs.runtime.progress.note(f"{split}: {written[split]:,} of {params.count:,} rows; {text}")
        work.metadata["written"] = written

    @abstractmethod
    def write_file(self, work: Work, name: str, pool: CandidatePool, anchors: Rows, rng: np.random.Generator) -> None:
        """Sample one file for the given anchors and write it. `name`: without suffix."""

    def sides(self, scores: Scores, own: NDArray[np.bool_]) -> NDArray[np.int8]:
        """Return positives and negatives with the margin of the parameters; see the function `sides`."""
        return sides(scores, own, self.params.margin)


def _rows_of(path: Path) -> int:
    """Return the number of rows of a file."""
    if path.suffix == ".parquet":
        return int(pq.read_metadata(path).num_rows)
    with path.open("rb") as file:
        return sum(1 for _ in file)


class TablesExport(SamplesExport[S]):
    """Parquet files. Id columns come after the columns that sentence-transformers reads."""

    @override
    def write_file(self, work: Work, name: str, pool: CandidatePool, anchors: Rows, rng: np.random.Generator) -> None:
        work.table(f"{name}.parquet", partial(self.draw, pool, anchors, rng))

    @abstractmethod
    def draw(self, pool: CandidatePool, anchors: Rows, rng: np.random.Generator) -> pa.Table:
        """Sample the table of one file for the given anchors."""


class PairsExport(TablesExport[ExportSamplesParams]):
    """Parquet files with columns sentence1, sentence2, score, caption_id1 and caption_id2."""

    @override
    def draw(self, pool: CandidatePool, anchors: Rows, rng: np.random.Generator) -> pa.Table:
        rows, scores, own = pool.candidates(anchors, self.candidates, rng)
        # Drop captions of other images within the margin: they are neither similar nor different.
        kept = ~np.isnan(scores) & (own | (self.sides(scores, own) != 0))
        left, right, scores = np.repeat(anchors, kept.sum(axis=1)), rows[kept], scores[kept]
        # Each unordered pair of texts is used once.
        one, other = pool.text[left], pool.text[right]
        keys = np.minimum(one, other) * (len(pool.corpus) + 1) + np.maximum(one, other)
        first = np.sort(np.unique(keys, return_index=True)[1])
        drawn = first[draw_from_bins(scores[first], _BINS, len(anchors), rng)]
        texts = {"sentence1": left[drawn], "sentence2": right[drawn]}
        score = pa.array(scores[drawn].astype(np.float32))
        return pool.table(texts, {"score": score}, ("caption_id1", "caption_id2"))


def draw_from_bins(scores: Scores, bins: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw the same number of scores from each of `bins` bins of equal width over the range of the scores.

    `scores`: (N,) float64. Returns (min(N, count),) int64: indices of the drawn scores in random order. If a bin has
    too few scores, all of them are taken, and the other bins contribute more.
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
    # In ascending order of size, so that the shortfall of small bins is divided among the larger ones.
    for position, b in enumerate(np.argsort([len(group) for group in members], kind="stable").tolist()):
        shares[b] = min(len(members[b]), -(-remaining // (bins - position)))
        remaining -= shares[b]
    drawn = np.concatenate([group[:share] for group, share in zip(members, shares.tolist(), strict=True)])
    return rng.permutation(drawn)


def ranked(rows: Rows, texts: NDArray[np.int64], scores: Scores, side: NDArray[np.int8]) -> NDArray[np.int64]:
    """Return the indices of the positives and negatives of one anchor in descending order of score, each text once.

    `rows`, `texts`, `scores`, `side`: (N,); candidates of the anchor.
    """
    usable = np.flatnonzero(side)
    # Keep the first candidate of each text.
    usable = usable[np.unique(texts[usable], return_index=True)[1]]
    return usable[np.lexsort((rows[usable], -scores[usable]))]


class TuplesExport(TablesExport[ExportTuplesParams]):
    """Parquet files with columns anchor, positive, negative_1, ..., scores, anchor_id, positive_id, ..."""

    def __init__(self, params: ExportTuplesParams) -> None:
        super().__init__(params)
        self.minimum = params.negatives + 2

    @override
    def draw(self, pool: CandidatePool, anchors: Rows, rng: np.random.Generator) -> pa.Table:
        count = self.params.negatives
        # A third of the candidates are random captions, and only these are reliable negatives.
        rows, scores, own = pool.candidates(anchors, max(self.candidates, 3 * (count + 1)), rng)
        drawn = dict[bytes, tuple[list[int], Scores]]()
        for anchor, near, values, side in zip(anchors.tolist(), rows, scores, self.sides(scores, own), strict=True):
            order = ranked(near, pool.text[near], values, side)
            negatives = order[side[order] < 0]
            if len(negatives) >= count:
                index = [order[0], *(rng.choice(group) for group in np.array_split(negatives, count))]
                members = [anchor, *near[index].tolist()]
                # In a small split, the same texts can be drawn several times.
                drawn.setdefault(pool.text[members].tobytes(), (members, values[index]))
        names = ["anchor", "positive", *(f"negative_{i}" for i in range(1, count + 1))]
        texts = np.array([rows for rows, _ in drawn.values()], np.int32).reshape(-1, count + 2).T
        flat = pa.array(np.array([values for _, values in drawn.values()], np.float32).reshape(-1))
        lists = {"scores": pa.FixedSizeListArray.from_arrays(flat, count + 1)}
        return pool.table(dict(zip(names, texts, strict=True)), lists, [f"{name}_id" for name in names])
