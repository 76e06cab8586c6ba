"""Loss of `tune sbert`: disagreement of cosines with human scores, in the sense in which labels are evaluated.

The terms are computed from a batch's pairs of captions (STS), of a caption and an image (SITS), of images (SIS) and of
other sentences. The cosine of a caption and an image is the largest one to the captions that represent the image,
without the caption itself. The cosine of two images is the mean, over the captions of both, of the largest cosine to
the captions of the other one.

- 1 - Pearson's r within the batch. This is the squared error that remains after the best affine map of the cosine. A
  map learned by gradient steps disturbs the cosines until it has converged, and gave worse labels.
- The same for all pairs of a caption and an image together. The cosine of an image's own caption is 1, because a label
  finds the caption among its references.
- CoSENT (Su, 2022): log(1 + sum exp(s (cos_j - cos_i))) / s over all pairs that people ordered the other way.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relabel.sources.sbert.tune_batches import Batch

_MIN_PAIRS = 4  # least number of pairs for a coefficient


class LossWeights(NamedTuple):
    """Weights of the loss's terms.

    Attributes
    ----------
    ranking : float
        Weight of CoSENT, relative to 1 for Pearson's r.
    scale : float
        CoSENT's s.
    sits : float
        Weight of SITS, relative to 1 for STS.
    sis : float
        Weight of SIS.
    sentences : float
        Weight of each set of sentence pairs.
    """

    ranking: float
    scale: float
    sits: float
    sis: float = 0.0
    sentences: float = 0.0


def compute_loss(vectors: Tensor, batch: Batch, weights: LossWeights) -> Tensor:
    """Compute the loss of one batch.

    Parameters
    ----------
    vectors : (C, D) float32
        Unit vectors of the batch's captions.
    batch : Batch
    weights : LossWeights

    Returns
    -------
    () float32, 0 if the batch holds no pairs.
    """
    left, right = _tensor(batch.sts, vectors).T
    sts = (vectors[left] * vectors[right]).sum(-1)
    other_cosines = _image_cosines(vectors, batch, ~batch.own)
    score, other_score, own_score = (
        _tensor(values, vectors)
        for values in (batch.sts_score, batch.sits_score[~batch.own], batch.sits_score[batch.own])
    )
    sits_cosines = torch.cat([other_cosines, torch.ones_like(own_score)])
    sits = _task_loss(other_cosines, other_score, weights) + _pearson_loss(
        sits_cosines, torch.cat([other_score, own_score])
    )
    total = _task_loss(sts, score, weights) + weights.sits * sits
    if weights.sis:
        total = total + weights.sis * _pearson_loss(_sis_cosines(vectors, batch), _tensor(batch.sis_score, vectors))
    for pairs, human in batch.sentences:
        first, second = _tensor(pairs, vectors).T
        cosine = (vectors[first] * vectors[second]).sum(-1)
        total = total + weights.sentences * _pearson_loss(cosine, _tensor(human, vectors))
    return total


def _tensor(values: NDArray[Any], vectors: Tensor) -> Tensor:
    """Return an array on the device of the vectors."""
    return torch.from_numpy(values).to(vectors.device)


def _sis_cosines(vectors: Tensor, batch: Batch) -> Tensor:
    """Return the cosine of each judged pair of images, (R,)."""
    left, right = vectors[_tensor(batch.sis, vectors)].unbind(1)
    cosines = left @ right.transpose(1, 2)
    if not len(cosines):  # no maximum over an empty axis
        return cosines.sum(dim=(1, 2))
    return (cosines.amax(dim=1).mean(-1) + cosines.amax(dim=2).mean(-1)) / 2


def _image_cosines(vectors: Tensor, batch: Batch, selected: NDArray[np.bool_]) -> Tensor:
    """Return the largest cosine of each selected SITS pair to the image's references, (Q,)."""
    references = _tensor(batch.references[selected], vectors)
    captions = _tensor(batch.sits[selected], vectors)
    cosines = (vectors[captions][:, None, :] * vectors[references.clamp(min=0)]).sum(-1)
    # A reference of -1 is the judged caption itself; -2 is below every cosine.
    return cosines.masked_fill(references < 0, -2.0).amax(dim=1) if len(captions) else cosines.sum(dim=1)


def _task_loss(cosine: Tensor, score: Tensor, weights: LossWeights) -> Tensor:
    """Return the loss of one task: Pearson's term and, if weighted, CoSENT's."""
    total = _pearson_loss(cosine, score)
    return total + weights.ranking * _cosent_loss(cosine, score, weights.scale) if weights.ranking else total


def _pearson_loss(cosine: Tensor, score: Tensor) -> Tensor:
    """Return 1 - Pearson's r; 0 for fewer than `_MIN_PAIRS` pairs or constant scores."""
    if len(cosine) < _MIN_PAIRS or bool((score == score[0]).all()):
        return cosine.sum() * 0
    a, b = cosine - cosine.mean(), score - score.mean()
    # The small constant keeps the gradient finite if all cosines are equal.
    return 1 - (a * b).sum() / (a.square().sum() * b.square().sum() + 1e-12).sqrt()


def _cosent_loss(cosine: Tensor, score: Tensor, scale: float) -> Tensor:
    """Return CoSENT's loss of (P,) cosines."""
    differences = scale * (cosine[None, :] - cosine[:, None])
    ordered = score[:, None] > score[None, :]
    if not bool(ordered.any()):
        return cosine.sum() * 0
    # Only pairs that people ordered contribute; ties do not.
    terms = differences[ordered]
    return torch.logsumexp(torch.cat([terms.new_zeros(1), terms]), 0) / scale
