"""Neighbour tables for exports: copied into a lookup, with ids instead of rows, or as arrays for a sampler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from relabel.core.errors import UsageError
from relabel.core.types import Pooling, Queries, Rows
from relabel.corpus import Corpus
from relabel.export.base import ArtefactRef, write_tables
from relabel.sources.relevance import Relevance, block_of_sets
from relabel.store.arrays import write_array, write_pieces
from relabel.store.manifest import combine_chunks
from relabel.store.workdir import Work
from relabel_train.samplers import Missing

COLUMNS = ("neighbours", "scores", "same_image")
_DICTIONARY = 1 << 28  # maximum size in bytes of the distinct ids of a row group


def matrix(table: pa.Table, column: str) -> NDArray[Any]:
    """Return a column of q lists as an array (q, width). All lists of a neighbour table have the same length."""
    values: NDArray[Any] = pc.list_flatten(table[column]).to_numpy()
    return values.reshape(len(table), -1)


def write_neighbours(near: ArtefactRef, work: Work) -> dict[str, Any]:
    """Copy the neighbours of captions into a lookup as the CSR arrays of relabel_train.lookup.format.

    Returns the entry `neighbours` of `lookup.json`.
    """
    metadata, config = near.manifest.metadata, near.manifest.config
    rows, width = range(*metadata["rows"]), int(metadata["width"])
    write_array(work, "neighbours.indptr", np.arange(len(rows) + 1, dtype=np.int64) * width)
    for name, column, dtype in (("rows", "neighbours", "<i4"), ("scores", "scores", "<f4")):
        pieces = (matrix(table, column).reshape(-1) for table in near.tables(rows, [column]))
        write_pieces(work, f"neighbours.{name}", dtype, (len(rows) * width,), pieces)
    entry = {"fingerprint": near.manifest.fingerprint, "rows": metadata["rows"], "width": width}
    return entry | {"candidates": config["candidates"], "index": config.get("index")}


def write_neighbour_ids(corpus: Corpus, near: ArtefactRef, queries: Queries, work: Work) -> None:
    """Write a neighbour table with ids instead of rows, one shard at a time.

    The columns are the caption id and image id of the query, or only the image id, and those of `neighbour_ids`.
    """

    def write(part: str, path: Path) -> None:
        read = (table for name, _, rows in near.groups if name == part for table in near.tables(rows, COLUMNS))
        tables = (with_ids(table, corpus, queries) for table in read)
        # The dictionary of a column holds all ids of the split. With the default limit, ids would be repeated instead.
        write_tables(path, tables, dictionary_pagesize_limit=_DICTIONARY)

    for part in near.manifest.parts:
        work.file(part, partial(write, part))


def with_ids(table: pa.Table, corpus: Corpus, queries: Queries) -> pa.Table:
    """Replace the rows of a neighbour table by ids, for queries and neighbours."""
    names = ["caption_id", "image_id"] if queries == "captions" else ["image_id"]
    rows = table["row"] if queries == "captions" else pa.array(corpus.indptr[table["row"].to_numpy()])
    return pa.table({name: corpus.table[name].take(rows) for name in names} | neighbour_ids(table, corpus))


def neighbour_ids(table: pa.Table, corpus: Corpus) -> dict[str, pa.Array]:
    """Return the neighbour columns of a neighbour table with ids instead of rows."""
    lists = combine_chunks(table["neighbours"])
    near, offsets = lists.flatten(), pc.subtract(lists.offsets, lists.offsets[0])
    # Gathered with Arrow, to avoid a Python list of all ids.
    captions, images = (combine_chunks(corpus.table[name].take(near)) for name in ("caption_id", "image_id"))
    return {
        "neighbours": pa.ListArray.from_arrays(offsets, captions),
        "neighbour_images": pa.ListArray.from_arrays(offsets, images),
        "scores": table["scores"],
        "same_image": table["same_image"],
    }


@dataclass(frozen=True, eq=False)
class NeighbourTable:
    """The nearest captions of a range of captions or images, best first.

    `first`: first caption row or image number of the range.
    `rows`, `scores`, `same_image`: (N, k) int32, float32 and bool.
    """

    first: int
    rows: Rows
    scores: NDArray[np.float32]
    same_image: NDArray[np.bool_]

    @property
    def width(self) -> int:
        """Number of neighbours per query."""
        return int(self.rows.shape[1])

    def neighbours(
        self, rows: Rows, k: int, missing: Missing = "raise"
    ) -> tuple[Rows, NDArray[np.floating[Any]], NDArray[np.bool_]]:
        """Return the k nearest captions; see relabel_train.samplers.Neighbours. All lists have the same length."""
        index = np.asarray(rows, np.int64) - self.first
        return self.rows[index, :k], self.scores[index, :k], self.same_image[index, :k]


@dataclass(frozen=True, eq=False)
class ImageNeighbours:
    """The nearest images of images. An image is represented by the row of its first caption.

    Candidates are the images of an image's nearest captions. They are ranked by the relevance of the two sets of
    captions. `table`: the nearest captions of every image. `open_relevance`: opens the label for the ranking.
    """

    corpus: Corpus
    table: NeighbourTable
    open_relevance: Callable[[], Relevance]
    pooling: Pooling

    def neighbours(
        self, rows: Rows, k: int, missing: Missing = "raise"
    ) -> tuple[Rows, NDArray[np.floating[Any]], NDArray[np.bool_]]:
        """Return the k nearest images; see relabel_train.samplers.Neighbours. Short lists are padded with row -1."""
        corpus, relevance, images = self.corpus, self.open_relevance(), self.corpus.image[rows]
        near, scores = np.full((len(rows), k), -1, np.int32), np.full((len(rows), k), np.nan)
        for i, captions in enumerate(self.table.neighbours(images, self.table.width)[0]):
            candidates = np.setdiff1d(corpus.image[captions], images[i])
            # A narrow table may only hold captions of the image itself.
            if len(candidates):
                query, sets = corpus.references([images[i]]), corpus.references(candidates)
                values = block_of_sets(relevance, query, sets, self.pooling)[0]
                # Images without a label have NaN and are sorted last.
                best = np.argsort(-values, kind="stable")[:k]
                near[i, : len(best)], scores[i, : len(best)] = corpus.indptr[candidates[best]], values[best]
        return near, scores, np.zeros(near.shape, np.bool_)


def read_neighbours(near: ArtefactRef, rows: range, maximum: int, minimum: int) -> NeighbourTable:
    """Read the nearest captions of a range of captions or images, 9 bytes per neighbour, in addition to a row group.

    `maximum`, `minimum`: number of neighbours to read per query. A table with fewer than `minimum` is a UsageError.
    """
    k = min(maximum, int(near.manifest.metadata["width"]))
    if k < minimum:
        hint = f"Find more with `relabel neighbours -k {minimum}`."
        message = f"{minimum} neighbours per caption are needed, but the table has {k}"
        raise UsageError(message, where=str(near.folder), hint=hint)
    arrays: list[NDArray[Any]] = [np.empty((len(rows), k), dtype) for dtype in (np.int32, np.float32, np.bool_)]
    row = 0
    for table in near.tables(rows, COLUMNS):
        for name, array in zip(COLUMNS, arrays, strict=True):
            array[row : row + len(table)] = matrix(table, name)[:, :k]
        row += len(table)
    return NeighbourTable(rows.start, *arrays)
