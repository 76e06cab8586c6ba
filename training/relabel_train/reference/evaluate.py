"""Every metric of a model: recalls, agreement with labels, positives found by people, retrieval of images by images."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relabel_train import metrics
from relabel_train.features import Features
from relabel_train.lookup import Lookup, open_lookup
from relabel_train.metrics import ReportSettings
from relabel_train.metrics.report import fold_ncs_figures, one_caption_figures
from relabel_train.metrics.scores import open_labels
from relabel_train.precomputed import PrecomputedBatches, open_batches
from relabel_train.reference.data import SplitData, check_corpus, open_corpus_features, read_split
from relabel_train.reference.models.base import Model
from relabel_train.reference.options import EvalOptions, FitError
from relabel_train.reference.runs import find_device, load_model

RECALL_KS = (1, 5, 10)
IMAGE_KS = (1, 5, 10, 50, 100)
BATCH = 512
"""Images and captions that are encoded at a time."""
POSITIVES = {"eccv": "ECCV Caption", "cxc": "CxC"}
"""Sets of positives by the first part of their files' names, in a folder of `relabel fetch eccv`."""


@torch.no_grad()
def score(model: Model, split: SplitData, features: Features, device: torch.device) -> NDArray[np.float32]:
    """Score all images and captions of a split, (M, N). The encodings of all images and the scores are held."""
    out = np.empty((len(split.feature), len(split.texts)), np.float32)
    # Captions of similar length need little padding.
    order = np.argsort([len(text) for text in split.texts], kind="stable")
    images = torch.split(encoded_images(model, split.feature, features, device), BATCH)
    for chosen in np.split(order, range(BATCH, len(order), BATCH)):
        tokens, lengths = model.tokens(split.texts[chosen].tolist())
        captions = model.encode_captions(tokens.to(device), lengths.to(device))
        out[:, chosen] = torch.cat([model.scores(rows, captions).float() for rows in images]).cpu().numpy()
    return out


def encoded_images(model: Model, rows: NDArray[np.int64], features: Features, device: torch.device) -> Tensor:
    """Encode images, given by their rows in the features, in order."""
    parts = []
    for some in np.split(rows, range(BATCH, len(rows), BATCH)):
        vectors, lengths = features.take(some)
        parts.append(model.encode_images(torch.from_numpy(vectors).to(device), torch.from_numpy(lengths).to(device)))
    return torch.cat(parts)


def recall(model: Model, split: SplitData, features: Features, device: torch.device) -> dict[str, float]:
    """Return R@1, 5, 10 in both directions and their sum, in percent; equal scores count against the model."""
    scores = score(model, split, features, device)
    report = metrics.retrieval_report(scores, split.image, settings=ReportSettings(kendall_tau=False))
    sides = [(k, side) for k in RECALL_KS for side in ("i2t", "t2i")]
    recalls = {f"{side}_r{k}": float(getattr(report[f"all.r{k}_percent"], side) or 0) for k, side in sides}
    return recalls | {"rsum": sum(recalls.values())}


@torch.no_grad()
def image_figures(
    model: Model, labels: PrecomputedBatches, features: Features, device: torch.device, queries: int = 500
) -> dict[str, dict[str, float]]:
    """Rank the images of the first batch by a model, in random order, and by the label: `model`, `random`, `oracle`.

    Each has `distance@K`, the mean label distance of the K nearest images, and `ndcg@K`, with gain 1 / (1 + d)
    (Kim et al., CVPR 2019). The first `queries` images are queries; all other images of the batch are the gallery.
    """
    if labels.about.items != "images":
        raise FitError(f"{labels.folder}: batches of captions. Make some with `relabel export batches --items images`.")
    if model.sets:
        raise FitError("image-image retrieval compares embeddings; this model has a set of vectors per item")
    distances = (labels.about.bounds[1] - labels[0].relevance[:queries]).astype(np.float64)
    encoded = encoded_images(model, features.rows_of(labels.names(0)[1]), features, device)
    vectors = encoded.double().cpu().numpy()
    own = np.arange(len(vectors)) == np.arange(len(distances))[:, None]
    ideal = np.sort(distances[~own].reshape(len(distances), -1), axis=1)
    # Squared distances of embeddings; of equal ones, the less relevant image comes first.
    apart = np.stack([((vectors - vector) ** 2).sum(axis=1) for vector in vectors[: len(distances)]])
    order = np.lexsort((-distances, np.where(own, np.inf, apart)))[:, :-1]
    ranked = np.take_along_axis(distances, order, axis=1)
    lists = {"model": ranked, "random": np.random.default_rng(0).permuted(ideal, axis=1), "oracle": ideal}
    return {name: _figures(found, ideal) for name, found in lists.items()}


def _figures(ranked: NDArray[Any], ideal: NDArray[Any]) -> dict[str, float]:
    ks = [k for k in IMAGE_KS if k <= ranked.shape[1]]
    figures = {f"distance@{k}": float(metrics.label_distance(ranked, k).mean()) for k in ks}
    return figures | {f"ndcg@{k}": float(metrics.ndcg(ranked, ideal, k, "inverse_distance").mean()) for k in ks}


@dataclass(frozen=True)
class Evaluation:
    """Result of an evaluation.

    `retrieval`: of all images that were evaluated; with the positives `eccv` and `cxc` if given.
    `graded`: by label, or by folder for a second lookup of a label, of the first images; folds of all images.
    `image_figures`: by label, image-image retrieval (see the function).
    `proxy`: caveat to show with these figures: the features are proxies of images.
    """

    retrieval: metrics.RetrievalReport
    graded: dict[str, metrics.RetrievalReport]
    proxy: str | None = None
    image_figures: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        graded = {name: report.to_json() for name, report in self.graded.items()}
        return {**self.__dict__, "retrieval": self.retrieval.to_json(), "graded": graded}


