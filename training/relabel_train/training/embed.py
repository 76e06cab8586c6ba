"""Embeddings of a complete split, and their recall."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from relabel_train.features import Features
from relabel_train.models import Model
from relabel_train.training.data import Split

KS = (1, 5, 10)


def embed(
    model: Model, split: Split, features: Features, device: torch.device, batch: int = 512
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Embed all images, (M, E), and captions, (N, E), of a split; restores the model's mode."""
    training = model.training
    model.eval()
    images: list[Any] = []
    captions: list[Any] = [None] * len(split.texts)
    with torch.no_grad():
        for a in range(0, len(split.feature), batch):
            vectors, lengths = features.take(split.feature[a : a + batch])
            rows = model.encode_images(torch.from_numpy(vectors).to(device), torch.from_numpy(lengths).to(device))
            images.append(rows.cpu().numpy())
        # Captions of similar length need little padding.
        order = np.argsort([len(text) for text in split.texts], kind="stable")
        for a in range(0, len(order), batch):
            chosen = order[a : a + batch]
            tokens, counts = model.tokens([split.texts[i] for i in chosen])
            embedded = model.encode_captions(tokens.to(device), counts.to(device)).cpu().numpy()
            for i, row in zip(chosen.tolist(), embedded, strict=True):
                captions[i] = row
    model.train(training)
    return np.concatenate(images), np.stack(captions)


def recall(model: Model, split: Split, features: Features, device: torch.device) -> dict[str, float]:
    """Return R@1, 5, 10 in both directions and their sum, in percent; equal scores count against the model."""
    from relabel_train.metrics import ReportSettings, retrieval_report

    images, captions = embed(model, split, features, device)
    report = retrieval_report((images, captions), split.image, settings=ReportSettings(kendall_tau=False))
    recalls: dict[str, float] = {}
    for k in KS:
        figure = report[f"all.r{k}_percent"]
        recalls |= {f"i2t_r{k}": float(figure.i2t or 0), f"t2i_r{k}": float(figure.t2i or 0)}
    return recalls | {"rsum": sum(recalls.values())}
