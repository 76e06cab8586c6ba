"""Labels as rankers on ECCV Caption: mAP@R, R-Precision and R@1 in both directions (Chun et al., ECCV 2022).

An image query (i2t) ranks the 25,000 captions of COCO's test split by r(V, T_j), V being its first five captions; a
caption query (t2i) ranks the 5,000 images by r(V_i, T): the same r, read down a column. R counts all positives of a
query, including the few that are not among the 25,000.

Scores that agree to 1e-5 of the source's range are ties, so that float32 rounding makes no order. `pessimistic` ties
put the query's own image or captions first, by their ids, and then all that is not positive: no hit is by chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.core.errors import CheckError, UsageError
from relabel.core.parsing import read_json
from relabel.core.runtime import SILENT, Advance, Progress
from relabel.core.types import Rows, Scores
from relabel.corpus import Corpus
from relabel.corpus.splits import coco_test_captions
from relabel.datasets import locate
from relabel.sources.base import Source
from relabel.sources.relevance import Relevance
from relabel.store.workdir import Work
from relabel_train.metrics import Ties, average_precision_at_r, r_precision, ranked_hits, recall_at_k

Direction = Literal["i2t", "t2i"]
DIRECTIONS: tuple[Direction, ...] = ("i2t", "t2i")
FILES: dict[Direction, str] = {"i2t": "eccv_image_to_caption.json", "t2i": "eccv_caption_to_image.json"}
GALLERY = "coco_test_ids.npy"
NAMESPACE = "coco"


@dataclass(frozen=True, eq=False)
class Queries:
    """The queries of one direction.

    `index`: (Q,) int32; image numbers (i2t) or caption rows (t2i) of the corpus.
    `items`: positions in the gallery of each query's positives.
    `positives`: (Q,) int64; R: number of positives of each query, in the gallery or not.
    """

    ids: list[str]
    index: Rows
    items: list[NDArray[np.int64]]
    positives: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ids)

    def positive(self, batch: range, gallery: int) -> NDArray[np.bool_]:
        """Mark the positives of a batch of queries in a gallery of some size: (len(batch), gallery) bool."""
        out = np.zeros((len(batch), gallery), np.bool_)
        for i, q in enumerate(batch):
            out[i, self.items[q]] = True
        return out


@dataclass(frozen=True, eq=False)
class Eccv:
    """ECCV Caption in terms of a corpus.

    `captions`: (25000,) int32; the caption gallery: corpus rows, ascending.
    `images`: (5000,) int32; the image gallery: image numbers, ascending.
    `queries`: 1,261 images and 1,332 captions; the README of ECCV Caption swaps the two.
    """

    captions: Rows
    images: Rows
    queries: dict[Direction, Queries]

    def gallery(self, direction: Direction) -> Rows:
        """Return the gallery that the queries of a direction rank."""
        return self.captions if direction == "i2t" else self.images


def read_eccv(corpus: Corpus, data: Path) -> Eccv:
    """Read ECCV Caption and find its ids in a corpus."""
    # Galleries are ascending: positives are found in them by binary search, and ties by row are ties by id.
    captions = np.sort(_find(coco_test_captions(locate("eccv", GALLERY, data)).tolist(), corpus.row_of, "captions"))
    images = np.unique(corpus.image[captions])
    queries: dict[Direction, Queries] = {
        "i2t": _queries(locate("eccv", FILES["i2t"], data), corpus.image_of, corpus.row_of, captions),
        "t2i": _queries(locate("eccv", FILES["t2i"], data), corpus.row_of, corpus.image_of, images),
    }
    return Eccv(captions, images, queries)


def read_positives(path: Path) -> dict[str, list[int]]:
    """Read the ids of each query's positives."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise CheckError("expected an object of lists of ids", where=str(path))
    for query, ids in content.items():
        # `type` rather than `isinstance`, for which true and false are integers as well.
        if not isinstance(ids, list) or not all(type(i) is int for i in ids):
            raise CheckError(f"query {query[:40]!r}: expected a list of ids", where=str(path))
    return content


def _queries(path: Path, query_number: Mapping[str, int], item_number: Mapping[str, int], gallery: Rows) -> Queries:
    content = read_positives(path)
    positives = [sorted(set(ids)) for ids in content.values()]
    items = []
    for ids in positives:
        numbers = np.array([item_number.get(f"{NAMESPACE}:{i}", -1) for i in ids], np.int32)
        # A positive that the corpus or the gallery lacks can never be ranked. It still counts in R, so a label cannot
        # reach 100.
        positions = np.minimum(np.searchsorted(gallery, numbers), len(gallery) - 1)
        items.append(positions[gallery[positions] == numbers].astype(np.int64))
    names = [f"{NAMESPACE}:{i}" for i in content]
    counts = np.array([len(ids) for ids in positives], np.int64)
    return Queries(names, _find(list(content), query_number, "queries"), items, counts)


