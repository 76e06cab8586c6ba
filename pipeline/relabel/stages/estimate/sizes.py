"""Bytes of files whose shape is known before their numbers: exact, by writing zeros to nowhere.

An artefact's `manifest.json` and a lookup's `lookup.json`, a few KB that name the machine and the time, are left out.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from relabel.corpus import Corpus
from relabel.neighbours.row_digests import keys_bytes
from relabel.neighbours.schema import shard_bytes
from relabel.neighbours.spec import Question
from relabel.sources.cosine import make_index
from relabel.store.fixed_parquet import plain_bytes, zeros
from relabel.store.workdir import part_ranges
from relabel_train.ids import Ids


def shards_bytes(shard: Path, rows: range, rows_per_shard: int) -> int | None:
    """Bytes of all shards that are like a given one; None where a row's bytes depend on what is in it."""
    schema, lengths = pq.read_schema(shard), [len(part) for part in part_ranges(rows, rows_per_shard)]
    known: dict[int, int] = {}
    for length in lengths:
        if length not in known:
            table = zeros(schema, length)
            if table is None:
                return None
            known[length] = plain_bytes(table)
    return sum(known[length] for length in lengths)


def index_bytes(factory: str | None, width: int, count: int) -> int | None:
    """Bytes of a FAISS index; None where that depends on the vectors."""
    if factory is None:
        return 0
    if factory != "Flat":
        return None
    import faiss

    empty, one = (make_index(factory, width) for _ in range(2))
    one.add(np.zeros((1, width), np.float32))
    none, some = (len(faiss.serialize_index(index)) for index in (empty, one))
    return int(none + (some - none) * count)


def neighbours_bytes(corpus: Corpus, question: Question) -> int:
    """Bytes of a table of exact neighbours and of its keys."""
    width = question.search(corpus).width
    shards = sum(shard_bytes(len(part), width) for part in question.shards(corpus))
    return shards + keys_bytes(corpus, question.rows)


def lookup_bytes(corpus: Corpus, rows: range, own: int, width: int | None) -> int:
    """Bytes of a lookup.

    Parameters
    ----------
    corpus : Corpus
    rows : range
    own : int
        Bytes of the arrays of its kind.
    width : int or None
        Neighbours a caption; None without.
    """
    n, first = len(rows), int(corpus.image[rows.start])
    m = int(corpus.image[rows.stop - 1]) + 1 - first
    arrays: list[tuple[str, tuple[int, ...]]] = [("<i4", (n,)), ("<i8", (m + 1,)), ("<i4", (0,))]
    for names in (corpus.caption_ids[rows.start : rows.stop], corpus.image_ids[first : first + m]):
        arrays += [(a.dtype.str, a.shape) for a in Ids.of(names).arrays("ids").values()]
    if width is not None:
        arrays += [("<i8", (n + 1,)), ("<i4", (n * width,)), ("<f4", (n * width,))]
    return own + arrays_bytes(arrays)


def arrays_bytes(arrays: Iterable[tuple[str, tuple[int, ...]]]) -> int:
    """Bytes of `.npy` files of given dtypes and shapes."""
    return sum(npy_bytes(dtype, shape) for dtype, shape in arrays)


def npy_bytes(dtype: str, shape: tuple[int, ...]) -> int:
    """Bytes of one `.npy` file."""
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": dtype, "fortran_order": False, "shape": shape})
    return len(head.getvalue()) + int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
