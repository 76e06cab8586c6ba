"""All metrics that apply, in one report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relabel_train.metrics.figures import RetrievalReport
from relabel_train.metrics.graded_figures import graded_figures, one_caption_figures
from relabel_train.metrics.positives import Positives, own_positives
from relabel_train.metrics.recall_figures import fold_figures, positive_figures, recall_figures, semantic_figures
from relabel_train.metrics.scores import open_labels, open_scores
from relabel_train.metrics.settings import ReportSettings

Relevance = Callable[[NDArray[np.int64], NDArray[np.int64]], ArrayLike]
"""(images (m,), captions (n,)) -> (m, n): exact labels of some rows and columns of the score matrix."""


def retrieval_report(
    scores: Any,
    image_of_caption: ArrayLike,
    *,
    relevance: Any | Relevance | None = None,
    positives: Mapping[str, Positives] | None = None,
    folds: int | ArrayLike | None = None,
    settings: ReportSettings | None = None,
) -> RetrievalReport:
    """Take every metric that the given data allow.

    Parameters
    ----------
    scores : (M, N) array or tensor, or a pair of them, (M, D) and (N, D)
        Images are rows, captions are columns, larger is better. A pair is taken as vectors: scores are their products,
        a block at a time. NaN is refused.
    image_of_caption : (N,) int
        See `own_positives`.
    relevance : (M, N) array or tensor, or a function of (images, captions), optional
        r(V_i, T_j) for the metrics of graded labels; one matrix serves both directions. See `LookupRelevance`.
    positives : mapping of name to Positives, optional
        Such as `eccv` and `cxc`: R@K, mAP@R and R-Precision of each; R@K alone of those in `recall_only`. Means are
        over the queries given: of CxC 24,972 of the 25,000 captions, as eccv_caption takes them.
    folds : int or (M,) int, optional
        COCO 1K: 5. Images are cut into this many consecutive parts of one size, each with its own captions, and figures
        are means over folds; or the fold of each image.
    settings : ReportSettings, optional

    Returns
    -------
    RetrievalReport

    Raises
    ------
    ValueError
        If shapes do not fit, a score or label is NaN, or a depth is no whole number of 1 or more.
    """
    chosen = settings or ReportSettings()
    opened = open_scores(scores)
    images, captions = opened.shape
    own = own_positives(image_of_caption, images)
    image = np.asarray(image_of_caption).astype(np.int64)
    if len(image) != captions:
        raise ValueError(f"scores are of {captions} captions, image_of_caption names {len(image)}")
    figures = recall_figures("all", opened, own, chosen)
    if folds is not None:
        figures += fold_figures(opened, image, folds, chosen)
    for name, some in (positives or {}).items():
        figures += positive_figures(name, opened, some, chosen)
    if relevance is not None:
        labels = open_labels(relevance, opened.shape)
        figures += semantic_figures("labels", opened, labels, own, chosen)
        figures += graded_figures("labels", opened, labels, own, chosen)
        if chosen.one_caption:
            figures += one_caption_figures(opened, labels, own, chosen)
    return RetrievalReport(images, captions, chosen.ties, tuple(figures))
