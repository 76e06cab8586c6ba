"""Contract: the terms of the loss equal explicit loops; batches without information have loss 0 and no gradient."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from relabel.sources.sbert.tune_batches import Batch
from relabel.sources.sbert.tune_train import LossWeights, compute_loss

ZERO = LossWeights(0.0, 20.0, 0.5)


def make_batch(pairs: int = 12, seed: int = 0) -> Batch:
    draw = np.random.default_rng(seed)
    own_image = np.arange(pairs) % 3 == 0
    references = draw.integers(0, 20, (pairs, 5))
    references[own_image, 2] = -1
    return Batch(
        np.arange(20),
        draw.integers(0, 20, (pairs, 2)),
        draw.integers(0, 4, pairs).astype(np.float32) / 4,
        draw.integers(0, 20, pairs),
        references,
        draw.random(pairs, np.float32),
        own_image,
        draw.integers(0, 20, (pairs, 2, 5)),
        draw.random(pairs, np.float32),
        ((draw.integers(0, 20, (pairs, 2)), draw.random(pairs, np.float32)),),
    )


def vectors(seed: int = 0) -> torch.Tensor:
    values = torch.randn(20, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(values, dim=-1)


def cosines(batch: Batch, v: torch.Tensor) -> tuple[list[float], list[float], list[float]]:
    """Return the cosines of STS and of SITS of other images, and their scores."""
    sts = [float(v[a] @ v[b]) for a, b in batch.sts]
    rows = [i for i in range(len(batch.sits)) if not batch.own[i]]
    sits = [max(float(v[batch.sits[i]] @ v[r]) for r in batch.references[i] if r >= 0) for i in rows]
    return sts, sits, [float(batch.sits_score[i]) for i in rows]


def value(batch: Batch, v: torch.Tensor, weights: LossWeights) -> float:
    return float(compute_loss(v, batch, weights).detach())


def test_pearson_counts_own_captions_at_cosine_one() -> None:
    batch, v = make_batch(), vectors()
    sts, sits, score = cosines(batch, v)
    own_scores = [float(s) for s, o in zip(batch.sits_score, batch.own, strict=True) if o]
    expected = 1 - np.corrcoef(sts, batch.sts_score)[0, 1]
    expected += 0.5 * (1 - np.corrcoef(sits, score)[0, 1])
    expected += 0.5 * (1 - np.corrcoef([*sits, *[1.0] * len(own_scores)], [*score, *own_scores])[0, 1])
    assert value(batch, v, ZERO) == pytest.approx(expected, abs=1e-6)


def test_ranking() -> None:
    batch, v = make_batch(), vectors()
    sts, sits, score = cosines(batch, v)

    def disorder(cosine: list[float], human: list[float]) -> float:
        n = range(len(cosine))
        return (
            math.log(1 + sum(math.exp(20 * (cosine[j] - cosine[i])) for i in n for j in n if human[i] > human[j])) / 20
        )

    expected = disorder(sts, batch.sts_score.tolist()) + 0.5 * disorder(sits, score)
    ranking = value(batch, v, ZERO._replace(ranking=1.0)) - value(batch, v, ZERO)
    assert ranking == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("pairs", [0, 1, 3])
def test_batches_without_information(pairs: int) -> None:
    batch, v = make_batch(pairs), vectors().requires_grad_()
    loss = compute_loss(v, batch, LossWeights(1.0, 20.0, 1.0, 1.0, 1.0))
    assert math.isfinite(float(loss.detach()))
    loss.backward()  # type: ignore[no-untyped-call]
    assert v.grad is not None
    assert bool(v.grad.isfinite().all())
    if not pairs:
        assert float(loss.detach()) == 0


def test_pairs_of_images_and_of_sentences() -> None:
    batch, v = make_batch(), vectors()
    images = []
    for left, right in batch.sis:
        cosine = np.array([[float(v[a] @ v[b]) for b in right] for a in left])
        images.append((cosine.max(axis=0).mean() + cosine.max(axis=1).mean()) / 2)
    ((pairs, score),) = batch.sentences
    sentences = [float(v[a] @ v[b]) for a, b in pairs]
    for weights, expected in [
        (ZERO._replace(sis=0.3), 0.3 * (1 - np.corrcoef(images, batch.sis_score)[0, 1])),
        (ZERO._replace(sentences=0.2), 0.2 * (1 - np.corrcoef(sentences, score)[0, 1])),
    ]:
        assert value(batch, v, weights) - value(batch, v, ZERO) == pytest.approx(expected, abs=1e-6)