def _find(ids: Sequence[int | str], lookup: Mapping[str, int], kind: str) -> Rows:
    numbers = np.array([lookup.get(f"{NAMESPACE}:{i}", -1) for i in ids], np.int32)
    if lacking := np.flatnonzero(numbers < 0).tolist():
        first = ", ".join(f"{NAMESPACE}:{ids[i]}" for i in lacking[:3])
        message = f"the corpus lacks {len(lacking):,} of the {len(ids):,} {kind} of ECCV Caption: {first}"
        raise CheckError(message, todo="Ingest coco-captions with Karpathy's test split.")
    return numbers


SCHEMA = pa.schema(
    [
        pa.field("query", pa.string(), nullable=False),
        pa.field("positives", pa.int32(), nullable=False),
        pa.field("ap_at_r", pa.float64(), nullable=False),
        pa.field("r_precision", pa.float64(), nullable=False),
        pa.field("r_at_1", pa.float64(), nullable=False),
    ]
)
"""One row per query: its id, its R and its three figures, 0..1."""
_BATCH = 64  # queries ranked together: (64, 25,000) float64 is 13 MB
_GATED_BATCH = 8


@dataclass(frozen=True, eq=False)
class Gate:
    """A cheap label that picks the candidates of a `pairs` source.

    The `top` best items of a query by the gate are re-ranked among themselves; all others follow in the gate's order.

    `scale`: largest magnitude of the gate's scores.
    """

    label: str
    relevance: Relevance
    top: int = 100
    scale: float = 1.0


def score_eccv(
    corpus: Corpus,
    relevance: Relevance,
    source: Source[Any] | type[Source[Any]],
    eccv: Eccv,
    work: Work,
    progress: Progress = SILENT,
    *,
    ties: Ties = "pessimistic",
    gate: Gate | None = None,
) -> None:
    """Rank for every query and write its figures: `i2t-00000-of-00001.parquet`, ... with `SCHEMA`.

    `relevance`: the opened label, with its `pooling`. NaN ranks last. `source`: source of the label. `work`:
    ``work.facts["eccv"]`` records the settings of ties and the gate, and the means of the figures over all queries.
    """
    # Both directions have 38 million pairs, too many to score one by one.
    if source.spec.pairwise and gate is None:
        full = sum(len(eccv.queries[d]) * len(eccv.gallery(d)) for d in DIRECTIONS)
        problem = f"ranking everything by {source.spec.name} takes {full / 1e6:.0f} million pairs"
        raise UsageError(problem, todo="Name a gate: a label whose best candidates it re-ranks.")
    for opened in (relevance, *((gate.relevance,) if gate else ())):
        # The captions are ascending, so both ends decide for all of them.
        if eccv.captions[0] < opened.rows.start or eccv.captions[-1] >= opened.rows.stop:
            raise CheckError("not all captions of ECCV Caption are encoded", todo="Encode the test split.")
    ranker = _Ranker(corpus, relevance, max(map(abs, source.spec.bounds)), eccv, ties, gate)
    for direction in DIRECTIONS:
        count = len(eccv.queries[direction])
        with progress.bar(f"eccv {direction}", count, "queries") as bar:
            work.table(_file(direction), partial(ranker.table, direction, bar.advance))
    work.facts["eccv"] = {
        "ties": ties,
        "gate": gate.label if gate else None,
        "gate_top": gate.top if gate else None,
        "figures": {direction: _means(table) for direction, table in read_ranking(work.folder).items()},
    }


def read_ranking(folder: Path) -> dict[Direction, pa.Table]:
    """Read the tables that `score_eccv` wrote."""
    return {direction: pq.read_table(folder / _file(direction)) for direction in DIRECTIONS}


def _file(direction: Direction) -> str:
    return f"{direction}-00000-of-00001.parquet"


def _means(table: pa.Table) -> dict[str, float]:
    """Return the number of queries and the means of their figures, in percent."""
    # Means over queries: a query of many positives counts as much as one of few.
    figures = {"map_at_r": "ap_at_r", "r_precision": "r_precision", "r_at_1": "r_at_1"}
    return {"n": len(table)} | {name: 100 * pc.mean(table[column]).as_py() for name, column in figures.items()}


