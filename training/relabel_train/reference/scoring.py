"""Vectors and scores of a split by a model, and its recalls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relabel_train.reference.data import Split
from relabel_train.reference.features import Features
from relabel_train.reference.models import Model
from relabel_train.reference.models.base import unit

KS = (1, 5, 10)


def embed(
    model: Model, split: Split, features: Features, device: torch.device, batch: int = 512
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Embed all images, (M, E), and captions, (N, E), of a split, by a model with one vector per item."""
    captions: list[Any] = [None] * len(split.texts)
    with evaluating(model):
        images = [rows.cpu().numpy() for rows in encoded_images(model, split.feature, features, device, batch)]
        for chosen, rows in _encoded_captions(model, split, device, batch):
            for i, row in zip(chosen.tolist(), rows.cpu().numpy(), strict=True):
                captions[i] = row
    return np.concatenate(images), np.stack(captions)


def score(
    model: Model,
    split: Split,
    features: Features,
    device: torch.device,
    batch: int = 512,
    notify: Callable[[str], None] = lambda _: None,
) -> NDArray[np.float32]:
    """Score all images and captions of a split, (M, N).

    Captions are encoded and scored in batches. The encodings of all images and the scores are held.
    """
    out = np.empty((len(split.feature), len(split.texts)), np.float32)
    done, reported = 0, 0
    with evaluating(model):
        images = list(encoded_images(model, split.feature, features, device, batch))
        for chosen, captions in _encoded_captions(model, split, device, batch):
            first = 0
            for rows in images:
                out[first : first + len(rows), chosen] = model.scores(rows, captions).float().cpu().numpy()
                first += len(rows)
            done += len(chosen)
            if done * 10 // len(split.texts) > reported:
                reported = done * 10 // len(split.texts)
                notify(f"scored {done:,} of {len(split.texts):,} captions with {len(out):,} images")
    return out


def retrieval_scores(
    models: Sequence[Model],
    split: Split,
    features: Features,
    device: torch.device,
    notify: Callable[[str], None] = lambda _: None,
) -> Any:
    """Return the first argument of `retrieval_report`: unit vectors of images and captions of a model, or scores.

    A model without one vector per item gives scores, and several models give the mean of their scores.
    """
    if len(models) == 1 and not models[0].sets:
        vectors = embed(models[0], split, features, device)
        return vectors if models[0].normalize else tuple(unit(torch.from_numpy(one)).numpy() for one in vectors)
    total = score(models[0], split, features, device, notify=notify)
    for model in models[1:]:
        total += score(model, split, features, device, notify=notify)
    return total / np.float32(len(models))


@contextmanager
def evaluating(model: Model) -> Iterator[None]:
    """Switch to evaluation mode without gradients; restores the mode."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


def encoded_images(
    model: Model, rows: NDArray[np.int64], features: Features, device: torch.device, batch: int = 512
) -> Iterator[Tensor]:
    """Encode images, which rows of the features name, in order."""
    for a in range(0, len(rows), batch):
        vectors, lengths = features.take(rows[a : a + batch])
        yield model.encode_images(torch.from_numpy(vectors).to(device), torch.from_numpy(lengths).to(device))


def _encoded_captions(
    model: Model, split: Split, device: torch.device, batch: int
) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
    """Encode the captions of a split; yields their numbers with them."""
    # Captions of similar length need little padding.
    order = np.argsort([len(text) for text in split.texts], kind="stable")
    for a in range(0, len(order), batch):
        chosen = order[a : a + batch]
        tokens, counts = model.tokens([split.texts[i] for i in chosen])
        yield chosen, model.encode_captions(tokens.to(device), counts.to(device))


def recall(
    model: Model,
    split: Split,
    features: Features,
    device: torch.device,
    notify: Callable[[str], None] = lambda _: None,
) -> dict[str, float]:
    """Return R@1, 5, 10 in both directions and their sum, in percent; equal scores count against the model."""
    from relabel_train.metrics import ReportSettings, retrieval_report

    scores = retrieval_scores([model], split, features, device, notify)
    report = retrieval_report(scores, split.image, settings=ReportSettings(kendall_tau=False))
    recalls: dict[str, float] = {}
    for k in KS:
        figure = report[f"all.r{k}_percent"]
        recalls |= {f"i2t_r{k}": float(figure.i2t or 0), f"t2i_r{k}": float(figure.t2i or 0)}
    return recalls | {"rsum": sum(recalls.values())}
