"""Contract: a factory string is checked before any work, and missing faiss is an error that names both extras. An
index on a GPU finds the same vectors. The stored index is the same in every run.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relabel.core.errors import MissingError, UsageError
from relabel.topk.vector_index import change_index, import_faiss, make_index, to_device

faiss = pytest.importorskip("faiss")
D = 8
VECTORS = np.random.default_rng(0).normal(size=(400, D)).astype(np.float32)
VECTORS /= np.linalg.norm(VECTORS, axis=1, keepdims=True)


def built(factory: str, device: Any = "auto", vectors: Any = VECTORS) -> Any:
    def build(place: Any) -> None:
        if not place.is_trained:
            place.train(vectors)
        place.add(vectors)

    return change_index(make_index(factory, D), factory, device, build)


def test_search_parameters_follow_a_semicolon_and_are_stored(tmp_path: Path) -> None:
    exact = VECTORS[:20] @ VECTORS.T
    best = np.sort(exact, axis=1)[:, ::-1][:, :10]
    # A search of all sixteen lists is exact; one of a single list is not.
    full, single = built("IVF16,Flat;nprobe=16", "cpu"), built("IVF16,Flat", "cpu")
    np.testing.assert_allclose(full.search(VECTORS[:20], 10)[0], best, rtol=1e-5)
    assert not np.allclose(single.search(VECTORS[:20], 10)[0], best)
    faiss.write_index(full, str(tmp_path / "index"))
    assert faiss.read_index(str(tmp_path / "index")).nprobe == 16


BAD = ["Flatt", "HNSW0", "HNSW1", "HNSW99999999", "IVF0,Flat", "IVF99999999999,Flat", "PQ0", "\0", ""]
BAD += [f"IVF16,Flat;{parameters}" for parameters in ("nprobe=x", "nprobe", "probes=3", "nprobe=0")]


@pytest.mark.parametrize("factory", BAD)
def test_bad_factories_and_search_parameters_are_refused(factory: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_index(factory, D)
    assert repr(factory) in str(caught.value)


def test_without_faiss_the_error_names_both_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingError, match=r"relabel-itr\[cpu\].*relabel-itr\[gpu\]"):
        import_faiss()


@pytest.mark.gpu
@pytest.mark.parametrize("factory", ["Flat", "IVF4,Flat"])
def test_a_real_gpu_finds_the_same_vectors(factory: str) -> None:
    if not faiss.get_num_gpus():
        pytest.skip("faiss sees no GPU")
    index = built(factory)
    np.testing.assert_array_equal(to_device(index, "cuda").search(VECTORS, 3)[1], index.search(VECTORS, 3)[1])


@pytest.mark.parametrize("factory", ["IVF4,Flat", "HNSW8"])
def test_every_index_is_reproducible(factory: str) -> None:
    threads = faiss.omp_get_max_threads()
    vectors = np.tile(VECTORS, (5, 1)) + np.arange(5, dtype=np.float32).repeat(len(VECTORS))[:, None]
    first, second = (faiss.serialize_index(built(factory, vectors=vectors)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert faiss.omp_get_max_threads() == threads
