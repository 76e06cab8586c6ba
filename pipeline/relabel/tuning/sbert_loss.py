"""What `tune sbert` minimises: how far cosines are from what people said, and how badly they order it.

Three terms, weighted, of a batch's caption pairs (STS) and of its pairs of caption and image (SITS), a caption against
an image being the largest of its cosines to the captions that stand for the image, itself left out:

- squared error of an affine map of the cosine; the map is learned.
- 1 - Pearson's r within the batch: what the label is judged by. An image's own captions enter SITS as they will be
  judged, at cosine 1, since the label finds the caption among its references.
- CoSENT (Su, 2022): log(1 + sum exp(s (cos_j - cos_i))) over all pairs that people put the other way round.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from relabel.tuning.sbert_batches import Batch

_LEAST = 4  # pairs that a coefficient needs


class Weights(NamedTuple):
    """How much each term counts."""

    error: float
    pearson: float
    ranking: float
    scale: float
    sits: float


class Maps(torch.nn.Module):
    """The affine maps of STS and of SITS from cosine to score: score = a cos + b."""

    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Parameter(torch.ones(2))
        self.b = torch.nn.Parameter(torch.zeros(2))

    def forward(self, cosine: Tensor, task: int) -> Tensor:
        """Map (P,) cosines of task 0 (sts) or 1 (sits)."""
        mapped: Tensor = self.a[task] * cosine + self.b[task]
        return mapped


def loss_of(vectors: Tensor, batch: Batch, maps: Maps, weights: Weights) -> Tensor:
    """Loss of one batch.

    Parameters
    ----------
    vectors : (C, D) float32
        Unit vectors of the batch's captions.
    batch : Batch
    maps : Maps
    weights : Weights

    Returns
    -------
    () float32, 0 where the batch holds no pairs.
    """
    device = vectors.device
    left, right = torch.from_numpy(batch.sts).to(device).T
    sts = (vectors[left] * vectors[right]).sum(-1)
    others = ~batch.own
    cosines = _largest(vectors, batch, others)
    sts_score = torch.from_numpy(batch.sts_score).to(device)
    sits_score = torch.from_numpy(batch.sits_score).to(device)
    sits = sits_score[torch.from_numpy(others).to(device)]
    total = _task(sts, sts_score, maps(sts, 0), weights)
    total = total + weights.sits * _task(cosines, sits, maps(cosines, 1), weights)
    if weights.pearson:  # all pairs as they are judged
        own = sits_score[torch.from_numpy(batch.own).to(device)]
        joined = torch.cat([cosines, torch.ones_like(own)])
        total = total + weights.sits * weights.pearson * _unlike(joined, torch.cat([sits, own]))
    return total


def _largest(vectors: Tensor, batch: Batch, which: object) -> Tensor:
    references = torch.from_numpy(batch.references[which]).to(vectors.device)  # type: ignore[index]
    captions = torch.from_numpy(batch.sits[which]).to(vectors.device)  # type: ignore[index]
    cosines = (vectors[captions][:, None, :] * vectors[references.clamp(min=0)]).sum(-1)
    return cosines.masked_fill(references < 0, -2.0).amax(dim=1) if len(captions) else cosines.sum(dim=1)


def _task(cosine: Tensor, score: Tensor, mapped: Tensor, weights: Weights) -> Tensor:
    total = cosine.sum() * 0
    if not len(cosine):
        return total
    if weights.error:
        total = total + weights.error * (mapped - score).square().mean()
    if weights.pearson:
        total = total + weights.pearson * _unlike(cosine, score)
    if weights.ranking:
        total = total + weights.ranking * _disorder(cosine, score, weights.scale)
    return total


def _unlike(cosine: Tensor, score: Tensor) -> Tensor:
    """1 - Pearson's r; 0 of what is too little or constant."""
    if len(cosine) < _LEAST or bool((score == score[0]).all()):
        return cosine.sum() * 0
    a, b = cosine - cosine.mean(), score - score.mean()
    return 1 - (a * b).sum() / (a.square().sum() * b.square().sum() + 1e-12).sqrt()


def _disorder(cosine: Tensor, score: Tensor, scale: float) -> Tensor:
    """CoSENT's loss of (P,) cosines, a P-th root of the sum so to say: divided by log(1 + pairs)."""
    wrong = scale * (cosine[None, :] - cosine[:, None])
    ordered = score[:, None] > score[None, :]
    if not bool(ordered.any()):
        return cosine.sum() * 0
    terms = wrong[ordered]
    return torch.logsumexp(torch.cat([terms.new_zeros(1), terms]), 0) / scale
