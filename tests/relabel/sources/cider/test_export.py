"""Contract: the columns of a sparse lookup are the (n-gram, level) pairs with a weight that captions of two images
share, most frequent first. The entries of a caption are its columns in ascending order. Explicit loops are the oracle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from relabel import stages
from relabel.sources.cider.export import Columns
from relabel.sources.cider.relevance import CiderRelevance
from relabel.stages import Project

Column = tuple[int, int]


def loops(relevance: CiderRelevance) -> Iterator[tuple[int, int, int]]:
    """Return caption, n-gram and level of every occurrence."""
    features = relevance.features
    for caption in range(len(relevance.rows)):
        for e in range(features.indptr[caption], features.indptr[caption + 1]):
            for level in range(1, int(features.counts[e] if relevance.weighting.clip else 1) + 1):
                yield caption, int(features.ids[e]), level


@pytest.mark.parametrize("label", ["cider", "cider_plain"])
def test_columns_and_entries_equal_loops(label: str, small_project: Project) -> None:
    relevance = stages.open_label(small_project, label, "all")
    assert isinstance(relevance, CiderRelevance)
    features, weighting, image = relevance.features, relevance.weighting, relevance.corpus.image
    images: dict[Column, set[int]] = {}
    counts: Counter[Column] = Counter()
    for caption, gram, level in loops(relevance):
        images.setdefault((gram, level), set()).add(int(image[caption]))
        counts[gram, level] += 1
    shared = [c for c, owners in images.items() if len(owners) > 1 and weighting.idf[c[0]] > 0]
    order = sorted(shared, key=lambda c: (-counts[c], c[1], c[0]))
    columns = Columns.of(features, weighting, image)
    assert columns.count == len(order)
    assert columns.frequent == sum(counts[c] >= 0.06 * len(image) for c in order) > 0
    number = {c: i for i, c in enumerate(order)}
    expected = sorted((n, number[g, t], g) for n, g, t in loops(relevance) if (g, t) in number)
    assert any(level > 1 for _, level in order) == weighting.clip
    triples = []
    for rows in (range(0, 100), range(100, len(image))):
        caption, column, place = columns.entries(features, rows, weighting.clip)
        triples += list(zip(caption.tolist(), column.tolist(), features.ids[place].tolist(), strict=True))
    assert triples == expected
