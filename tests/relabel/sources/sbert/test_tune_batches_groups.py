"""Contract: every image is in one group and one fold; images that are judged together share a group, and folds keep
most pairs.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.relabel.sources.sbert.tiny_encoder import IMAGES, small_corpus, use_small_scores

from relabel.sources.sbert.tune_batches import cluster_images, cut_folds, shared_pair_counts
from relabel.sources.sbert.tune_data import JudgedSet, read_judged_set


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> JudgedSet:
    use_small_scores(monkeypatch)
    return read_judged_set(small_corpus())


def test_shared_pair_counts_are_the_pairs_of_two_images(judged: JudgedSet) -> None:
    expected = np.zeros((IMAGES, IMAGES))
    for pairs in (judged.sts, judged.sits):
        for a, b in pairs.images.tolist():
            if a != b:
                expected[a, b] += 1
                expected[b, a] += 1
    np.testing.assert_array_equal(shared_pair_counts(judged).toarray(), expected)


@pytest.mark.parametrize("size", [1, 5, 24, 100])
def test_every_image_is_in_one_group(judged: JudgedSet, size: int) -> None:
    images = np.arange(3, IMAGES)
    groups = cluster_images(shared_pair_counts(judged), images, size, np.random.default_rng(0))
    assert sorted(np.concatenate(groups).tolist()) == images.tolist()
    assert all(len(group) == size for group in groups[:-1])


def test_groups_keep_more_pairs_than_chance(judged: JudgedSet) -> None:
    def kept(groups: list[np.ndarray]) -> float:
        of = np.empty(IMAGES, int)
        for i, group in enumerate(groups):
            of[group] = i
        ends = np.concatenate([judged.sts.images, judged.sits.images])
        ends = ends[ends[:, 0] != ends[:, 1]]
        return float((of[ends[:, 0]] == of[ends[:, 1]]).mean())

    rng = np.random.default_rng(0)
    grown = kept(cluster_images(shared_pair_counts(judged), np.arange(IMAGES), 6, rng))
    chance = kept(np.split(rng.permutation(IMAGES), 4))
    assert grown > 2 * chance
    fold = cut_folds(judged, 4, 0)
    assert kept([np.flatnonzero(fold == k) for k in range(4)]) > 2 * chance


def test_folds_cover_and_follow_the_seed(judged: JudgedSet) -> None:
    fold = cut_folds(judged, 4, 1)
    assert fold.shape == (IMAGES,)
    sizes = np.bincount(fold)
    assert len(sizes) == 4
    assert sizes.min() >= 5
    np.testing.assert_array_equal(fold, cut_folds(judged, 4, 1))
    assert (fold != cut_folds(judged, 4, 2)).any()


def test_few_pairs_of_cxc_cross_folds() -> None:
    """Check the graph of val's pairs: 5.5% and 4.3% of the pairs cross five folds, as measured."""
    from relabel.corpus import Corpus
    from relabel.corpus.build import Caption
    from relabel.datasets.cxc import human_scores

    sits = human_scores("sits", "val")
    owner = {c: i for c, i, method in zip(sits.left, sits.right, sits.method, strict=True) if method == "c2i_original"}
    corpus = Corpus.from_captions(Caption(c, i, "val", "a dog") for c, i in owner.items())
    judged = read_judged_set(corpus)
    fold = cut_folds(judged, 5, 0)
    for pairs in (judged.sts, judged.sits):
        assert (fold[pairs.images[:, 0]] != fold[pairs.images[:, 1]]).mean() < 0.08
    assert np.bincount(fold).min() > 900


def test_val_and_test_share_no_image() -> None:
    from relabel.datasets.cxc import image_ids

    assert not set(image_ids("val").tolist()) & set(image_ids("test").tolist())
