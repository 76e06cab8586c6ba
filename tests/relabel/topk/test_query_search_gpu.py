"""Contract: the search on a GPU returns the lists of the search on a processor, bit for bit, for sets of any size.
Queries with too many ties are passed to the processor. Device "cpu" runs the same code; `-m gpu` uses a GPU.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from relabel.core.runtime import SILENT, Runtime
from relabel.core.types import Pooling
from relabel.corpus import References
from relabel.sources.finder import Search
from relabel.sources.vector_search import VectorFinder
from relabel.store.workdir import Work, make_step
from relabel.topk import query_search
from relabel.topk.merge import TopK
from relabel.topk.query_search import GpuSearch, QuerySearch

Vectors = NDArray[np.float32]


def draw_vectors(n: int, width: int, zeros: float = 0.0, copies: int = 0) -> Vectors:
    rng = np.random.default_rng(n + width)
    vectors = rng.standard_normal((n, width))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors[rng.random(n) < zeros] = 0
    vectors[: copies + 1] = vectors[0]
    return vectors.astype(np.float32)


@pytest.mark.parametrize("pooling", ["first", "mean"])
@pytest.mark.parametrize(("zeros", "copies"), [(0.0, 0), (0.1, 0), (0.0, 300)])
def test_lists_equal_those_of_the_processor(
    pooling: Pooling, zeros: float, copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_search, "_QUERIES", 50)
    monkeypatch.setattr(query_search, "_CANDIDATES", 170)
    vectors, places = draw_vectors(700, 24, zeros, copies), np.arange(3, 700, dtype=np.int64)
    sets = References.of([np.arange(a, a + 1 + a % 4 * (pooling == "mean")) for a in range(0, 600, 3)])
    expected = QuerySearch(vectors, places, 11, pooling, Runtime()).search(sets)
    gpu = GpuSearch(QuerySearch(vectors, places, 11, pooling, Runtime(), "float32"), "cpu")
    requests: list[int] = []
    real = QuerySearch.search

    def counted(self: QuerySearch, some: References) -> TopK:
        requests.append(len(some))
        return real(self, some)

    monkeypatch.setattr(QuerySearch, "search", counted)
    lists = gpu.search(sets)
    for ours, theirs in zip(lists, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert bool(requests) == (zeros > 0 or copies > 0)  # the processor gets the uncertain queries only
    assert sum(requests) < len(sets)


@pytest.mark.gpu
def test_gpu_equals_cpu(tmp_path: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("torch sees no CUDA device")
    vectors, rows = draw_vectors(5000, 96, 0.01, 400), np.arange(5000, dtype=np.int32)
    search = Search(References.single(rows), rows, rows, 20)
    lists = [
        VectorFinder(vectors, 0, search, "max", Runtime(device=device))  # type: ignore[arg-type]
        for device in ("cuda", "cpu")
    ]
    work = Work(tmp_path)
    assert lists[0].build(work) is None
    if step := lists[1].build(work):
        make_step(step, work, SILENT)
    ours, theirs = (finder.find(work, range(5000), lambda _: None) for finder in lists)
    np.testing.assert_array_equal(ours[0], theirs[0])
    np.testing.assert_array_equal(ours[1], theirs[1])
