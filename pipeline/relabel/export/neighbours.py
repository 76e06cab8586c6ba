"""Tables of neighbours as the exports read them: copied into a lookup, or opened for a sampler of batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.core.errors import CheckError, UsageError
from relabel.core.numeric.csr import indptr_of
from relabel.core.types import Rows
from relabel.corpus import Corpus
from relabel.store.arrays import write_array, write_pieces
from relabel.store.manifest import Manifest, combine_chunks
from relabel.store.workdir import Work
from relabel_train.samplers import Missing

_DICTIONARY = 1 << 28  # bytes of the distinct ids of a row group


def write_neighbours(folder: Path, manifest: Manifest, work: Work) -> dict[str, Any]:
    """Copy a table of neighbours of captions into a lookup as CSR arrays, one shard at a time.

    The arrays are those of relabel_train.lookup.format.

    `folder`, `manifest`: of the table. Returns dict: entry `neighbours` of `lookup.json`.
    """
    # The header of an `.npy` file states the total, so that a first pass adds up the sizes.
    sizes = [
        pc.list_value_length(pq.read_table(folder / name, columns=["neighbours"])["neighbours"])
        for name in manifest.parts
    ]
    counts = np.concatenate([np.empty(0, np.int32), *(one.to_numpy() for one in sizes)])
    indptr = indptr_of(counts)
    total = int(indptr[-1])
    write_array(work, "neighbours.indptr", indptr)
    write_pieces(work, "neighbours.rows", "<i4", (total,), _column(folder, manifest, "neighbours"))
    write_pieces(work, "neighbours.scores", "<f4", (total,), _column(folder, manifest, "scores"))
    return {
        "fingerprint": manifest.fingerprint,
        "rows": manifest.facts["rows"],
        "within": manifest.semantic["within"],
        "width": int(counts.max(initial=0)),
        "index": manifest.semantic.get("index"),
    }


def id_schema(of: str) -> pa.Schema:
    """Return the schema of neighbours by id: one row per caption, or per image, best neighbours first."""
    text = pa.string()
    lists = {"neighbours": text, "neighbour_images": text, "scores": pa.float32(), "same_image": pa.bool_()}
    ids = ["caption_id", "image_id"] if of == "captions" else ["image_id"]
    fields = dict.fromkeys(ids, text) | {name: pa.list_(kind) for name, kind in lists.items()}
    return pa.schema(list(fields.items()))


def write_neighbour_ids(corpus: Corpus, folder: Path, manifest: Manifest, work: Work) -> None:
    """Write a table of neighbours with ids in place of rows, one shard at a time."""
    of = manifest.facts["of"]
    schema = id_schema(of)

    def write(path: Path, part: str) -> None:
        # The dictionary of a column holds every id of the split; with the default limit, each use would repeat the id.
        options: dict[str, Any] = {"compression": "zstd", "dictionary_pagesize_limit": _DICTIONARY}
        with pq.ParquetFile(folder / part) as shard, pq.ParquetWriter(path, schema, **options) as writer:
            for group in range(shard.num_row_groups):
                table = shard.read_row_group(group).combine_chunks()
                queries = table["row"] if of == "captions" else pa.array(corpus.indptr[table["row"].to_numpy()])
                columns = {name: corpus.table[name].take(queries) for name in ("caption_id", "image_id")}
                columns |= neighbour_ids(table, corpus)
                writer.write_table(pa.table([columns[name] for name in schema.names], schema=schema))

    for part in manifest.parts:
        work.file(part, partial(write, part=part))


def neighbour_ids(table: pa.Table, corpus: Corpus) -> dict[str, pa.Array]:
    """Return the columns of a table of neighbours with ids in place of rows."""
    lists = combine_chunks(table["neighbours"])
    near, offsets = lists.flatten(), pc.subtract(lists.offsets, lists.offsets[0])
    # Ids are gathered from the columns of the corpus, so that no Python list of all ids is made.
    captions, images = (combine_chunks(corpus.table[name].take(near)) for name in ("caption_id", "image_id"))
    return {
        "neighbours": pa.ListArray.from_arrays(offsets, captions),
        "neighbour_images": pa.ListArray.from_arrays(offsets, images),
        "scores": table["scores"],
        "same_image": table["same_image"],
    }


def _column(folder: Path, manifest: Manifest, name: str) -> Iterator[NDArray[Any]]:
    """Yield the flat values of a list column, one shard at a time."""
    for part in manifest.parts:
        yield pc.list_flatten(pq.read_table(folder / part, columns=[name])[name]).to_numpy()


@dataclass(frozen=True, eq=False)
class NeighbourTable:
    """The nearest captions of a range of captions, best first.

    `first`: first row of the range.
    `rows`, `scores`, `same_image`: (N, k) int32, float32 and bool.
    """

    first: int
    rows: Rows
    scores: NDArray[np.float32]
    same_image: NDArray[np.bool_]

    @property
    def width(self) -> int:
        """Neighbours per caption."""
        return int(self.rows.shape[1])

    def neighbours(
        self, rows: Rows, k: int, missing: Missing = "raise"
    ) -> tuple[Rows, NDArray[np.floating[Any]], NDArray[np.bool_]]:
        """Return the k nearest captions, as relabel_train.samplers.Neighbours states; all lists have equal length."""
        index = np.asarray(rows, np.int64) - self.first
        return self.rows[index, :k], self.scores[index, :k], self.same_image[index, :k]


def read_neighbours(folder: Path, manifest: Manifest, rows: range, most: int, least: int) -> NeighbourTable:
    """Read the nearest captions of a range of captions; they take 9 bytes each, and one shard at a time beside them.

    `folder`, `manifest`: of the table. `most`, `least`: neighbours to read per caption: `most`, or as many as there
    are, but no fewer than `least`.
    """
    k = min(most, int(manifest.facts["width"]))
    if k < least:
        todo = f"Use fewer with --set export.plan.depth=N, or find more with `relabel neighbours -k {least}`."
        raise UsageError(f"{least} neighbours per caption are needed, the table has {k}", where=str(folder), todo=todo)
    shape = len(rows), k
    near, scores, same_image = np.empty(shape, np.int32), np.empty(shape, np.float32), np.empty(shape, np.bool_)
    arrays: dict[str, NDArray[Any]] = {"neighbours": near, "scores": scores, "same_image": same_image}
    count = 0
    for name in manifest.parts:
        table = pq.read_table(folder / name)
        row = table["row"].to_numpy()
        selected = np.flatnonzero((row >= rows.start) & (row < rows.stop))
        count += len(selected)
        # All lists of a table have the same length, so a flat column is a matrix.
        for column, array in arrays.items() if len(selected) else ():
            values = pc.list_flatten(table[column]).to_numpy(zero_copy_only=False).reshape(len(row), -1)
            array[row[selected] - rows.start] = values[selected, :k]
    # A row that no shard holds would leave its part of the arrays undefined.
    if count != len(rows):
        message = f"{len(rows) - count} of rows {rows.start} to {rows.stop - 1} are not in the table of neighbours"
        raise CheckError(message, where=str(folder), todo="Run `relabel neighbours` again.")
    return NeighbourTable(rows.start, near, scores, same_image)
