"""Every metric of a trained model: recalls, agreement with labels, positives found by people."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel_train.lookup import Lookup, open_lookup
from relabel_train.metrics import (
    LookupRelevance,
    Positives,
    ReportSettings,
    RetrievalReport,
    open_scores,
    own_positives,
    positives_of,
    retrieval_report,
)
from relabel_train.metrics.positives import read_ids
from relabel_train.metrics.report import fold_ncs_figures, one_caption_figures
from relabel_train.metrics.scores import open_labels
from relabel_train.precomputed import open_batches
from relabel_train.reference.data import (
    Split,
    check_corpus,
    check_not_held_out,
    open_corpus_features,
    read_split,
)
from relabel_train.reference.distributed import join_processes
from relabel_train.reference.features import Features
from relabel_train.reference.fit import load_model
from relabel_train.reference.image_retrieval import image_figures
from relabel_train.reference.options import EvalOptions, FitError
from relabel_train.reference.scoring import retrieval_scores

POSITIVES = {"eccv": "ECCV Caption", "cxc": "CxC"}
"""Sets of positives by the first part of their files' names, in a folder of `relabel fetch eccv`."""


@dataclass(frozen=True)
class Evaluation:
    """Result of an evaluation.

    `retrieval`: of all images that were evaluated; with the positives `eccv` and `cxc` if given.
    `graded`: by label, or by folder if a label has another lookup before, of the first images; folds of all images.
    `image_figures`: by label, image-image retrieval (see `image_retrieval.image_figures`).
    `proxy`: caveat to show with these figures: the features are proxies of images.
    """

    retrieval: RetrievalReport
    graded: dict[str, RetrievalReport]
    proxy: str | None = None
    image_figures: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        graded = {name: report.to_json() for name, report in self.graded.items()}
        head = {"proxy": self.proxy, "notes": self.notes, "image_figures": self.image_figures}
        return {**head, "retrieval": self.retrieval.to_json(), "graded": graded}


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
    with join_processes(device) as processes:
        models = [load_model(run, options.checkpoint)[0] for run in (options.run, *options.average)]
        for model in models:
            model.to(processes.device)
        features = open_corpus_features(options.features, options.captions, options.ids)
        split = read_split(options.captions, options.split, features)
        split = split.first(options.images) if options.images else split
        if options.folds and (count := len(split.image_ids)) % options.folds:
            raise FitError(f"{count:,} images cannot be cut into {options.folds} folds of one size: set `images`")
        notify(f"encoding {len(split.image_ids):,} images and {len(split.texts):,} captions of {options.split}")
        scores = retrieval_scores(models, split, features, processes.device, notify)
        of_images = {x.about.label: image_figures(models[0], x, features, processes.device) for x in image_labels}
    # Rankings need no model, and no process group.
    if not all(np.isfinite(part).all() for part in (scores if isinstance(scores, tuple) else (scores,))):
        raise FitError(f"{options.run}: the model's embeddings are not finite")
    notes: list[str] = []
    positives: dict[str, Positives] = {}
    if options.eccv is not None:
        for name in POSITIVES:
            positives[name], note = positives_without_held_out(options.eccv, name, split, features)
            notes.append(note)
    notify("recalls")
    # Without labels there is neither Kendall's tau nor Semantic Recall.
    plain = ReportSettings(kendall_tau=False, semantic_ms=())
    retrieval = retrieval_report(scores, split.image, positives=positives, folds=options.folds, settings=plain)
    graded = {}
    for lookup in lookups:
        check_not_held_out(lookup, features)
        # Two lookups of one label, as of two poolings, are told apart by their folders.
        name = str(lookup.folder) if lookup.about.label in graded else lookup.about.label
        notify(f"metrics of labels: {name}")
        graded[name] = _graded(lookup, split, scores, options)
    return Evaluation(retrieval, graded, features.proxy, of_images, notes)


def positives_without_held_out(folder: Path, name: str, split: Split, features: Features) -> tuple[Positives, str]:
    """Read one of `POSITIVES` without held-out captions. Return the positives and a note on the omissions."""
    held_out = set(features.about.get("held_out", ()))
    # The files hold numbers; the corpus's ids carry a namespace.
    space = split.caption_ids[0].partition(":")[0]
    try:
        i2t, t2i = (read_ids(folder / f"{name}_{way}.json", space) for way in ("image_to_caption", "caption_to_image"))
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error.filename}: file not found. Run `relabel fetch eccv`.") from None
    except ValueError as error:
        raise FitError(f"{error}. Run `relabel fetch eccv`.") from error
    dropped = sum(len(held_out.intersection(ids)) for ids in i2t.values())
    i2t = {query: [i for i in ids if i not in held_out] for query, ids in i2t.items()}
    t2i_left = {query: ids for query, ids in t2i.items() if query not in held_out}
    positives = positives_of(i2t, t2i_left, split.image_ids, split.caption_ids, partial=True)
    note = (
        f"{POSITIVES[name]}: {len(positives.i2t):,} of {len(i2t):,} image queries, {len(positives.t2i):,} of "
        f"{len(t2i):,} caption queries; {dropped:,} positives stand in for their image and are left out."
    )
    return positives, note


def _graded(lookup: Lookup, split: Split, scores: Any, options: EvalOptions) -> RetrievalReport:
    """Compute the metrics of a label on the first images and their captions, and those of folds on all images."""
    low, top = lookup.about.bounds
    settings = ReportSettings(label_top=top, label_low=low, cs_ks=options.cs_ks, semantic_ms=options.semantic_ms)
    total = len(split.image_ids)
    images, image, part, relevance = _labelled(lookup, split, scores, min(options.graded or total, total))
    report = retrieval_report(part, image, relevance=relevance, settings=settings)
    figures = list(report)
    if options.one_caption:
        captions = LookupRelevance(lookup, relevance.image_rows, relevance.caption_rows, "first")
        labels = open_labels(captions, captions.shape, hold=False)
        figures += one_caption_figures(open_scores(part), labels, own_positives(image, len(images)), settings)
    if options.folds is not None:
        images, image, part, relevance = _labelled(lookup, split, scores, total)
        labels = open_labels(relevance, relevance.shape, hold=False)
        fold = images // (total // options.folds)
        figures += fold_ncs_figures(open_scores(part), labels, image, fold, settings)
    return replace(report, figures=tuple(figures))


def _labelled(
    lookup: Lookup, split: Split, scores: Any, count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], Any, LookupRelevance]:
    """Select the first `count` images and their captions, without those that have no label.

    Returns the numbers of the images, (M,), the image of each caption among them, (N,), their scores and their labels.
    """
    chosen = np.flatnonzero(split.image < count)
    rows = lookup.rows_of([split.caption_ids[i] for i in chosen])
    # Captions without an encoding have no relevance.
    usable = lookup.captions().positions_of(rows) >= 0
    chosen, rows = chosen[usable], rows[usable]
    # Images left without a caption leave the gallery; the others are numbered again.
    images, first, image = np.unique(split.image[chosen], return_index=True, return_inverse=True)
    vectors = isinstance(scores, tuple)
    part = (scores[0][images], scores[1][chosen]) if vectors else scores[np.ix_(images, chosen)]
    # The first caption of an image names it, also where captions are compared one by one.
    return images, image, part, LookupRelevance(lookup, rows[first], rows)