@dataclass(frozen=True, eq=False)
class _Ranker:
    corpus: Corpus
    relevance: Relevance
    scale: float
    eccv: Eccv
    ties: Ties
    gate: Gate | None

    @property
    def batch(self) -> int:
        """Queries that are ranked together. Behind a gate, the pairs of a few queries take seconds already."""
        return _BATCH if self.gate is None else _GATED_BATCH

    def table(self, direction: Direction, advance: Advance) -> pa.Table:
        """Compute the rows of all queries."""
        queries = self.eccv.queries[direction]
        columns: list[NDArray[np.float64]] = []
        for a in range(0, len(queries), self.batch):
            batch = range(a, min(a + self.batch, len(queries)))
            count = queries.positives[batch.start : batch.stop]
            # No figure looks past rank R, and the largest R of a batch serves all of its queries.
            hits = self.hits(direction, batch, int(count.max()))
            columns.append(
                np.stack([average_precision_at_r(hits, count), r_precision(hits, count), recall_at_k(hits, 1)])
            )
            advance(len(batch))
        values = [queries.ids, queries.positives, *np.concatenate(columns, axis=1)]
        return pa.table([pa.array(v, f.type) for v, f in zip(values, SCHEMA, strict=True)], schema=SCHEMA)

    def hits(self, direction: Direction, batch: range, length: int) -> NDArray[np.bool_]:
        """Rank the gallery for a batch of queries and mark the positives: (Q, length) bool."""
        queries, items = self.eccv.queries[direction], len(self.eccv.gallery(direction))
        index, positive = queries.index[batch.start : batch.stop], queries.positive(batch, items)
        own_items = self._own(direction, index)
        if self.gate is None:
            scores = self._quantised(self._block(self.relevance, direction, index), own_items, self.scale)
            return ranked_hits(scores, positive, length, self.ties)
        # The gate ranks everything; only its best items are scored and re-ranked, and then taken out of its order.
        coarse = self._quantised(self._block(self.gate.relevance, direction, index), own_items, self.gate.scale)
        best = _best(coarse, min(self.gate.top, items))
        fine = self._quantised(self._pairs(direction, index, best), np.take_along_axis(own_items, best, 1), self.scale)
        head = ranked_hits(fine, np.take_along_axis(positive, best, 1), min(length, best.shape[1]), self.ties)
        np.put_along_axis(coarse, best, -np.inf, 1)
        np.put_along_axis(positive, best, False, 1)
        tail = ranked_hits(coarse, positive, length - head.shape[1], self.ties)
        return np.concatenate([head, tail], axis=1)

    def _own(self, direction: Direction, index: Rows) -> NDArray[np.bool_]:
        """Mark the items that are the query's own: (Q, N) bool."""
        image, eccv = self.corpus.image, self.eccv
        queries, gallery = (index, image[eccv.captions]) if direction == "i2t" else (image[index], eccv.images)
        return np.asarray(queries[:, None] == gallery)

    def _quantised(self, scores: Scores, own_items: NDArray[np.bool_], scale: float) -> Scores:
        """Round scores to steps of 1e-5 of the range, with own items half a step above their equals and NaN last."""
        steps = np.round(scores * (1e5 / scale))
        steps[np.isnan(steps)] = -np.inf
        # Half a step is less than the distance of two different scores, so it decides among equals alone.
        return steps + own_items / 2 if self.ties == "pessimistic" else steps

    def _block(self, relevance: Relevance, direction: Direction, index: Rows) -> Scores:
        if direction == "i2t":
            return relevance.block(self.corpus.references(index), self.eccv.captions)
        # The same r(V, T) as in the other direction: image references score the captions, and a transpose makes them
        # columns.
        return relevance.block(self.corpus.references(self.eccv.images), index).T

    def _pairs(self, direction: Direction, index: Rows, best: NDArray[np.int64]) -> Scores:
        queries, items = np.repeat(index, best.shape[1]), self.eccv.gallery(direction)[best.reshape(-1)]
        images, captions = (queries, items) if direction == "i2t" else (items, queries)
        return self.relevance.pairs(self.corpus.references(images), captions).reshape(best.shape)


def _best(scores: Scores, n: int) -> NDArray[np.int64]:
    """Find the n largest of each row, by (-score, column): (Q, n) int64."""
    # The n-th largest score separates the best from the rest, which need no order.
    worst = np.partition(scores, -n, axis=1)[:, -n]
    out = np.empty((len(scores), n), np.int64)
    for q, row in enumerate(scores):
        above, level = np.flatnonzero(row > worst[q]), np.flatnonzero(row == worst[q])
        # Items at the n-th score fill the remaining places in the order of their columns.
        out[q] = np.concatenate([above[np.argsort(-row[above], kind="stable")], level[: n - len(above)]])
    return out
