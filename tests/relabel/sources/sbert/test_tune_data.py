"""Contract: an epoch has every pair whose images are in one batch, in one batch alone, and omits no pair of one image.
Sentence pairs are spread over the epochs. Every image is in one group and one fold; images that are judged together
share a group, and folds keep most pairs.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.relabel.sources.sbert.tiny_encoder import IMAGES, small_corpus, use_small_scores

from relabel.sources.sbert import tune_data
from relabel.sources.sbert.tune_data import OTHER_IMAGES, Batch, JudgedPairs, Pairs, epoch_batches

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
