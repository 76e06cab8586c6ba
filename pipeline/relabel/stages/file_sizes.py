"""Bytes of files whose shape is known before their content.

The sizes are exact: empty files of the same shape are written to memory. `manifest.json` and a lookup's `lookup.json`
are left out; they have a few KB and name the machine and the time.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from relabel.corpus import Corpus
from relabel.neighbours.row_digests import keys_bytes
from relabel.neighbours.spec import NeighbourSpec, shard_bytes
from relabel.sources.vector_index import import_faiss, make_index
from relabel.store.arrays import npy_bytes
from relabel.store.fixed_parquet import plain_bytes, zeros
from relabel.store.workdir import part_ranges
from relabel_train.ids import Ids


def shards_bytes(shard: Path, rows: range, rows_per_shard: int) -> int | None:
    """Return the bytes of all shards that have the schema of one; None if a row's bytes depend on its content."""
    schema, lengths = pq.read_schema(shard), [len(part) for part in part_ranges(rows, rows_per_shard)]
    sizes: dict[int, int] = {}
    for length in lengths:
        # All shards but the last have one length: two tables are written at most.
        if length not in sizes:
            table = zeros(schema, length)
            if table is None:
                return None
            sizes[length] = plain_bytes(table)
    return sum(sizes[length] for length in lengths)


def index_bytes(factory: str | None, width: int, count: int) -> int | None:
    """Return the bytes of a FAISS index of `count` vectors; None if they depend on the vectors."""
    if factory is None:
        return 0
    if factory != "Flat":
        return None
    # A flat index is a header and one block per vector: two small indexes give both sizes.
    empty, single = (make_index(factory, width) for _ in range(2))
    single.add(np.zeros((1, width), np.float32))
    header, with_vector = (len(import_faiss().serialize_index(index)) for index in (empty, single))
    return int(header + (with_vector - header) * count)


def neighbours_bytes(corpus: Corpus, spec: NeighbourSpec) -> int:
    """Return the bytes of a table of exact neighbours and of its keys."""
    width = spec.search(corpus).width
    shards = sum(shard_bytes(len(part), width) for part in spec.shards(corpus))
    return shards + keys_bytes(corpus, spec.rows)


def lookup_bytes(corpus: Corpus, rows: range, kind_bytes: int, width: int | None) -> int:
    """Return the bytes of a lookup.

    Parameters
    ----------
    corpus : Corpus
    rows : range
    kind_bytes : int
        Bytes of the arrays that are specific to the kind of the lookup.
    width : int or None
        Neighbours per caption; None for a lookup without neighbours.
    """
    n, first = len(rows), int(corpus.image[rows.start])
    m = int(corpus.image[rows.stop - 1]) + 1 - first
    # Image of each caption, row ranges of images, failed rows; then both tables of ids; then the lists in CSR form.
    arrays: list[tuple[str, tuple[int, ...]]] = [("<i4", (n,)), ("<i8", (m + 1,)), ("<i4", (0,))]
    for names in (corpus.caption_ids[rows.start : rows.stop], corpus.image_ids[first : first + m]):
        arrays += [(a.dtype.str, a.shape) for a in Ids.of(names).arrays("ids").values()]
    if width is not None:
        arrays += [("<i8", (n + 1,)), ("<i4", (n * width,)), ("<f4", (n * width,))]
    return kind_bytes + sum(npy_bytes(dtype, shape) for dtype, shape in arrays)
