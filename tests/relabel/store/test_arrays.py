"""Contract: arrays and indexes have the bytes that numpy and faiss write. A full disk is an error at every size
below that of the file, the last byte included. Tables in a file equal those that were written and leave no name behind.
"""

from __future__ import annotations

import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from relabel.store.arrays import map_tables, save_index, save_pieces

ARRAYS = [np.arange(3000).reshape(-1, 3), np.empty((0, 4), "f4"), np.eye(4)[:, ::2], np.array(["ä", "bc"]), np.array(7)]


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Limit all files to `size` bytes, which a writer sees as a full disk."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)


def check_bytes(write: Callable[[], Any], ours: Path, theirs: Path) -> None:
    write()
    contents = ours.read_bytes()
    assert contents == theirs.read_bytes()
    for size in {0, 1, 100, len(contents) // 2, len(contents) - 5, len(contents) - 1}:
        with file_size_limit(size), pytest.raises(OSError, match="File too large"):
            write()
    with file_size_limit(len(contents)):
        write()
    assert ours.read_bytes() == contents


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype}{a.shape}")
def test_an_array_equals_the_file_of_numpy_or_is_an_error(array: Any, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours.npy", tmp_path / "theirs.npy"
    np.save(theirs, np.asarray(array, order="C"))
    check_bytes(lambda: save_pieces(ours, array.dtype.str, array.shape, [array]), ours, theirs)


@pytest.mark.parametrize("factory", ["Flat", "IVF4,Flat", "HNSW8"])
def test_an_index_equals_the_file_of_faiss_or_is_an_error(factory: str, tmp_path: Path) -> None:
    faiss = pytest.importorskip("faiss")
    vectors = np.random.default_rng(0).standard_normal((400, 8)).astype(np.float32)
    index = faiss.index_factory(8, factory, faiss.METRIC_INNER_PRODUCT)
    index.train(vectors)
    index.add(vectors)
    faiss.write_index(index, str(tmp_path / "theirs"))
    check_bytes(lambda: save_index(tmp_path / "ours", index), tmp_path / "ours", tmp_path / "theirs")


def test_mapped_tables_equal_those_written(tmp_path: Path) -> None:
    names = [["a", None], ["b", "a", "ä"]]
    tables = [pa.table({"x": pa.array(part).dictionary_encode(), "y": list(range(len(part)))}) for part in names]
    mapped = map_tables(tmp_path / "x", iter(tables), tables[0].schema)
    assert mapped.to_pylist() == pa.concat_tables(tables).to_pylist()
    assert len(map_tables(tmp_path / "x", [], tables[0].schema)) == 0
    assert not list(tmp_path.iterdir())
