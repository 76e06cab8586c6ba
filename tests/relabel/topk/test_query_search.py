"""Contract: the search of some queries returns the lists of the reference implementation, bit for bit, for sets of
any size, any division into batches and slabs, and any device. A GPU passes queries with too many ties to the processor.
Device "cpu" runs the same code; `-m gpu` uses a GPU.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.relabel.topk.by_sorting import assert_equal, draw, search_by_sorting

from relabel.core.runtime import SILENT, Runtime
from relabel.core.types import Pooling
from relabel.corpus import References
from relabel.sources.finder import Search
from relabel.sources.vector_search import VectorFinder
from relabel.store.workdir import Work, make_step
from relabel.topk import query_search
from relabel.topk.merge import TopK
from relabel.topk.query_search import GpuSearch, QuerySearch
from relabel.topk.screen import Screen


@pytest.mark.parametrize("kind", ["int8", "float32"])
@pytest.mark.parametrize("pooling", ["first", "mean"])
@pytest.mark.parametrize("memory", [1 << 15, 1 << 26])
def test_lists_equal_those_of_the_reference(
    kind: Screen, pooling: Pooling, memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_search, "_FIXED_BYTES", 0)
    monkeypatch.setattr(query_search, "_MIN_SLAB", 50)
    vectors, positions = draw(300, 17, copies=3, zeros=0.05), np.arange(0, 300, 2)
    sets = References.of([np.arange(a, a + 1 + a % 5) for a in range(0, 290, 11)])
    search = QuerySearch(vectors, positions, 8, pooling, Runtime(threads=2, memory=memory), kind)
    assert_equal(search.search(sets), search_by_sorting(vectors, sets, positions, 8, pooling))


@pytest.mark.parametrize("pooling", ["first", "mean"])
@pytest.mark.parametrize(("zeros", "ties"), [(0.0, 0), (0.1, 0), (0.0, 300)])
def test_a_gpu_passes_uncertain_queries_to_the_processor(
    pooling: Pooling, zeros: float, ties: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_search, "_QUERIES", 50)
    monkeypatch.setattr(query_search, "_CANDIDATES", 170)
    vectors, places = draw(700, 24, zeros=zeros), np.arange(3, 700, dtype=np.int64)
    vectors[: ties + 1] = vectors[0]
    sets = References.of([np.arange(a, a + 1 + a % 4 * (pooling == "mean")) for a in range(0, 600, 3)])
    expected = QuerySearch(vectors, places, 11, pooling, Runtime()).search(sets)
    gpu = GpuSearch(QuerySearch(vectors, places, 11, pooling, Runtime(), "float32"), "cpu")
    requests, real = list[int](), QuerySearch.search

    def counted(self: QuerySearch, some: References) -> TopK:
        requests.append(len(some))
        return real(self, some)

    monkeypatch.setattr(QuerySearch, "search", counted)
    assert_equal(gpu.search(sets), expected)
    assert bool(requests) == (zeros > 0 or ties > 0)
    assert sum(requests) < len(sets)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
def test_gpu_equals_cpu(tmp_path: Path) -> None:
    vectors, rows = draw(5000, 96, zeros=0.01), np.arange(5000, dtype=np.int32)
    vectors[:400] = vectors[0]
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
