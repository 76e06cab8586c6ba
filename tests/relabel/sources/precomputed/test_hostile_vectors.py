"""Contract: damaged files of vectors, files of another kind, and files that misstate their size are refused by name.

No memory is allocated for a shape, header or line that the file does not contain.
"""

from __future__ import annotations

import io
import json
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from relabel.core.errors import CheckError, MissingError
from relabel.sources.precomputed.files import read_vector_file
from relabel.sources.words.vectors import WordVectorsFile, read_word_vectors

VECTORS = np.eye(3, dtype=np.float32)


def npy(header: str, data: bytes = b"") -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def saved(array: Any, **more: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, **more)
    return stream.getvalue()


def npz() -> bytes:
    stream = io.BytesIO()
    np.savez(stream, a=VECTORS)
    return stream.getvalue()


DAMAGED_NPY: dict[str, bytes] = {
    "empty": b"",
    "npz": npz(),
    "1-d": saved(VECTORS[0]),
    "objects": saved(np.array([[1, "a"]], object), allow_pickle=True),
    "text": saved(np.array([["a"]])),
    "cut": saved(VECTORS)[:-1],
    "huge": npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 3), }"),
    "negative": npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 3), }", b"\0" * 36),
    "no dict": npy("[]"),
    "type": npy("{'descr': 'wrong', 'fortran_order': False, 'shape': (3, 3), }", b"\0" * 36),
}


@pytest.mark.parametrize("name", DAMAGED_NPY)
def test_an_invalid_array_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(DAMAGED_NPY[name])
    (tmp_path / "a.ids.txt").write_text("1\n2\n3\n")
    tracemalloc.start()
    with pytest.raises(CheckError) as caught:
        read_vector_file(path)
    assert tracemalloc.get_traced_memory()[1] < 32 << 20
    tracemalloc.stop()
    assert caught.value.where == str(path)
    good = tmp_path / "b.npy"
    good.write_bytes(saved(VECTORS))
    with pytest.raises(CheckError) as caught:
        read_vector_file(good, ids=path)  # the same file as a file of ids
    assert str(path) in str(caught.value) or name == "text"


@pytest.mark.parametrize(
    "array", [np.asfortranarray(VECTORS), VECTORS.astype(">f8"), VECTORS.astype(">i2"), VECTORS[::2]]
)
def test_every_layout_of_numbers_is_read(array: Any, tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(saved(array))
    (tmp_path / "a.ids.json").write_text(json.dumps([f"ç{i}" for i in range(len(array))]))
    vectors = read_vector_file(tmp_path / "a.npy")
    assert np.array_equal(vectors.vectors, array)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", "{}"),
        ("a.json", "[1, null, 2]"),
        ("a.json", '["1", "1", "2"]'),
        ("a.txt", "1\n1\n2\n"),
        ("a.txt", "1\n2\n"),
        ("a.txt", "1\nç\udcff\n3\n"),
    ],
)
def test_invalid_ids_are_refused(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / "v.npy").write_bytes(saved(VECTORS))
    (tmp_path / name).write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(CheckError):
        read_vector_file(tmp_path / "v.npy", ids=tmp_path / name)


def test_only_line_feeds_separate_ids(tmp_path: Path) -> None:
    (tmp_path / "v.npy").write_bytes(saved(VECTORS))
    (tmp_path / "v.ids.txt").write_text("a\u2028b\nc\x0bd\r\ne\n", newline="")
    assert list(read_vector_file(tmp_path / "v.npy").row_of) == ["a\u2028b", "c\x0bd", "e"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"vector": pa.array([1.0, 2.0])}, "list_value_length"),
        ({"vector": pa.array(["a", "b"])}, "list_value_length"),
        ({"vector": pa.array([[1.0], None])}, "expected 1 numbers, found None for b"),
        ({"vector": pa.array([[1.0], [1.0, 2.0]])}, "expected 1 numbers, found 2 for b"),
        ({"id": pa.array(["a", None])}, "id 1 is empty"),
        ({"id": pa.array([1.5, 2.5])}, "id 0: 'id': expected a string or a whole number"),
        ({"id": pa.array(["a", "a"])}, "id a is there twice"),
    ],
)
def test_a_table_without_vectors_is_refused(columns: dict[str, Any], message: str, tmp_path: Path) -> None:
    good = {"id": pa.array(["a", "b"]), "vector": pa.array([[1.0], [2.0]])}
    pq.write_table(pa.table(good | columns), tmp_path / "a.parquet")
    with pytest.raises(CheckError, match=message):
        read_vector_file(tmp_path / "a.parquet")


def test_a_table_with_a_doubled_column_or_without_rows_is_refused(tmp_path: Path) -> None:
    ids, vectors = pa.array(["a"]), pa.array([[1.0]])
    tables = [pa.Table.from_arrays([ids, vectors, ids], ["id", "vector", "id"])]
    tables += [pa.Table.from_arrays([ids, vectors, vectors], ["id", "vector", "vector"])]
    tables += [pa.table({"id": ids, "vector": vectors}).slice(1)]
    for table in tables:
        pq.write_table(table, tmp_path / "a.parquet")
        with pytest.raises(CheckError):
            read_vector_file(tmp_path / "a.parquet")


def test_a_false_safetensors_header_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.ids.txt").write_text("1\n2\n3\n")
    path = tmp_path / "a.safetensors"
    save_file({"x": VECTORS}, path)
    contents = path.read_bytes()
    lies = [
        contents[:-1],
        b"",
        b"\xff" * 8,
        struct.pack("<Q", 1 << 62) + contents[8:],
        contents.replace(b"[3,3]", b"[9,9]"),
    ]
    for lie in [
        *lies,
        contents.replace(b"F32", b"F64"),
        contents.replace(b"F32", b"Q32"),
        contents.replace(b'"x"', b"[[["),
    ]:
        path.write_bytes(lie)
        with pytest.raises(CheckError) as caught:
            read_vector_file(path)
        assert caught.value.where == str(path)


def test_paths_that_are_not_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.npy").mkdir()
    (tmp_path / "null.npy").symlink_to("/dev/zero")
    with pytest.raises(MissingError):
        read_vector_file(tmp_path / "folder.npy")
    with pytest.raises(MissingError, match="not a regular file"):
        read_vector_file(tmp_path / "null.npy")
    with pytest.raises(MissingError, match="not a regular file"):
        WordVectorsFile.at("/dev/zero")


def zipped(change: Callable[[bytearray], None], kind: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", kind) as archive:
        archive.writestr("v.txt", "a 1 2\nb 3 4\n" * 200)
    content = bytearray(stream.getvalue())
    change(content)
    return bytes(content)


def encrypted(content: bytearray) -> None:
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1


def damaged_data(content: bytearray) -> None:
    content[45:60] = b"\xff" * 15


WORDS: dict[str, bytes] = {
    "header of too many words": b"1000000000000 2\na 1 2\n",
    "header of too great a width": b"1 1000000000000\na 1 2\n",
    "long line": b"a" + b" 1.5" * 2_000_000,
    "long word": b"a 1 2\n" + b"b" * 5_000_000 + b" 1 2\n",
    "zip with a password": zipped(encrypted),
    "zip with damaged data": zipped(damaged_data),
}


@pytest.mark.parametrize("name", WORDS)
def test_invalid_word_vectors_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "v.txt"
    path.write_bytes(WORDS[name])
    tracemalloc.start()
    with pytest.raises(CheckError) as caught:
        read_word_vectors(WordVectorsFile.at(path))
    assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()
    assert str(caught.value.where).startswith(str(path))
