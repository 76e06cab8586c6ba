"""Contract of the search on a GPU: the lists of the search on a processor, to the last bit, for sets of any size;
queries with too many equals to be sure of are handed to the processor. "cpu" computes the same here, a GPU by `-m gpu`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from relabel.core.runtime import Runtime
from relabel.core.types import Pooling
from relabel.corpus import References
from relabel.sources.finder import Search
from relabel.sources.vector_search import VectorFinder
from relabel.store.workdir import Work
from relabel.topk import query_search
from relabel.topk.merge import TopK
from relabel.topk.query_search import GpuSearch, QuerySearch

Vectors = NDArray[np.float32]


def drawn(n: int, width: int, zeros: float = 0.0, copies: int = 0) -> Vectors:
    rng = np.random.default_rng(n + width)
    found = rng.standard_normal((n, width))
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    found[rng.random(n) < zeros] = 0
    found[: copies + 1] = found[0]
    return found.astype(np.float32)


@pytest.mark.parametrize("pooling", ["paired", "mean"])
@pytest.mark.parametrize(("zeros", "copies"), [(0.0, 0), (0.1, 0), (0.0, 300)])
def test_lists_are_those_of_the_processor(
    pooling: Pooling, zeros: float, copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_search, "_QUERIES", 50)
    monkeypatch.setattr(query_search, "_CANDIDATES", 170)
    vectors, places = drawn(700, 24, zeros, copies), np.arange(3, 700, dtype=np.int64)
    sets = References.of([np.arange(a, a + 1 + a % 4 * (pooling == "mean")) for a in range(0, 600, 3)])
    want = QuerySearch(vectors, places, 11, pooling, Runtime()).search(sets)
    gpu = GpuSearch(QuerySearch(vectors, places, 11, pooling, Runtime(), "float32"), "cpu")
    asked: list[int] = []
    real = QuerySearch.search

    def counted(self: QuerySearch, some: References) -> TopK:
        asked.append(len(some))
        return real(self, some)

    monkeypatch.setattr(QuerySearch, "search", counted)
    found = gpu.search(sets)
    for ours, theirs in zip(found, want, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert bool(asked) == (zeros > 0 or copies > 0)  # the processor is asked for what is not sure, and for no more
    assert sum(asked) < len(sets)


@pytest.mark.gpu
def test_a_gpu_finds_what_a_processor_finds(tmp_path: Path) -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("torch sees no CUDA device")
    vectors, rows = drawn(5000, 96, 0.01, 400), np.arange(5000, dtype=np.int32)
    search = Search(References.single(rows), rows, rows, 20)
    found = [
        VectorFinder(vectors, 0, search, "max", Runtime(device=device))  # type: ignore[arg-type]
        for device in ("cuda", "cpu")
    ]
    work = Work(tmp_path)
    assert found[0].preliminary(work) is None
    group = found[1].preliminary(work)
    for task in group.tasks if group is not None else ():
        found[1].prepare(work, task, lambda _: None)
    ours, theirs = (finder.find(work, range(5000), lambda _: None) for finder in found)
    np.testing.assert_array_equal(ours[0], theirs[0])
    np.testing.assert_array_equal(ours[1], theirs[1])
