"""Contract: exact search by vectors returns the rows and scores, bit for bit, of `pairs` over all candidates and a
sort by (-score, row). The result does not depend on memory, order of tasks or interruptions. A
vector that is not finite is a neighbour only after all others.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.relabel.sources.encodings import Counted, best_by_pairs, corpus_of

from relabel.core.runtime import Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import References
from relabel.sources.cosine import VectorRelevance
from relabel.sources.finder import Search
from relabel.sources.vector_search import VectorFinder
from relabel.store.workdir import Work
from relabel.topk import blocking, scan

Vectors = NDArray[np.float32]


class Case(NamedTuple):
    """A search and its expected result."""

    vectors: Vectors
    first: int
    search: Search
    pooling: Pooling

    def expected(self) -> tuple[Rows, Scores]:
        """Score every candidate with the kernel of `pairs`, one query at a time."""
        corpus, rows = corpus_of([["a text"]]), range(self.first, self.first + len(self.vectors))
        relevance = VectorRelevance(corpus, rows, self.pooling, self.vectors, lambda text: self.vectors[0])
        return best_by_pairs(relevance, self.search)

    def finder(self, **runtime: Any) -> VectorFinder:
        return VectorFinder(self.vectors, self.first, self.search, self.pooling, Runtime(device="cpu", **runtime))


def unit(n: int, width: int, seed: int = 0, copies: int = 1, zeros: float = 0, failed: float = 0) -> Vectors:
    """Draw random directions, each about `copies` times, some of them zero and some not finite."""
    rng = np.random.default_rng(seed)
    directions = rng.standard_normal((n, width))
    if copies > 1:
        directions = directions[rng.integers(0, max(1, n // copies), n)]
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    directions[rng.random(n) < zeros] = 0
    directions[rng.random(n) < failed, -1] = np.nan
    return directions.astype(np.float32)


def among_themselves(vectors: Vectors, k: int, pooling: Pooling = "max", first: int = 0) -> Case:
    rows = np.arange(first, first + len(vectors), dtype=np.int32)
    return Case(vectors, first, Search(References.single(rows), rows, rows, k), pooling)


def images(vectors: Vectors, k: int, pooling: Pooling, each: int = 5) -> Case:
    rows = np.arange(len(vectors), dtype=np.int32)
    sets = References.of([rows[a : a + each] for a in range(0, len(rows), each)])
    return Case(vectors, 0, Search(sets, np.full(len(sets), -1, np.int32), rows, k), pooling)


def find_all(finder: VectorFinder, folder: Path, order: int = 0) -> tuple[Rows, Scores]:
    """Make the tasks in any order, each of which reports its size as progress, and search."""
    work, progress = Work(folder), Counted()
    finder = replace(finder, runtime=replace(finder.runtime, progress=progress))
    step = finder.build(work)
    tasks = step.tasks if step else ()
    for i in np.random.default_rng(order).permutation(len(tasks)):
        done, progress.amounts[:] = work.done(tasks[i].file), []
        work.file(tasks[i].file, tasks[i].write)
        assert done or sum(progress.amounts) == tasks[i].size
    return finder.find(work, range(len(finder.search.queries)), lambda _: None)


def check(case: Case, got: tuple[Rows, Scores]) -> None:
    rows, scores = case.expected()
    np.testing.assert_array_equal(got[0], rows)
    np.testing.assert_array_equal(got[1].view(np.int64)[~np.isnan(scores)], scores.view(np.int64)[~np.isnan(scores)])
    np.testing.assert_array_equal(np.isnan(got[1]), np.isnan(scores))


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shrink tiles, groups and samples, so that a few hundred vectors need many of them; skip fsync."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(scan, "TILE_EDGE", 64)
    monkeypatch.setattr(scan, "_SAMPLE", 64)
    monkeypatch.setattr(blocking, "_MIN_GROUP", 32)
    monkeypatch.setattr(blocking, "_FIXED_BYTES", 0)
    monkeypatch.setattr(blocking, "_THREAD_BYTES", 0)


SHAPES = {
    "copies": among_themselves(unit(300, 16, copies=30), 7),
    "one text a hundred times": among_themselves(np.repeat(unit(3, 8), 100, axis=0), 5),
    "nearly all within the error": among_themselves(unit(400, 2), 3),
    "all failed": among_themselves(np.full((70, 3), np.nan, np.float32), 4),
    "stored as float16": among_themselves(unit(200, 40).astype(np.float16).astype(np.float32), 11),
    "k above the number of candidates": among_themselves(unit(90, 7), 500, first=3),
    "images, max": images(unit(300, 20, copies=4, zeros=0.05), 9, "max"),
    "images, mean": images(unit(300, 20, copies=4, zeros=0.05, failed=0.01), 9, "mean"),
}


@pytest.mark.parametrize("name", SHAPES)
def test_result_equals_scoring_and_sorting_all_candidates(name: str, tmp_path: Path) -> None:
    case = SHAPES[name]
    check(case, find_all(case.finder(threads=2, memory=1 << 17), tmp_path))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_search(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    draw = data.draw
    n, width = draw(st.integers(1, 200)), draw(st.integers(1, 40))
    share = st.sampled_from([0.0, 0.1])
    vectors = unit(n, width, draw(st.integers(0, 99)), draw(st.integers(1, 20)), draw(share), draw(share))
    first, rng = draw(st.integers(0, 9)), np.random.default_rng(n)
    rows = np.arange(first, first + n, dtype=np.int32)
    candidates = rows[rng.random(n) < draw(st.sampled_from([0.3, 0.9, 1.0]))]
    candidates = candidates if len(candidates) else rows
    most = draw(st.sampled_from([2, 6]))
    sets = [rng.choice(rows, int(rng.integers(1, most))) for _ in range(draw(st.integers(1, 60)))]
    exclude = np.array([s[0] if len(s) == 1 else -1 for s in sets], np.int32)
    if draw(st.booleans()):
        sets, exclude = [np.array([row]) for row in candidates], candidates
    pooling: Pooling = draw(st.sampled_from(["max", "mean", "first"]))
    case = Case(vectors, first, Search(References.of(sets), exclude, candidates, draw(st.integers(1, 60))), pooling)
    threads, memory = draw(st.sampled_from([1, 2])), draw(st.sampled_from([1 << 15, 1 << 18, 1 << 24]))
    finder = case.finder(threads=threads, memory=memory)
    check(case, find_all(finder, tmp_path_factory.mktemp("any"), draw(st.integers(0, 9))))


def test_a_resumed_run_with_another_memory_limit_has_the_same_result(tmp_path: Path) -> None:
    case = SHAPES["copies"]
    work, before = Work(tmp_path), case.finder(memory=1 << 17)
    step = before.build(work)
    assert step is not None
    files = [task.file for task in step.tasks]
    assert len(files) > 8
    for task in step.tasks[3:8]:
        work.file(task.file, task.write)
    for memory, keeps_work in ((1 << 26, True), (1 << 15, False)):  # more memory keeps finished work, much less cannot
        finder = case.finder(memory=memory)
        again = finder.build(work)
        assert again is not None
        assert ([task.file for task in again.tasks] == files) == keeps_work
        assert [work.done(u.file) for u in again.tasks[3:8]] == [keeps_work] * 5
        check(case, find_all(finder, tmp_path))


MEASURED = """
import resource, sys, tempfile
from pathlib import Path
import numpy as np
from relabel.corpus import References
from relabel.sources.cosine import VectorRelevance
from relabel.sources.finder import Search
from relabel.sources.vector_search import VectorFinder
from relabel.core.runtime import Runtime
from relabel.store.workdir import Work

def search(vectors, k, memory):
    rows = np.arange(len(vectors), dtype=np.int32)
    finder = VectorFinder(vectors, 0, Search(References.single(rows), rows, rows, k), "max", Runtime(memory=memory))
    with tempfile.TemporaryDirectory() as folder:
        work = Work(Path(folder))
        for task in finder.build(work).tasks:
            work.file(task.file, task.write)
        for a in range(0, len(vectors), 512):
            finder.find(work, range(a, min(a + 512, len(vectors))), lambda _: None)

n, k, memory = map(int, sys.argv[1:])
vectors = np.random.default_rng(0).standard_normal((n, 64)).astype(np.float32)
vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
search(vectors[:3000], 3, 1 << 25)  # loads and compiles
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
search(vectors, k, memory)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("k", "memory"), [(20, 64 << 20), (20, 256 << 20), (400, 64 << 20), (400, 256 << 20)])
def test_memory_limit_holds_for_every_k(k: int, memory: int) -> None:
    command = [sys.executable, "-c", MEASURED, "16000", str(k), str(memory)]
    took = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert took <= memory