def evaluate(options: EvalOptions, device: str = "auto", notify: Callable[[str], None] = lambda _: None) -> Evaluation:
    """Compute every metric that the given files allow.

    Captions that stand in for images are neither queries, nor in a gallery, nor positives. A held-out caption is left
    out as a query, and R of an image query does not count it.
    """
    if options.images and options.eccv is not None:
        raise FitError("the positives of ECCV Caption and CxC need all images of the split: omit `images` or `eccv`")
    lookups = [open_lookup(path) for path in options.lookup]
    image_labels: list[Any] = [open_batches(path) for path in options.image_labels]
    for labels in (*lookups, *image_labels):
        check_corpus(options.captions, labels)
    place = find_device(device)
    models = [load_model(run).to(place) for run in (options.run, *options.average)]
    features = open_corpus_features(options.features, options.captions)
    split = read_split(options.captions, options.split, features)
    split = split.select(np.arange(min(options.images or len(split.image_ids), len(split.image_ids))))
    if options.folds and (count := len(split.image_ids)) % options.folds:
        raise FitError(f"{count:,} images cannot be cut into {options.folds} folds of one size: set `images`")
    notify(f"encoding {len(split.image_ids):,} images and {len(split.texts):,} captions of {options.split}")
    scores = reduce(np.add, (score(model, split, features, place) for model in models)) / np.float32(len(models))
    if not np.isfinite(scores).all():
        raise FitError(f"{options.run}: the model's scores are not finite")
    found, notes = dict[str, metrics.Positives](), list[str]()
    if options.eccv is not None:
        for name, title in POSITIVES.items():
            found[name] = sets = open_positives(options.eccv, name, split, features.held_out)
            notes.append(f"{title}: {len(sets.i2t):,} image queries, {len(sets.t2i):,} caption queries")
    # Without labels there is neither Kendall's tau nor Semantic Recall.
    plain = ReportSettings(kendall_tau=False, semantic_ms=())
    retrieval = metrics.retrieval_report(scores, split.image, positives=found, folds=options.folds, settings=plain)
    graded: dict[str, metrics.RetrievalReport] = {}
    for lookup in lookups:
        # Two lookups of one label, as of two poolings, are distinguished by their folders.
        name = str(lookup.folder) if lookup.about.label in graded else lookup.about.label
        notify(f"metrics of labels: {name}")
        graded[name] = _graded(lookup, split, scores, options)
    of_images = {labels.about.label: image_figures(models[0], labels, features, place) for labels in image_labels}
    return Evaluation(retrieval, graded, features.proxy, of_images, notes)


def open_positives(folder: Path, name: str, split: SplitData, held_out: Collection[str]) -> metrics.Positives:
    """Read one of `POSITIVES` for the images and captions of a split, without held-out captions."""
    i2t, t2i = folder / f"{name}_image_to_caption.json", folder / f"{name}_caption_to_image.json"
    images, captions = split.image_ids.tolist(), split.caption_ids.tolist()
    # The files hold numbers; the corpus's ids carry a namespace.
    space = captions[0].partition(":")[0]
    try:
        return metrics.read_positives(i2t, t2i, images, captions, space, partial=True, without=held_out)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error.filename}: file not found. Run `relabel fetch eccv`.") from None
    except ValueError as error:
        raise FitError(f"{error}. Run `relabel fetch eccv`.") from error


def _graded(
    lookup: Lookup, split: SplitData, scores: NDArray[np.float32], options: EvalOptions
) -> metrics.RetrievalReport:
    """Compute the metrics of a label on the first images and their captions, and those of folds on all images."""
    low, top = lookup.about.bounds
    settings = ReportSettings(label_top=top, label_low=low, cs_ks=options.cs_ks, semantic_ms=options.semantic_ms)
    total = len(split.image_ids)
    images, image, part, relevance = _labelled(lookup, split, scores, min(options.graded or total, total))
    report = metrics.retrieval_report(part, image, relevance=relevance, settings=settings)
    figures = list(report)
    if options.one_caption:
        captions = metrics.LookupRelevance(lookup, relevance.image_rows, relevance.caption_rows, "first")
        labels = open_labels(captions, captions.shape, hold=False)
        own = metrics.own_positives(image, len(images))
        figures += one_caption_figures(metrics.open_scores(part), labels, own, settings)
    if options.folds is not None:
        images, image, part, relevance = _labelled(lookup, split, scores, total)
        labels = open_labels(relevance, relevance.shape, hold=False)
        fold = images // (total // options.folds)
        figures += fold_ncs_figures(metrics.open_scores(part), labels, image, fold, settings)
    return replace(report, figures=tuple(figures))


def _labelled(
    lookup: Lookup, split: SplitData, scores: NDArray[np.float32], count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32], metrics.LookupRelevance]:
    """Select the first `count` images and their captions, without those that have no label.

    Returns the numbers of the images, (M,), the image of each caption among them, (N,), their scores and their labels.
    """
    chosen = np.flatnonzero(split.image < count)
    rows = lookup.rows_of(split.caption_ids[chosen])
    # Captions without an encoding have no relevance.
    usable = lookup.captions().positions_of(rows) >= 0
    chosen, rows = chosen[usable], rows[usable]
    # Images left without a caption leave the gallery; the others are numbered again.
    images, first, image = np.unique(split.image[chosen], return_index=True, return_inverse=True)
    # The first caption of an image names it, also where captions are compared one by one.
    return images, image, scores[np.ix_(images, chosen)], metrics.LookupRelevance(lookup, rows[first], rows)
