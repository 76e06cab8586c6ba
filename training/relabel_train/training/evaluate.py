"""Embeddings of a whole split, and recall from them."""

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
    """Embed all images, (M, E), and captions, (N, E), of a split; the model's mode is left as it was."""
    training = model.training
    model.eval()
    images: list[Any] = []
    captions: list[Any] = [None] * len(split.texts)
    with torch.no_grad():
        for a in range(0, len(split.place), batch):
            vectors, lengths = features.take(split.place[a : a + batch])
            found = model.encode_images(torch.from_numpy(vectors).to(device), torch.from_numpy(lengths).to(device))
            images.append(found.cpu().numpy())
        order = np.argsort([len(text) for text in split.texts], kind="stable")  # little padding
        for a in range(0, len(order), batch):
            these = order[a : a + batch]
            tokens, lengths_ = model.tokens([split.texts[i] for i in these])
            rows = model.encode_captions(tokens.to(device), lengths_.to(device)).cpu().numpy()
            for i, row in zip(these.tolist(), rows, strict=True):
                captions[i] = row
    model.train(training)
    return np.concatenate(images), np.stack(captions)


def recall(model: Model, split: Split, features: Features, device: torch.device) -> dict[str, float]:
    """R@1, 5, 10 in both directions and their sum, in percent; equal scores count against the model."""
    from relabel_train.metrics import ReportSettings, retrieval_report

    images, captions = embed(model, split, features, device)
    report = retrieval_report((images, captions), split.image, settings=ReportSettings(kendall_tau=False))
    found: dict[str, float] = {}
    for k in KS:
        figure = report[f"all.r{k}_percent"]
        found |= {f"i2t_r{k}": float(figure.i2t or 0), f"t2i_r{k}": float(figure.t2i or 0)}
    return found | {"rsum": sum(found.values())}
