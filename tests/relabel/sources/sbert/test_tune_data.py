"""Contract: an epoch has every pair whose images are in one batch, in one batch alone, and omits no pair of one image.
Sentence pairs are spread over the epochs. Every image is in one group and one fold; images that are judged together
share a group, and folds keep most pairs.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.relabel.sources.sbert.tiny_encoder import IMAGES, small_corpus, use_small_scores

from relabel.sources.sbert import tune_data
from relabel.sources.sbert.tune_data import OTHER_IMAGES, Batch, JudgedPairs, Pairs, cut_folds, epoch_batches

KINDS = ("sts", "sits", OTHER_IMAGES, "sis")


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> JudgedPairs:
    use_small_scores(monkeypatch)
    monkeypatch.setattr(tune_data, "_BATCH_IMAGES", 6)
    return tune_data.read_judged_pairs(small_corpus(), {})


def pairs_of(batch: Batch, kind: str) -> list[tuple[list[int], list[int], float]]:
    one = batch.pairs[kind]
    return sorted(zip(batch.texts[one.left].tolist(), batch.texts[one.right].tolist(), one.score.tolist(), strict=True))


def expected(pairs: Pairs, inside: set[int]) -> list[tuple[list[int], list[int], float]]:
    both = [i for i, (a, b) in enumerate(pairs.images.tolist()) if a in inside and b in inside]
    chosen = pairs.take(np.array(both, np.int64))
    return sorted(zip(chosen.left.tolist(), chosen.right.tolist(), chosen.score.tolist(), strict=True))


def test_the_pairs_of_the_human_scores(judged: JudgedPairs) -> None:
    corpus, human = small_corpus(), tune_data.human_scores("sits", "val")
    pairs = judged.pairs["sits"]
    for i, (caption, image, score) in enumerate(zip(human.left, human.right, human.score, strict=True)):
        assert judged.texts[pairs.left[i, 0]] == corpus.texts[corpus.caption_ids.index(caption)]
        assert corpus.image_ids[pairs.images[i, 1]] == image
        assert pairs.right[i].tolist() == np.flatnonzero(judged.image == pairs.images[i, 1])[:5].tolist()
        assert pairs.score[i] == score / 5
    assert (judged.pairs[OTHER_IMAGES].images[:, 0] != judged.pairs[OTHER_IMAGES].images[:, 1]).all()
    assert len(judged.pairs[OTHER_IMAGES].score) == sum(m != "c2i_original" for m in human.method)
    assert "never read" not in judged.texts


def test_a_batch_has_the_pairs_among_its_images(judged: JudgedPairs) -> None:
    images = np.arange(2, IMAGES)
    epoch = epoch_batches(judged, KINDS, images, seed=3, epoch=0)
    assert len(epoch) == 4
    groups = [set(judged.image[batch.texts].tolist()) for batch in epoch]
    assert sorted(i for group in groups for i in group) == images.tolist()
    for batch, inside in zip(epoch, groups, strict=True):
        assert list(batch.pairs) == list(KINDS)
        for kind in KINDS:
            assert pairs_of(batch, kind) == expected(judged.pairs[kind], inside)


def test_an_epoch_has_its_share_of_sentence_pairs(judged: JudgedPairs, tmp_path: Path) -> None:
    """Check that each drawn pair is in one batch, by the numbers of its sentences; equal sentences share a number."""
    rows = "".join(f"{i}\ta man\tdog {i}\t{1 + i / 2}\tNEUTRAL\n" for i in range(8))
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
    (tmp_path / "sick.txt").write_text(header + rows)
    judged = tune_data.read_judged_pairs(small_corpus(), {"sick": tmp_path / "sick.txt"})
    assert len(judged.texts) == len(judged.image) + 9
    epoch = epoch_batches(judged, ("sts", "sick"), np.arange(IMAGES), 0, 0)
    seen = [(judged.texts[a], judged.texts[b], score) for batch in epoch for [a], [b], score in pairs_of(batch, "sick")]
    assert len(set(seen)) == len(seen) == 2
    assert set(seen) <= {("a man", f"dog {i}", i / 8) for i in range(8)}


def kept(judged: JudgedPairs, group: np.ndarray) -> float:
    ends = np.concatenate([judged.pairs["sts"].images, judged.pairs[OTHER_IMAGES].images])
    ends = ends[ends[:, 0] != ends[:, 1]]
    return float((group[ends[:, 0]] == group[ends[:, 1]]).mean())


def test_groups_keep_more_pairs_than_chance(judged: JudgedPairs) -> None:
    rng, images = np.random.default_rng(0), np.arange(IMAGES)
    group = tune_data.group_images(judged, images, 6, rng)
    assert np.bincount(group).tolist() == [6, 6, 6, 6]
    chance = kept(judged, rng.permutation(IMAGES) // 6)
    assert kept(judged, group) > 2 * chance
    fold = cut_folds(judged, 4, 0)
    assert np.bincount(fold).tolist() == [6, 6, 6, 6]
    assert kept(judged, fold) > 2 * chance
    assert (fold == cut_folds(judged, 4, 0)).all()
    assert (fold != cut_folds(judged, 4, 2)).any()
    some = tune_data.group_images(judged, np.arange(3, 13), 6, rng)
    assert np.bincount(some + 1).tolist() == [IMAGES - 10, 6, 4]
    assert (some[3:13] >= 0).all()


def test_few_pairs_of_cxc_cross_folds() -> None:
    """Check the graph of val's pairs: 6% and 4.6% of the pairs cross five folds, as measured."""
    from relabel.corpus import Corpus
    from relabel.corpus.build import Caption
    from relabel.datasets.cxc import human_scores

    sits = human_scores("sits", "val")
    owner = {c: i for c, i, method in zip(sits.left, sits.right, sits.method, strict=True) if method == "c2i_original"}
    corpus = Corpus.from_captions(Caption(c, i, "val", "a dog") for c, i in owner.items())
    judged = tune_data.read_judged_pairs(corpus, {})
    fold = cut_folds(judged, 5, 0)
    for task in ("sts", "sits"):
        images = judged.pairs[task].images
        assert (fold[images[:, 0]] != fold[images[:, 1]]).mean() < 0.08
    assert np.bincount(fold).tolist() == [1000] * 5
