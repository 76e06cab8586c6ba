"""Contract: vectors of captions, images or both, from any of three formats, become cosines of the corpus's rows.
Missing ids, unequal widths, NaN, zero vectors and lengths other than 1 are refused by name, and so are tables without
vectors and files that misstate their size.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tests.relabel.sources.encodings import encode
from tests.relabel.sources.fuse.fixtures import small_corpus

from relabel.core.errors import CheckError, MissingError, RelabelError, UsageError
from relabel.corpus import Corpus, References
from relabel.sources.precomputed import ExternalVectorRelevance, Precomputed, PrecomputedParams
from relabel.sources.precomputed.files import read_vector_file

WIDTH = 9
Write = Callable[[Path, list[str], NDArray[Any]], Path]


def as_npy(folder: Path, ids: list[str], vectors: NDArray[Any]) -> Path:
    np.save(folder / "given.npy", vectors)
    (folder / "given.ids.txt").write_text("\n".join(ids) + "\n", encoding="utf-8")
    return folder / "given.npy"


def as_parquet(folder: Path, ids: list[str], vectors: NDArray[Any]) -> Path:
    pq.write_table(pa.table({"id": ids, "vector": list(vectors)}), folder / "given.parquet")
    return folder / "given.parquet"


def as_safetensors(folder: Path, ids: list[str], vectors: NDArray[Any]) -> Path:
    save_file({"embeddings": np.ascontiguousarray(vectors)}, folder / "given.safetensors")
    (folder / "given.ids.txt").write_text("\n".join(ids), encoding="utf-8")
    return folder / "given.safetensors"


FORMATS: list[Write] = [as_npy, as_parquet, as_safetensors]


def vectors_of(ids: list[str], seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(len(ids), WIDTH)).astype(np.float32)


def encoded(corpus: Corpus, folder: Path, rows: range | None = None, **params: Any) -> ExternalVectorRelevance:
    return encode(Precomputed(PrecomputedParams(**params)), corpus, folder / "encoding", rows, 7)[0]  # type: ignore[no-any-return]


def unit(vectors: NDArray[Any]) -> NDArray[np.float64]:
    widened = vectors.astype(np.float64)
    return widened / np.linalg.norm(widened, axis=1, keepdims=True)


@pytest.mark.parametrize("write", FORMATS)
def test_captions_from_every_format(tmp_path: Path, write: Write) -> None:
    """Check ids in any order, with more ids than the corpus has."""
    corpus = small_corpus()
    ids = [*reversed(corpus.caption_ids), "c:99999"]
    vectors = vectors_of(ids)
    label = encoded(corpus, tmp_path, captions=str(write(tmp_path, ids, vectors)))
    expected = unit(vectors)[len(ids) - 2 :: -1]
    every = np.arange(len(corpus), dtype=np.int32)
    np.testing.assert_allclose(label.block(References.single(every), every), expected @ expected.T, atol=1e-6)


@pytest.mark.parametrize("rows", [None, range(6, 31)])
def test_images_and_captions_are_cross_modal(tmp_path: Path, rows: range | None) -> None:
    """Check that `set` is the cosine of image and caption, and that the others pool over captions."""
    corpus = small_corpus()
    rows = rows or range(len(corpus))
    (tmp_path / "images").mkdir()
    captions, images = vectors_of(corpus.caption_ids), vectors_of(corpus.image_ids, 1)
    label = encoded(
        corpus,
        tmp_path,
        rows,
        captions=str(as_npy(tmp_path, corpus.caption_ids, captions)),
        images=str(as_parquet(tmp_path / "images", corpus.image_ids, images)),
    )
    left, right = unit(images), unit(captions)
    owners, every = np.unique(corpus.image[rows.start : rows.stop]), np.arange(rows.start, rows.stop, dtype=np.int32)
    expected = left[owners] @ right[every].T
    np.testing.assert_allclose(label.block(corpus.references(owners), every), expected, atol=1e-6)
    best = [(right[references] @ right[every].T).max(axis=0) for references in corpus.references(owners)]
    np.testing.assert_allclose(label.block(corpus.references(owners), every, "max"), best, atol=1e-6)


def test_bad_input_is_refused_by_name(tmp_path: Path) -> None:
    corpus = small_corpus()
    ids, good = corpus.caption_ids, vectors_of(corpus.caption_ids)
    unmeasurable = good.astype("<f8")
    unmeasurable[3] = 1e200
    images = as_parquet(tmp_path, corpus.image_ids, vectors_of(corpus.image_ids)[:, :5])

    def refused(error: type[RelabelError], message: str, vectors: NDArray[Any] = good, **params: str) -> None:
        path = as_npy(tmp_path, ids[-len(vectors) :], vectors)
        with pytest.raises(error, match=message):
            encoded(corpus, tmp_path, **{"captions": str(path), **params})

    refused(MissingError, "no such file of vectors", captions=str(tmp_path / "none.npy"))
    refused(CheckError, "no vector for 2 of .* captions: c:0-0, c:1-0; ids in the file: c:1-1", good[2:])
    refused(CheckError, "1 vectors cannot be normalized.*first c:2-0", np.where(good == good[3], np.nan, good))
    refused(CheckError, "1 vectors .*their norm is out of range; first c:2-0", unmeasurable)
    save_file({"a": good, "b": good}, tmp_path / "two.safetensors")
    (tmp_path / "two.ids.txt").write_text("\n".join(ids))
    refused(UsageError, "expected one tensor, found a, b", captions=str(tmp_path / "two.safetensors"))
    refused(CheckError, "differ in width: given.npy 9, given.parquet 5", images=str(images))
    with pytest.raises(UsageError, match="no file of vectors is set"):
        encoded(corpus, tmp_path)


VECTORS = np.eye(3, dtype=np.float32)


def saved(array: Any, **more: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, **more)
    return stream.getvalue()


@pytest.mark.parametrize(
    "array", [np.asfortranarray(VECTORS), VECTORS.astype(">f8"), VECTORS.astype(">i2"), VECTORS[::2]]
)
def test_every_layout_of_numbers_is_read(array: Any, tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(saved(array))
    (tmp_path / "a.ids.json").write_text(json.dumps([f"ç{i}" for i in range(len(array))]))
    vectors = read_vector_file(tmp_path / "a.npy")
    assert np.array_equal(vectors.vectors, array)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"vector": pa.array([1.0, 2.0])}, "list_value_length"),
        ({"vector": pa.array(["a", "b"])}, "list_value_length"),
        ({"vector": pa.array([[1.0], None])}, "expected 1 numbers, found None for b"),
        ({"vector": pa.array([[1.0], [1.0, 2.0]])}, "expected 1 numbers, found 2 for b"),
        ({"id": pa.array(["a", None])}, "id 1 is empty"),
        ({"id": pa.array([1.5, 2.5])}, "id 0: 'id': expected a string or an integer"),
        ({"id": pa.array(["a", "a"])}, "duplicate id a"),
    ],
)
def test_a_table_without_vectors_is_refused(columns: dict[str, Any], message: str, tmp_path: Path) -> None:
    good = {"id": pa.array(["a", "b"]), "vector": pa.array([[1.0], [2.0]])}
    pq.write_table(pa.table(good | columns), tmp_path / "a.parquet")
    with pytest.raises(CheckError, match=message):
        read_vector_file(tmp_path / "a.parquet")


def test_a_false_safetensors_header_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.ids.txt").write_text("1\n2\n3\n")
    path = tmp_path / "a.safetensors"
    save_file({"x": VECTORS}, path)
    contents = path.read_bytes()
    changes = ((b"[3,3]", b"[9,9]"), (b"F32", b"F64"), (b"F32", b"Q32"), (b'"x"', b"[[["))
    lies = [contents[:-1], b"", b"\xff" * 8, struct.pack("<Q", 1 << 62) + contents[8:]]
    for lie in [*lies, *(contents.replace(*change) for change in changes)]:
        path.write_bytes(lie)
        with pytest.raises(CheckError) as caught:
            read_vector_file(path)
        assert caught.value.where == str(path)
