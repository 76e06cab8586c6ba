"""Contract: an epoch has every caption once and every pair whose images meet once, and omits no pair of one image. The
references of a caption's own image exclude the caption. Sentence pairs are spread over the epochs. Every image is in
one group and one fold; images that are judged together share a group, and folds keep most pairs.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.relabel.sources.sbert.tiny_encoder import IMAGES, small_corpus, use_small_scores

from relabel.sources.sbert.tune_batches import Batches, cluster_images, cut_folds, shared_pair_counts
from relabel.sources.sbert.tune_data import JudgedSet, SentenceSet, read_judged_set


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> JudgedSet:
    use_small_scores(monkeypatch)
    return read_judged_set(small_corpus())


def test_captions_occur_once_and_pairs_if_their_images_meet(judged: JudgedSet) -> None:
    images = np.arange(2, IMAGES)
    batches = Batches(judged, images, 6, seed=3)
    epoch = batches.epoch(0)
    assert len(epoch) == len(batches) == 4
    assert sorted(np.concatenate([b.captions for b in epoch]).tolist()) == list(range(10, 5 * IMAGES))
    for batch in epoch:
        inside = set(judged.image[batch.captions].tolist())
        sts, sits = (
            [i for i, (a, b) in enumerate(pairs.images.tolist()) if a in inside and b in inside]
            for pairs in (judged.sts, judged.sits)
        )
        assert len(batch.sts) == len(sts)
        for (a, b), score, i in zip(batch.sts, batch.sts_score, sts, strict=True):
            assert batch.captions[a] == judged.sts.left[i]
            assert batch.captions[b] == judged.sts.right[i]
            assert score == np.float32(judged.sts.score[i])
        sis = [i for i, (a, b) in enumerate(judged.sis.images.tolist()) if a in inside and b in inside]
        images = judged.image[batch.captions[batch.sis[:, :, 0]]] if sis else np.empty((0, 2))
        assert images.tolist() == judged.sis.images[sis].tolist()
        assert len(batch.sits) == len(sits)
        for row, i in enumerate(sits):
            caption, image = judged.sits.left[i], judged.sits.right[i]
            assert batch.captions[batch.sits[row]] == caption
            expected = [-1 if c == caption else c for c in range(5 * image, 5 * image + 5)]
            assert [-1 if r < 0 else int(batch.captions[r]) for r in batch.references[row]] == expected
            assert batch.own[row] == (judged.image[caption] == image) == (-1 in expected)


def test_a_pair_across_batches_occurs_in_another_epoch(judged: JudgedSet) -> None:
    batches = Batches(judged, np.arange(IMAGES), 8, seed=0)
    seen = set()
    counts = []
    for number in range(12):
        pairs = {(int(b.captions[x]), int(b.captions[y])) for b in batches.epoch(number) for x, y in b.sts}
        counts.append(len(pairs))
        seen |= pairs
    every = set(zip(judged.sts.left.tolist(), judged.sts.right.tolist(), strict=True))
    assert max(counts) < len(every)
    assert len(seen) > 0.95 * len(every)


def test_an_epoch_has_its_share_of_sentence_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that each sampled pair is in one batch, by the numbers of its sentences; equal sentences share a number."""
    use_small_scores(monkeypatch)
    first, second = ["a man"] * 8, [f"dog {i}" for i in range(8)]
    sentences = SentenceSet("sick", first, second, np.arange(8) / 8, "")
    judged = read_judged_set(small_corpus(), [sentences])
    assert len(judged.texts) == len(judged.image) + 9
    seen = [
        (judged.texts[batch.captions[a]], judged.texts[batch.captions[b]], float(score))
        for batch in Batches(judged, np.arange(IMAGES), 8, 0, share=0.5).epoch(0)
        for pairs, scores in batch.sentences
        for (a, b), score in zip(pairs, scores, strict=True)
    ]
    assert len(set(seen)) == len(seen) == 4
    assert set(seen) <= set(zip(first, second, (np.arange(8) / 8).tolist(), strict=True))


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
