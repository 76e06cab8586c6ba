"""What `tune sbert` minimises: how little cosines agree with what people said, as agreement is judged.

The terms are of a batch's caption pairs (STS) and of its pairs of caption and image (SITS), a caption against an image
being the largest of its cosines to the captions that stand for the image, itself left out:

- 1 - Pearson's r within the batch, which is what is left of a squared error once the best affine map of the cosine is
  taken. (A map that is learned by steps pulls cosines about until it has settled, and made worse labels.)
- the same of all pairs of caption and image together, an image's own captions at cosine 1: the label finds the caption
  among its references.
- CoSENT (Su, 2022): log(1 + sum exp(s (cos_j - cos_i))) / s over all pairs that people put the other way round.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relabel.sources.sbert.tune_batches import Batch

_LEAST = 4  # pairs that a coefficient needs


class Weights(NamedTuple):
    """How much terms count: CoSENT's beside Pearson's 1, its scale s, and SITS beside STS's 1."""

    ranking: float
    scale: float
    sits: float


def loss_of(vectors: Tensor, batch: Batch, weights: Weights) -> Tensor:
    """Loss of one batch.

    Parameters
    ----------
    vectors : (C, D) float32
        Unit vectors of the batch's captions.
    batch : Batch
    weights : Weights

    Returns
    -------
    () float32, 0 where the batch holds no pairs.
    """
    device = vectors.device
    left, right = torch.from_numpy(batch.sts).to(device).T
    sts = (vectors[left] * vectors[right]).sum(-1)
    others = _largest(vectors, batch, ~batch.own)
    score, others_score, own_score = (
        torch.from_numpy(values).to(device)
        for values in (batch.sts_score, batch.sits_score[~batch.own], batch.sits_score[batch.own])
    )
    every = torch.cat([others, torch.ones_like(own_score)])
    sits = _task(others, others_score, weights) + _unlike(every, torch.cat([others_score, own_score]))
    return _task(sts, score, weights) + weights.sits * sits


def _largest(vectors: Tensor, batch: Batch, which: NDArray[np.bool_]) -> Tensor:
    references = torch.from_numpy(batch.references[which]).to(vectors.device)
    captions = torch.from_numpy(batch.sits[which]).to(vectors.device)
    cosines = (vectors[captions][:, None, :] * vectors[references.clamp(min=0)]).sum(-1)
    return cosines.masked_fill(references < 0, -2.0).amax(dim=1) if len(captions) else cosines.sum(dim=1)


def _task(cosine: Tensor, score: Tensor, weights: Weights) -> Tensor:
    total = _unlike(cosine, score)
    return total + weights.ranking * _disorder(cosine, score, weights.scale) if weights.ranking else total


def _unlike(cosine: Tensor, score: Tensor) -> Tensor:
    """1 - Pearson's r; 0 of what is too little or constant."""
    if len(cosine) < _LEAST or bool((score == score[0]).all()):
        return cosine.sum() * 0
    a, b = cosine - cosine.mean(), score - score.mean()
    return 1 - (a * b).sum() / (a.square().sum() * b.square().sum() + 1e-12).sqrt()


def _disorder(cosine: Tensor, score: Tensor, scale: float) -> Tensor:
    """CoSENT's loss of (P,) cosines."""
    wrong = scale * (cosine[None, :] - cosine[:, None])
    ordered = score[:, None] > score[None, :]
    if not bool(ordered.any()):
        return cosine.sum() * 0
    terms = wrong[ordered]
    return torch.logsumexp(torch.cat([terms.new_zeros(1), terms]), 0) / scale
