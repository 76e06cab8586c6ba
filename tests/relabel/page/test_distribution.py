"""Contract: drawn pairs are of the kind that they are named for, and uniform; shares, medians and the share of close
neighbours equal counts over the pairs."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from relabel import stages
from relabel.corpus import Corpus, References
from relabel.corpus.table import Caption
from relabel.page.captions import PageCaptions, choose_captions
from relabel.page.distribution import distribution, draw_neighbours, draw_pairs, score_pairs
from relabel.page.nearest import Nearest
from relabel.stages import Project


def captions_of(sizes: list[int]) -> PageCaptions:
    captions = [
        Caption(f"c:{i}-{j}", f"i:{i}", "test", f"{i} {j}") for i, size in enumerate(sizes) for j in range(size)
    ]
    corpus = Corpus.from_captions(captions)
    return choose_captions(corpus, range(len(corpus)))


def test_drawn_pairs_are_of_their_kind() -> None:
    captions = captions_of([1 + i % 4 for i in range(300)])
    pairs = draw_pairs(captions, most=1000)
    for kind, same in (("same_image", True), ("random", False)):
        a, b = pairs[kind].references, pairs[kind].candidates
        assert len(a) == 1000
        assert (a != b).all()
        assert ((captions.image[a] == captions.image[b]) == same).all()


def test_every_pair_of_a_kind_is_equally_likely() -> None:
    captions = captions_of([3, 2] * 2000)
    pairs = draw_pairs(captions, most=20_000)["same_image"]
    steps = Counter()
    for a, b in zip(pairs.references.tolist(), pairs.candidates.tolist(), strict=True):
        start = int(captions.starts[captions.image[a]])
        steps[int(captions.starts[captions.image[a] + 1]) - start, a - start, b - start] += 1
    assert len(steps) == 6 + 2
    expected = {3: 20_000 * 0.6 / 6, 2: 20_000 * 0.4 / 2}
    for (size, *_), count in steps.items():
        assert count == pytest.approx(expected[size], rel=0.1)
    random = draw_pairs(captions, most=20_000)["random"]
    assert np.mean(random.candidates > random.references) == pytest.approx(0.5, abs=0.02)
    assert random.candidates.max() > len(captions) - 20
    assert random.candidates.min() < 20


def test_a_kind_that_the_captions_lack_is_left_out() -> None:
    assert set(draw_pairs(captions_of([1, 1, 1]))) == {"random"}
    assert set(draw_pairs(captions_of([4]))) == {"same_image"}


def test_neighbours_are_of_other_images(small_project: Project) -> None:
    captions = captions_of([2, 2, 1])
    positions = np.array([[1, 2], [2, 4], [3, 0], [5, 5], [0, 1]], np.int32)
    scores = np.arange(10, dtype=np.float32).reshape(5, 2)
    neighbours_drawn = draw_neighbours(captions, Nearest(positions, scores))
    # Captions 0 and 1, and 2 and 3, are of one image; 5 stands for no caption.
    assert sorted(neighbours_drawn.tolist()) == [1, 2, 3, 5, 8, 9]
    assert len(draw_neighbours(captions, Nearest(positions, scores), most=4)) == 4


def test_scores_are_those_of_pairs(small_project: Project) -> None:
    captions = choose_captions(small_project.corpus, small_project.corpus.rows(["test"]))
    relevance = stages.open_label(small_project, "cider", "all")
    pairs = draw_pairs(captions, most=30)["random"]
    for i, score in enumerate(score_pairs(relevance, captions, pairs)):
        one = References.single(captions.rows[pairs.references[i : i + 1]])
        assert score == relevance.pairs(one, captions.rows[pairs.candidates[i : i + 1]], "paired")[0]


def test_a_summary_counts_the_pairs() -> None:
    rng = np.random.default_rng(0)
    scores = {kind: rng.random(500) ** power for kind, power in (("same_image", 1), ("neighbours", 2), ("random", 6))}
    scores["random"][:7] = np.nan
    result = distribution(scores)
    assert result.counts == {"same_image": 500, "neighbours": 500, "random": 493}
    for kind, values in scores.items():
        finite = values[~np.isnan(values)]
        assert result.medians[kind] == np.median(finite)
        for i, share in enumerate(result.shares[kind]):
            last = i == len(result.shares[kind]) - 1
            inside = (finite >= result.edges[i]) & ((finite < result.edges[i + 1]) | last)
            assert share == pytest.approx(inside.mean(), abs=1e-9)
        assert sum(result.shares[kind]) == pytest.approx(1)
    assert result.close == np.mean(scores["neighbours"] >= np.median(scores["same_image"]))


def test_kinds_without_scores_are_left_out() -> None:
    result = distribution(
        {"same_image": np.array([0.0, 0.0]), "neighbours": np.array([]), "random": np.full(3, np.nan)}
    )
    assert set(result.shares) == {"same_image"}
    assert result.close is None
    assert np.isfinite(result.edges).all()
