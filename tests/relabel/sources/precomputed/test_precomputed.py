"""Contract: vectors of captions, images or both, from any of three formats, become cosines of the corpus's rows.
Blocks, pairs and neighbours equal loops. Missing ids, unequal widths, NaN, zero vectors and lengths other than 1 are
refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from tests.relabel.sources.encodings import encode, find
from tests.relabel.sources.fuse.fixtures import small_corpus

from relabel.core.errors import CheckError, MissingError, RelabelError, UsageError
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling
from relabel.corpus import Corpus, References
from relabel.sources.finder import Search
from relabel.sources.precomputed import ExternalVectorRelevance, Precomputed, PrecomputedParams

WIDTH = 9
Write = Callable[[Path, list[str], NDArray[Any]], Path]


def as_npy(folder: Path, ids: list[str], vectors: NDArray[Any]) -> Path:
    np.save(folder / "given.npy", vectors)
    (folder / "given.ids.txt").write_text("\n".join(ids) + "\n", encoding="utf-8")
    return folder / "given.npy"


def as_npy_json(folder: Path, ids: list[str], vectors: NDArray[Any]) -> Path:
    path = as_npy(folder, ids, vectors)
    (folder / "given.ids.txt").unlink()
    (folder / "given.ids.json").write_text(json.dumps(ids), encoding="utf-8")
    return path


def as_npy_npy(folder: Path, ids: list[str], vectors: NDArray[Any]) -> Path:
    path = as_npy(folder, ids, vectors)
    (folder / "given.ids.txt").unlink()
    np.save(folder / "given.ids.npy", np.array([int(i.partition(":")[2]) for i in ids]))  # plain numbers are valid
    return path


def as_parquet(folder: Path, ids: list[str], vectors: NDArray[Any]) -> Path:
    pq.write_table(pa.table({"id": ids, "vector": list(vectors)}), folder / "given.parquet")
    return folder / "given.parquet"


def as_safetensors(folder: Path, ids: list[str], vectors: NDArray[Any]) -> Path:
    from safetensors.numpy import save_file

    save_file({"embeddings": np.ascontiguousarray(vectors)}, folder / "given.safetensors")
    (folder / "given.ids.txt").write_text("\n".join(ids), encoding="utf-8")
    return folder / "given.safetensors"


FORMATS: list[Write] = [as_npy, as_npy_json, as_npy_npy, as_parquet, as_safetensors]


def vectors_of(ids: list[str], seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(len(ids), WIDTH)).astype(np.float32)


def encoded(corpus: Corpus, folder: Path, rows: range | None = None, **params: Any) -> ExternalVectorRelevance:
    return encode(Precomputed(PrecomputedParams(**params)), corpus, folder / "encoding", rows, 7)[0]  # type: ignore[no-any-return]


def unit(vectors: NDArray[Any]) -> NDArray[np.float64]:
    widened = vectors.astype(np.float64)
    return widened / np.linalg.norm(widened, axis=1, keepdims=True)


@pytest.mark.parametrize("write", FORMATS)
def test_captions_from_every_format(tmp_path: Path, write: Write) -> None:
    """Check ids in any order, with more ids than the corpus has; every pooling equals a loop."""
    corpus = small_corpus()
    ids = [*reversed(corpus.caption_ids), "c:99999"]
    vectors = vectors_of(ids)
    label = encoded(corpus, tmp_path, captions=str(write(tmp_path, ids, vectors)))
    vector_of = dict(zip(ids, unit(vectors), strict=True))
    captions = np.array([4, 0, 17], np.int32)
    poolings: tuple[Pooling, ...] = ("first", "max", "mean")
    for how in poolings:
        block = label.block(corpus.references(range(12)), captions, how)
        for m, j in product(range(12), range(3)):
            rows = corpus.references([m]).rows
            each = [float(vector_of[corpus.caption_ids[r]] @ vector_of[corpus.caption_ids[captions[j]]]) for r in rows]
            expected = {"first": each[0], "max": max(each), "mean": sum(each) / len(each)}[how]
            assert block[m, j] == pytest.approx(expected, abs=1e-6)
            assert label.pairs(References.of([rows]), captions[j : j + 1], how)[0] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("rows", [None, range(6, 31)])
def test_images_and_captions_are_cross_modal(tmp_path: Path, rows: range | None) -> None:
    """Check that set is the cosine of image and caption, also for neighbours of images and captions."""
    corpus = small_corpus()
    rows = rows or range(len(corpus))
    (tmp_path / "images").mkdir()
    captions, images = vectors_of(corpus.caption_ids), vectors_of(corpus.image_ids, 1)
    label = encoded(
        corpus,
        tmp_path,
        rows,
        pooling="set",
        captions=str(as_npy(tmp_path, corpus.caption_ids, captions)),
        images=str(as_parquet(tmp_path / "images", corpus.image_ids, images)),
    )
    left, right = unit(images), unit(captions)
    owners = np.unique(corpus.image[rows.start : rows.stop])
    every = np.arange(rows.start, rows.stop, dtype=np.int32)
    block = label.block(corpus.references(owners), every)
    pairs = label.pairs(corpus.references(np.repeat(owners, len(every))), np.tile(every, len(owners)))
    for m, image in enumerate(owners):
        for j, row in enumerate(every):
            expected = float(left[image] @ right[row])
            assert block[m, j] == pytest.approx(expected, abs=1e-6)
            assert pairs[m * len(every) + j] == pytest.approx(expected, abs=1e-6)
    assert label.block(corpus.references(owners), every, "max")[0, 1] == pytest.approx(
        max(float(right[r] @ right[every[1]]) for r in corpus.references(owners[:1]).rows), abs=1e-6
    )
    for search in (
        Search(corpus.references(owners), np.full(len(owners), -1, np.int32), every, 5),
        Search(References.single(every), every, every, 5),
    ):
        finder = label.finder(search, None, Runtime(threads=1))
        neighbours, scores = find(finder, tmp_path / f"work-{len(search.queries)}")
        for q in range(len(search.queries)):
            mine = label.pairs(search.queries.take(np.full(len(every), q)), every)
            order = sorted((-s, r) for s, r in zip(mine.tolist(), every.tolist(), strict=True))
            wanted_rows = [r for _, r in order if r != search.exclude[q]][:5]
            assert neighbours[q].tolist() == wanted_rows
            assert scores[q].tolist() == [mine[r - rows.start] for r in wanted_rows]


def test_vectors_of_images_alone_represent_their_captions(tmp_path: Path) -> None:
    corpus = small_corpus()
    images = vectors_of(corpus.image_ids)
    path = as_npy(tmp_path, corpus.image_ids, images)
    label = encoded(corpus, tmp_path, pooling="set", images=str(path), stored="float16")
    expected = unit(images) @ unit(images)[corpus.image].T
    every = np.arange(len(corpus), dtype=np.int32)
    assert label.block(corpus.references(range(12)), every) == pytest.approx(expected, abs=2e-3)


def test_a_row_that_is_not_encoded_has_no_score(tmp_path: Path) -> None:
    """Check that no row reads one of the image vectors, which are stored after those of the captions."""
    corpus = small_corpus()
    path = as_npy(tmp_path, corpus.image_ids, vectors_of(corpus.image_ids))
    label = encoded(corpus, tmp_path, range(0, 10), pooling="set", images=str(path))
    with pytest.raises(IndexError):
        label.block(corpus.references([0]), np.array([10], np.int32))


def spoil(vectors: NDArray[np.float32], value: float) -> NDArray[np.float32]:
    vectors[3, :] = value
    return vectors


Prepare = Callable[[Corpus, Path], dict[str, Any]]
BAD: dict[str, tuple[type[RelabelError], str, Prepare]] = {
    "nothing": (UsageError, "no file of vectors is set", lambda c, f: {}),
    "no file": (MissingError, "no such file of vectors", lambda c, f: {"captions": str(f / "none.npy")}),
    "ids missing": (
        CheckError,
        "no vector for 2 of .* captions: c:0, c:10; its ids look like c:11",
        lambda c, f: {"captions": str(as_npy(f, c.caption_ids[2:], vectors_of(c.caption_ids[2:])))},
    ),
    "NaN": (
        CheckError,
        "1 vectors are zero, not finite.*first c:20",
        lambda c, f: {"captions": str(as_npy(f, c.caption_ids, spoil(vectors_of(c.caption_ids), np.nan)))},
    ),
    "a length beyond float64": (
        CheckError,
        "1 vectors are .*too long or short to have a length; first c:20",
        lambda c, f: {"captions": str(as_npy(f, c.caption_ids, spoil(vectors_of(c.caption_ids).astype("<f8"), 1e200)))},
    ),
    "length": (
        CheckError,
        r"\d vectors are not of unit length; first c:0: .*normalise",
        lambda c, f: {"captions": str(as_npy(f, c.caption_ids, vectors_of(c.caption_ids))), "length": "refuse"},
    ),
    "widths": (
        CheckError,
        "differ in width: given.npy 9, given.parquet 5",
        lambda c, f: {
            "captions": str(as_npy(f, c.caption_ids, vectors_of(c.caption_ids))),
            "images": str(as_parquet(f, c.image_ids, vectors_of(c.image_ids)[:, :5])),
        },
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_by_name(tmp_path: Path, name: str) -> None:
    error, message, prepare = BAD[name]
    corpus = small_corpus()
    with pytest.raises(error, match=message):
        encoded(corpus, tmp_path, **prepare(corpus, tmp_path))


def test_one_of_several_tensors_must_be_named(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    corpus = small_corpus()
    vectors = vectors_of(corpus.caption_ids)
    save_file({"text": vectors, "other": vectors[:2]}, tmp_path / "v.safetensors")
    (tmp_path / "names.json").write_text(json.dumps(corpus.caption_ids))
    params = {"captions": str(tmp_path / "v.safetensors"), "caption_ids": str(tmp_path / "names.json")}
    with pytest.raises(UsageError, match=r"it holds .*other.*tensor"):
        encoded(corpus, tmp_path, **params)
    with pytest.raises(UsageError, match="no tensor image"):
        encoded(corpus, tmp_path, **params, tensor="image")
    label = encoded(corpus, tmp_path, **params, tensor="text")
    assert label.vectors == pytest.approx(unit(vectors), abs=1e-6)


def test_refs_needs_vectors_of_images() -> None:
    with pytest.raises(UsageError, match="no pooling 'set': it takes vectors of images"):
        Precomputed(PrecomputedParams(captions="x.npy", pooling="set"))
    assert Precomputed(PrecomputedParams(images="x.npy", pooling="set")).spec.symmetric
    # Vectors of images are compared unless another pooling is named.
    assert not Precomputed(PrecomputedParams(images="x.npy", captions="y.npy")).spec.symmetric
    assert PrecomputedParams(images="x.npy", captions="y.npy", pooling="max").pooling == "max"
