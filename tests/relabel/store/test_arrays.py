"""Contract: arrays and indexes have the bytes that numpy and faiss write. A full disk is an error at every size
below that of the file, the last byte included. Tables in a file equal those that were written and leave no name behind.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.relabel.store.file_sizes import file_size_limit

from relabel.store.arrays import map_tables, save_index, save_pieces

ARRAYS = [
    np.arange(3000, dtype=np.int64).reshape(-1, 3),
    np.empty((0, 4), np.float32),
    np.arange(12, dtype="<f4").reshape(3, 4)[:, ::2],
    np.array(["ä", "bc"]),
    np.array([True, False]),
    np.array(7, np.int32),
]


def save_array(path: Path, array: Any) -> None:
    save_pieces(path, array.dtype.str, array.shape, [array])


def fails_short_of(path: Path, write: Callable[[], Any]) -> None:
    write()
    contents = path.read_bytes()
    for size in {0, 1, 100, len(contents) // 2, len(contents) - 5, len(contents) - 1}:
        with file_size_limit(size), pytest.raises(OSError, match="File too large"):
            write()
    with file_size_limit(len(contents)):
        write()
    assert path.read_bytes() == contents


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype}{a.shape}")
def test_an_array_equals_the_file_of_numpy(array: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "theirs.npy", np.asarray(array, order="C"))
    save_array(tmp_path / "ours.npy", array)
    assert (tmp_path / "ours.npy").read_bytes() == (tmp_path / "theirs.npy").read_bytes()
    np.testing.assert_array_equal(np.load(tmp_path / "ours.npy", mmap_mode="r" if array.size else None), array)


@pytest.mark.parametrize("factory", ["Flat", "IVF4,Flat", "HNSW8"])
def test_an_index_equals_the_file_of_faiss_or_is_an_error(factory: str, tmp_path: Path) -> None:
    faiss = pytest.importorskip("faiss")
    vectors = np.random.default_rng(0).standard_normal((400, 8)).astype(np.float32)
    index = faiss.index_factory(8, factory, faiss.METRIC_INNER_PRODUCT)
    index.train(vectors)
    index.add(vectors)
    faiss.write_index(index, str(tmp_path / "theirs"))
    save_index(tmp_path / "ours", index)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    fails_short_of(tmp_path / "a", lambda: save_index(tmp_path / "a", index))


def test_mapped_tables_equal_those_written(tmp_path: Path) -> None:
    names = [["a", None], ["b", "a", "ä"]]
    tables = [pa.table({"x": pa.array(part).dictionary_encode(), "y": list(range(len(part)))}) for part in names]
    mapped = map_tables(tmp_path / "x", iter(tables), tables[0].schema)
    assert mapped.to_pylist() == pa.concat_tables(tables).to_pylist()
    assert len(map_tables(tmp_path / "x", [], tables[0].schema)) == 0
    assert not list(tmp_path.iterdir())
