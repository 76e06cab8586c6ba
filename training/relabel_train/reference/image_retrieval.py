"""Image-image retrieval by the embeddings of a model, measured in label distances (Kim et al., CVPR 2019)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from relabel_train.metrics import label_distance, ndcg
from relabel_train.precomputed import PrecomputedBatches
from relabel_train.reference.features import Features
from relabel_train.reference.models import Model
from relabel_train.reference.options import FitError
from relabel_train.reference.scoring import encoded_images, evaluating

KS = (1, 5, 10, 50, 100)


def image_figures(
    model: Model, labels: PrecomputedBatches, features: Features, device: torch.device, queries: int = 500
) -> dict[str, dict[str, float]]:
    """Rank the images of the first batch by a model, in random order, and by the label: `model`, `random`, `oracle`.

    Each has `distance@K`, the mean label distance of the K nearest images, and `ndcg@K`, with gain 1 / (1 + d).
    The first `queries` images are queries, and all others of the batch are the gallery of each.
    """
    if labels.about.items != "images":
        raise FitError(f"{labels.folder}: batches of captions. Make some with `relabel export batches --items images`.")
    if model.sets:
        raise FitError("image-image retrieval compares embeddings; this model has a set of vectors per item")
    distances = (labels.about.bounds[1] - labels[0].relevance[:queries]).astype(np.float64)
    with evaluating(model):
        parts = encoded_images(model, features.rows_of(labels.names(0)[1]), features, device)
        vectors = torch.cat(list(parts)).double().cpu().numpy()
    own = np.arange(len(vectors)) == np.arange(len(distances))[:, None]
    ideal = np.sort(distances[~own].reshape(len(distances), -1), axis=1)
    # Squared distances of embeddings; of equal ones, the less relevant image comes first.
    apart = np.stack([((vectors - vector) ** 2).sum(axis=1) for vector in vectors[: len(distances)]])
    order = np.lexsort((-distances, np.where(own, np.inf, apart)))[:, :-1]
    ranked = np.take_along_axis(distances, order, axis=1)
    lists = {"model": ranked, "random": np.random.default_rng(0).permuted(ideal, axis=1), "oracle": ideal}
    return {name: _figures(found, ideal) for name, found in lists.items()}


def _figures(ranked: NDArray[Any], ideal: NDArray[Any]) -> dict[str, float]:
    ks = [k for k in KS if k <= ranked.shape[1]]
    figures = {f"distance@{k}": float(label_distance(ranked, k).mean()) for k in ks}
    return figures | {f"ndcg@{k}": float(ndcg(ranked, ideal, k, "inverse_distance").mean()) for k in ks}
