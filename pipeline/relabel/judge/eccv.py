"""Labels as rankers on ECCV Caption: mAP@R, R-Precision and R@1 in both directions (Chun et al., ECCV 2022).

An image query (i2t) with the first five captions V ranks the 25,000 captions T_j of COCO's test split by r(V, T_j). A
caption query T (t2i) ranks the 5,000 images by r(V_i, T). R counts all positives of a query, including the few that are
not among the 25,000.

Scores within 1e-5 of the source's range are ties, because float32 rounding must not decide their order. `pessimistic`
ties put the query's own image or captions first, by id, and then items that are not positive: no hit is by chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from relabel.core.errors import CheckError
from relabel.core.parsing import read_json
from relabel.core.runtime import SILENT, Advance, Progress
from relabel.core.types import Rows, Scores
from relabel.corpus import Corpus
from relabel.corpus.splits import coco_test_captions
from relabel.datasets import locate
from relabel.judge.report import Record
from relabel.sources.relevance import Relevance
from relabel.store.workdir import Work
from relabel_train.metrics import Ties, average_precision_at_r, r_precision, ranked_hits, recall_at_k

Direction = Literal["i2t", "t2i"]
DIRECTIONS: tuple[Direction, ...] = ("i2t", "t2i")
FILES: dict[Direction, str] = {"i2t": "eccv_image_to_caption.json", "t2i": "eccv_caption_to_image.json"}
GALLERY = "coco_test_ids.npy"
NAMESPACE = "coco"
_FIGURES = {"map_at_r": "ap_at_r", "r_precision": "r_precision", "r_at_1": "r_at_1"}
"""Figures of a direction: each is the mean of the named column over queries, in percent."""
_POSITIVES = TypeAdapter(dict[str, list[int]])
_STEPS = 1e5  # number of distinct scores over the range of a source
_BATCH = 64  # queries ranked together: (64, 25,000) float64 is 13 MB
_GATED_BATCH = 8  # with a gate, the pairs of a few queries take seconds


@dataclass(frozen=True, eq=False)
class Queries:
    """The queries of one direction.

    `index`: (Q,) int32; image numbers (i2t) or caption rows (t2i) of the corpus.
    `items`: for each query, the positions of its positives in the gallery.
    `positives`: (Q,) int64; R, the number of positives of each query, inside or outside the gallery.
    """

    ids: list[str]
    index: Rows
    items: list[NDArray[np.int64]]
    positives: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class Eccv:
    """ECCV Caption by rows and image numbers of a corpus.

    `captions`: (25000,) int32; ascending rows of the caption gallery.
    `images`: (5000,) int32; ascending image numbers of the image gallery.
    `queries`: 1,261 images and 1,332 captions; the README of ECCV Caption swaps these numbers.
    """

    corpus: Corpus
    captions: Rows
    images: Rows
    queries: dict[Direction, Queries]

    def gallery(self, direction: Direction) -> Rows:
        """Return the gallery that is ranked in a direction."""
        return self.captions if direction == "i2t" else self.images


@lru_cache(1)
def read_eccv(corpus: Corpus, data: Path) -> Eccv:
    """Read ECCV Caption and locate its ids in a corpus."""
    # Galleries are sorted for the binary search of positives, and because ties are ordered by row.
    captions = np.sort(_find(coco_test_captions(locate("eccv", GALLERY, data)).tolist(), corpus.row_of, "captions"))
    images = np.unique(corpus.image[captions])
    queries: dict[Direction, Queries] = {
        "i2t": _queries(locate("eccv", FILES["i2t"], data), corpus.image_of, corpus.row_of, captions),
        "t2i": _queries(locate("eccv", FILES["t2i"], data), corpus.row_of, corpus.image_of, images),
    }
    return Eccv(corpus, captions, images, queries)


def read_positives(path: Path) -> dict[str, list[int]]:
    """Read the ids of the positives of each query."""
    try:
        return _POSITIVES.validate_python(read_json(path), strict=True)
    except ValidationError as error:
        raise CheckError("expected an object of lists of ids", where=str(path)) from error


def _queries(path: Path, query_number: Mapping[str, int], item_number: Mapping[str, int], gallery: Rows) -> Queries:
    content = read_positives(path)
    items = []
    for ids in content.values():
        # A positive that is missing in the corpus or the gallery is never ranked, but counts in R, so the maximum is
        # below 100.
        numbers = np.array([item_number.get(f"{NAMESPACE}:{i}", -1) for i in sorted(set(ids))], np.int32)
        items.append(np.searchsorted(gallery, numbers[np.isin(numbers, gallery)]))
    names = [f"{NAMESPACE}:{i}" for i in content]
    counts = np.array([len(set(ids)) for ids in content.values()], np.int64)
    return Queries(names, _find(list(content), query_number, "queries"), items, counts)


def _find(ids: Sequence[int | str], lookup: Mapping[str, int], kind: str) -> Rows:
    numbers = np.array([lookup.get(f"{NAMESPACE}:{i}", -1) for i in ids], np.int32)
    if lacking := np.flatnonzero(numbers < 0).tolist():
        first = ", ".join(f"{NAMESPACE}:{ids[i]}" for i in lacking[:3])
        message = f"the corpus lacks {len(lacking):,} of the {len(ids):,} {kind} of ECCV Caption: {first}"
        raise CheckError(message, hint="Ingest coco-captions, including Karpathy's test split.")
    return numbers


@dataclass(frozen=True, eq=False)
class Ranker:
    """A label as a ranker: its relevance, and the maximum magnitude of its scores."""

    relevance: Relevance
    scale: float

    def block(self, eccv: Eccv, direction: Direction, index: Rows) -> Scores:
        """Score each query against the gallery, as multiples of one step. NaN becomes -inf."""
        if direction == "i2t":
            return self._in_steps(self.relevance.block(eccv.corpus.references(index), eccv.captions))
        # As in the other direction, images are references and captions are candidates, so the block is transposed.
        return self._in_steps(self.relevance.block(eccv.corpus.references(eccv.images), index).T)

    def pairs(self, eccv: Eccv, direction: Direction, queries: Rows, items: Rows) -> Scores:
        """Score pairs of a query and an item, as multiples of the same step."""
        images, captions = (queries, items) if direction == "i2t" else (items, queries)
        return self._in_steps(self.relevance.pairs(eccv.corpus.references(images), captions))

    def _in_steps(self, scores: Scores) -> Scores:
        steps = np.round(scores * (_STEPS / self.scale))
        steps[np.isnan(steps)] = -np.inf
        return steps


@dataclass(frozen=True, eq=False)
class Gate:
    """A fast label that selects candidates for a `pairs` source.

    The `top` items of each query by the gate are re-ranked by the source. All others follow in the order of the gate.
    """

    label: str
    ranker: Ranker
    top: int = 100


def score_eccv(
    ranker: Ranker,
    eccv: Eccv,
    work: Work,
    progress: Progress = SILENT,
    *,
    ties: Ties = "pessimistic",
    gate: Gate | None = None,
) -> list[Record]:
    """Rank the gallery for each query; write R and the figures, 0..1, to `i2t-00000-of-00001.parquet`, ....

    Returns the means of the figures. NaN scores rank last. A source with pairwise scores needs a gate, because both
    directions have 38 million pairs.
    """
    records = []
    for opened in (ranker, gate.ranker) if gate else (ranker,):
        # The captions are ascending, so it is enough to check both ends.
        if eccv.captions[0] < opened.relevance.rows.start or eccv.captions[-1] >= opened.relevance.rows.stop:
            raise CheckError("not all captions of ECCV Caption are encoded", hint="Encode the test split.")
    for direction in DIRECTIONS:
        with progress.bar(f"eccv {direction}", len(eccv.queries[direction]), "queries") as bar:
            work.table(_file(direction), partial(_table, ranker, eccv, direction, ties, gate, bar.advance))
        table = pq.read_table(work.folder / _file(direction))
        # Each query has the same weight, whatever the number of its positives.
        means = {name: 100 * pc.mean(table[column]).as_py() for name, column in _FIGURES.items()}
        record = {"task": "eccv", "split": "test", "subset": direction, "n": len(table), **means, "ties": ties}
        records.append(record | {"gate": f"{gate.label}, top {gate.top}" if gate else None})
    return records


def _file(direction: Direction) -> str:
    return f"{direction}-00000-of-00001.parquet"


def _table(
    ranker: Ranker, eccv: Eccv, direction: Direction, ties: Ties, gate: Gate | None, advance: Advance
) -> pa.Table:
    """Rank the gallery for all queries of a direction; return R and the figures of each query."""
    queries, columns = eccv.queries[direction], list[NDArray[np.float64]]()
    step = _GATED_BATCH if gate else _BATCH
    for a in range(0, len(queries), step):
        batch = slice(a, a + step)
        index, count = queries.index[batch], queries.positives[batch]
        positive = np.zeros((len(index), len(eccv.gallery(direction))), np.bool_)
        for row, items in zip(positive, queries.items[batch], strict=True):
            row[items] = True
        # Different scores are at least one step apart, so half a step only orders ties.
        bonus = np.where(_own(eccv, direction, index), 0.5 if ties == "pessimistic" else 0.0, 0.0)
        scores = (gate.ranker if gate else ranker).block(eccv, direction, index) + bonus
        if gate:
            _rerank(ranker, eccv, direction, gate.top, index, bonus, scores)
        # No figure reads ranks beyond R, so the maximum R of a batch is enough for its queries.
        hits = ranked_hits(scores, positive, int(count.max()), ties)
        columns.append(np.stack([average_precision_at_r(hits, count), r_precision(hits, count), recall_at_k(hits, 1)]))
        advance(len(index))
    figures = dict(zip(_FIGURES.values(), np.concatenate(columns, axis=1), strict=True))
    return pa.table({"query": queries.ids, "positives": queries.positives, **figures})


def _own(eccv: Eccv, direction: Direction, index: Rows) -> NDArray[np.bool_]:
    """Return the mask, (Q, N) bool, of the items that belong to the query's own image."""
    image = eccv.corpus.image
    if direction == "i2t":
        return np.asarray(index[:, None] == image[eccv.captions])
    return np.asarray(image[index][:, None] == eccv.images)


def _rerank(
    ranker: Ranker, eccv: Eccv, direction: Direction, top: int, index: Rows, bonus: Scores, scores: Scores
) -> None:
    """Replace the `top` scores of each query in `scores`, (Q, N), by the label's, shifted above all others."""
    best = np.argsort(-scores, axis=1, kind="stable")[:, :top]
    items = eccv.gallery(direction)[best.reshape(-1)]
    fine = ranker.pairs(eccv, direction, np.repeat(index, best.shape[1]), items).reshape(best.shape)
    fine += np.take_along_axis(bonus, best, 1)
    # The scores of both labels are within `_STEPS` of 0. An undefined relevance becomes the last of the best.
    np.put_along_axis(scores, best, np.maximum(fine, -2 * _STEPS) + 4 * _STEPS, 1)
