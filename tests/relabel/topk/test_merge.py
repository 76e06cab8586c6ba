"""Contract: merging returns the first entries of the union by (-score, number), each candidate once at its highest
score.
"""

from __future__ import annotations

import numpy as np
import pytest

from relabel.topk.merge import TopK, kth_scores, merge_references, merge_sorted


def sorted_lists(rng: np.random.Generator, sizes: list[int], keep: int, candidates: int) -> TopK:
    """Draw lists of few distinct scores, so that most entries are ties."""
    lists = TopK.empty(len(sizes), keep)
    for i, size in enumerate(sizes):
        numbers = rng.choice(candidates, size, replace=False)
        scores = rng.integers(0, 4, size) / 4
        order = np.lexsort((numbers, -scores))
        lists.numbers[i, :size], lists.scores[i, :size], lists.sizes[i] = numbers[order], scores[order], size
    return lists


def entries(lists: TopK, i: int) -> list[tuple[float, int]]:
    size = int(lists.sizes[i])
    return list(zip((-lists.scores[i, :size]).tolist(), lists.numbers[i, :size].tolist(), strict=True))


@pytest.mark.parametrize("seed", range(20))
def test_merged_lists_are_the_best_of_both(seed: int) -> None:
    rng = np.random.default_rng(seed)
    best = sorted_lists(rng, [0, 3, 5, 5], 5, 10)
    more = sorted_lists(rng, [4, 0, 2, 5], 5, 10)
    more.numbers[:] += 10  # no candidate is in both lists
    expected = [sorted(entries(best, i) + entries(more, i))[:5] for i in range(4)]
    offsets = np.concatenate([[0], np.cumsum(more.sizes)])
    flat = [np.concatenate([values[i, : more.sizes[i]] for i in range(4)]) for values in (more.numbers, more.scores)]
    merge_sorted(best, 0, offsets, flat[0], flat[1])
    assert [entries(best, i) for i in range(4)] == expected


@pytest.mark.parametrize("seed", range(20))
def test_a_candidate_of_several_references_counts_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lists = sorted_lists(rng, [4, 2, 0, 4, 3], 4, 8)
    indptr, members, exclude = np.array([0, 3, 4, 5]), np.array([0, 1, 2, 3, 4]), np.array([2, -1, 5])
    out = TopK.empty(3, 6)
    merge_references(indptr, members, lists, exclude, np.full(8, -1, np.int32), out)
    for i in range(3):
        highest: dict[int, float] = {}
        for member in members[indptr[i] : indptr[i + 1]]:
            for score, number in entries(lists, member):
                highest[number] = min(score, highest.get(number, 1.0))
        union = sorted((score, number) for number, score in highest.items() if number != exclude[i])
        assert entries(out, i) == union[:6]


def test_the_kth_score_is_that_of_full_lists() -> None:
    lists = sorted_lists(np.random.default_rng(0), [3, 2], 3, 9)
    assert kth_scores(lists).tolist() == [lists.scores[0, 2], -np.inf]
