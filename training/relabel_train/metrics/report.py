"""All metrics that apply to the given data, in one report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relabel_train.metrics.binary_figures import fold_figures, positive_figures, recall_figures, semantic_figures
from relabel_train.metrics.graded_figures import graded_figures, one_caption_figures
from relabel_train.metrics.positives import Positives, own_positives
from relabel_train.metrics.results import ReportSettings, RetrievalReport
from relabel_train.metrics.scores import open_labels, open_scores

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
    """Compute every metric that the given data allow.

    Parameters
    ----------
    scores : (M, N) array or tensor, or a pair of them, (M, D) and (N, D)
        Images are rows, captions are columns, larger is better. A pair holds vectors: scores are their products,
        computed in blocks. NaN is an error.
    image_of_caption : (N,) int
        Row of each caption's image, as `own_positives` takes it.
    relevance : (M, N) array or tensor, or a function of (images, captions), optional
        r(V_i, T_j) for the metrics of graded labels; one matrix serves both directions. `LookupRelevance` is such a
        function.
    positives : mapping of name to Positives, optional
        Sets such as `eccv` and `cxc`: R@K, mAP@R and R-Precision of each, R@K alone of those in `recall_only`. Means
        are over the given queries: for CxC 24,972 of the 25,000 captions, as in eccv_caption.
    folds : int or (M,) int, optional
        5 for COCO 1K: images are cut into this many consecutive parts of one size, each with its own captions, and
        figures are means over folds. Alternatively the fold of each image.
    settings : ReportSettings, optional

    Returns
    -------
    RetrievalReport

    Raises
    ------
    ValueError
        If shapes do not fit, a score or label is NaN, or a depth is no whole number of 1 or more.

    Examples
    --------
    >>> scores = np.array([[0.9, 0.2, 0.1], [0.3, 0.4, 0.8]])
    >>> retrieval_report(scores, [0, 1, 1])["all.r1_percent"].t2i
    100.0
    """
    settings = settings or ReportSettings()
    opened = open_scores(scores)
    images, captions = opened.shape
    own = own_positives(image_of_caption, images)
    image = np.asarray(image_of_caption).astype(np.int64)
    if len(image) != captions:
        raise ValueError(f"scores are of {captions} captions, image_of_caption names {len(image)}")
    figures = recall_figures("all", opened, own, settings)
    if folds is not None:
        figures += fold_figures(opened, image, folds, settings)
    for name, sets in (positives or {}).items():
        figures += positive_figures(name, opened, sets, settings)
    if relevance is not None:
        labels = open_labels(relevance, opened.shape)
        figures += semantic_figures("labels", opened, labels, own, settings)
        figures += graded_figures("labels", opened, labels, own, settings)
        if settings.one_caption:
            figures += one_caption_figures(opened, labels, own, settings)
    return RetrievalReport(images, captions, settings.ties, tuple(figures))
