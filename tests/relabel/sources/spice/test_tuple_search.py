"""Contract: spice's finder sorts all pairs by (-score, row) without the query itself, with the bits of `pairs`. The
result does not depend on slabs, task sizes or threads, and a failed row is last with NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from relabel.core.runtime import Runtime
from relabel.corpus import References
from relabel.sources import finder as finders
from relabel.sources.finder import Search
from relabel.sources.spice import relevance as module
from relabel.sources.spice.relevance import SceneGraphRelevance

Opened = Callable[..., SceneGraphRelevance]


def ignore_progress(_: int) -> None:
    """Ignore progress."""


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("pooling", ["first", "max", "mean", "set"])
def test_neighbours_are_a_sort_of_all_pairs(
    pooling: Any, small: bool, opened: Opened, drawn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    images = [[drawn(rng) for _ in range(int(rng.integers(1, 6)))] for _ in range(40)]
    relevance, memory = opened(images), 1 << 30
    if small:
        monkeypatch.setattr(finders, "_SMALLEST", 7)
        monkeypatch.setattr(module, "_QUERIES", 3)
        memory = 1
    n = len(relevance.rows)
    candidates = np.sort(rng.permutation(n)[: n - 9]).astype(np.int32)
    sets = relevance.corpus.references(range(40))
    exclude = np.where(np.arange(40) % 3 == 0, -1, sets.rows[sets.indptr[:-1]]).astype(np.int32)
    for k in (1, 12, 10_000):
        search = Search(sets, exclude, candidates, k)
        finder = relevance.finder(search, pooling, Runtime(threads=2, memory=memory))
        rows, scores = finder.find(None, range(3, 38), ignore_progress)  # type: ignore[arg-type]
        block = relevance.block(sets, candidates, pooling)
        for i, m in enumerate(range(3, 38)):
            order = [j for j in np.lexsort((candidates, -block[m])) if candidates[j] != exclude[m]][: search.width]
            np.testing.assert_array_equal(rows[i], candidates[order])
            np.testing.assert_array_equal(scores[i], block[m, order])


def test_failed_rows_come_last(opened: Opened) -> None:
    relevance = opened([[[["man"]], None], [[["dog"]]], [[["man"], ["dog"]]]])
    rows = np.arange(4, dtype=np.int32)
    finder = relevance.finder(Search(References.single(rows), rows, rows, 3), "first", Runtime(threads=1))
    neighbours, scores = finder.find(None, range(4), ignore_progress)  # type: ignore[arg-type]
    assert neighbours.tolist() == [[3, 2, 1], [0, 2, 3], [3, 0, 1], [0, 2, 1]]
    expected = [[2 / 3, 0, np.nan], [np.nan] * 3, [2 / 3, 0, np.nan], [2 / 3, 2 / 3, np.nan]]
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-15)
