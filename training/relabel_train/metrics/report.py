"""Every metric that applies to the given data, in one report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relabel_train.metrics.binary import (
    average_precision_at_r,
    ir_recall,
    mean_rank,
    median_rank,
    r_precision,
    recall_percent,
    rsum,
)
from relabel_train.metrics.graded import label_distance, ncs, ndcg
from relabel_train.metrics.kendall import cs_at_k, kendall_tau
from relabel_train.metrics.positives import Positives, QueryPositives, own_positives
from relabel_train.metrics.ranking import Items, Ranking, ideal_labels, rank_positives
from relabel_train.metrics.results import Figure, ReportSettings, RetrievalReport
from relabel_train.metrics.scores import (
    DIRECTIONS,
    Direction,
    Floats,
    Scores,
    check_ordered,
    map_blocks,
    open_labels,
    open_scores,
    split_into_folds,
)
from relabel_train.metrics.semantic import extended_by_images, extended_by_items

Values = dict[str, NDArray[np.float64]]
"""Metrics by name, one value per query: (Q,) each; NaN for a metric that is not defined."""
Ranked = list[tuple[NDArray[np.int64], NDArray[np.bool_]]]
"""Ranks of the best positives and hits, as `rank_positives` returns them, i2t and t2i."""
_SLACK = 1e-4
"""Relative tolerance by which rounding may raise a label above its maximum."""

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
        Rows are images, columns are captions, and larger scores are better. For a pair of arrays of vectors, scores are
        their products, computed in blocks. NaN is an error.
    image_of_caption : (N,) int
        Row of each caption's image, as `own_positives` takes it.
    relevance : (M, N) array or tensor, or a function of (images, captions), optional
        r(V_i, T_j) for the metrics of graded labels; one matrix serves both directions. `LookupRelevance` is such a
        function. Labels lie between ``settings.label_low`` and ``settings.label_top``, 0 and 1 by default.
    positives : mapping of name to Positives, optional
        Sets such as `eccv` and `cxc`: R@K, mAP@R and R-Precision of each, only R@K of those in `recall_only`. Means are
        over the given queries: for CxC 24,972 of the 25,000 captions, as in eccv_caption.
    folds : int or (M,) int, optional
        Number of consecutive folds of equal size (5 for COCO 1K), or the fold of each image. Each fold contains its
        images and their captions. Recalls and, if labels are given, NCS are means over folds.
    settings : ReportSettings, optional

    Raises
    ------
    ValueError
        If shapes do not fit, a score or label is NaN, or a label is out of its bounds.

    Examples
    --------
    >>> from relabel_train.metrics import ReportSettings
    >>> scores = np.array([[0.9, 0.2, 0.1], [0.3, 0.4, 0.8]])
    >>> relevance = np.array([[1.0, 0.6, 0.2], [0.3, 1.0, 0.9]])
    >>> settings = ReportSettings(recall_ks=(1, 2), ncs_ks=(1, 2), kendall_tau=False)
    >>> report = retrieval_report(scores, [0, 1, 1], relevance=relevance, settings=settings)
    >>> report["all.r1_percent"].t2i, round(report["labels.ndcg"].i2t, 4)
    (100.0, 0.9851)
    >>> [f"{figure.protocol}.{figure.name}" for figure in report][:5]
    ['all.r1_percent', 'all.r2_percent', 'all.rsum_percent', 'all.median_rank', 'all.mean_rank']
    """
    settings = settings or ReportSettings()
    opened = open_scores(scores)
    images, captions = opened.shape
    ground_truth = own_positives(image_of_caption, images)
    image = np.asarray(image_of_caption).astype(np.int64)
    if len(image) != captions:
        raise ValueError(f"scores are of {captions} captions, image_of_caption names {len(image)}")
    figures = recall_figures("all", opened, ground_truth, settings)
    if folds is not None:
        figures += fold_figures(opened, image, folds, settings)
    for name, sets in (positives or {}).items():
        figures += positive_figures(name, opened, sets, settings)
    if relevance is not None:
        labels = open_labels(relevance, opened.shape)
        figures += semantic_figures("labels", opened, labels, ground_truth, settings)
        figures += graded_figures("labels", opened, labels, ground_truth, settings)
        if folds is not None:
            figures += fold_ncs_figures(opened, labels, image, folds, settings)
        if settings.one_caption:
            figures += one_caption_figures(opened, labels, ground_truth, settings)
    return RetrievalReport(images, captions, settings.ties, tuple(figures))


def recall_figures(protocol: str, scores: Scores, own: Positives, settings: ReportSettings) -> list[Figure]:
    """Return R@K, RSUM, median and mean rank, and IR recall."""
    ranked = _rank(scores, own, settings, max(settings.recall_ks))
    recalls = _recalls(protocol, [ranked], settings)
    (i2t, _), (t2i, _) = ranked
    ranks = [
        Figure(protocol, name, rank(i2t), rank(t2i), queries=(len(i2t), len(t2i)))
        for name, rank in (("median_rank", median_rank), ("mean_rank", mean_rank))
    ]
    return [
        *recalls,
        _sum(protocol, "rsum_percent", recalls),
        *ranks,
        *_ir_recalls(protocol, "ir_recall", own, ranked, settings),
    ]


def fold_figures(
    scores: Scores, image_of_caption: NDArray[np.int64], folds: int | ArrayLike, settings: ReportSettings
) -> list[Figure]:
    """Return R@K and RSUM as means over folds."""
    ranked = [
        _rank(part, own_positives(image, part.shape[0]), settings)
        for part, image in split_into_folds(scores, image_of_caption, folds)
    ]
    recalls = _recalls("folds", ranked, settings)
    return [*recalls, _sum("folds", "rsum_percent", recalls)]


def fold_ncs_figures(
    scores: Scores,
    labels: Scores,
    image_of_caption: NDArray[np.int64],
    folds: int | ArrayLike,
    settings: ReportSettings,
) -> list[Figure]:
    """Return NCS and Nsum as means over folds. Retrieved items and ideal lists are those of the fold's gallery."""
    settings = replace(settings, cs_ks=(), ndcg_ks=(), distance_ks=(), kendall_tau=False)
    parts, graded = (split_into_folds(values, image_of_caption, folds) for values in (scores, labels))
    found = [
        graded_figures("folds", part, part_labels, own_positives(image, part.shape[0]), settings)
        for (part, image), (part_labels, _) in zip(parts, graded, strict=True)
    ]
    return [_mean_of_folds(figures) for figures in zip(*found, strict=True)]


def _mean_of_folds(figures: Sequence[Figure]) -> Figure:
    """Return the mean of one figure over folds, with the queries of all folds."""
    means: list[float | None] = []
    for side in ("i2t", "t2i", "both"):
        values = [getattr(figure, side) for figure in figures]
        means.append(None if None in values else float(np.mean(values)))
    images, captions = (sum(figure.queries[side] for figure in figures) for side in (0, 1))
    return replace(figures[0], i2t=means[0], t2i=means[1], both=means[2], queries=(images, captions))


def positive_figures(name: str, scores: Scores, positives: Positives, settings: ReportSettings) -> list[Figure]:
    """Return R@K, mAP@R and R-Precision on annotated positives."""
    if name in settings.recall_only:
        return _recalls(name, [_rank(scores, positives, settings)], settings)
    # R-Precision of the query with the most positives needs a list of that length.
    totals = [side.total for _, side in _sides(positives)]
    ranked = _rank(scores, positives, settings, max(int(total.max(initial=1)) for total in totals))
    figures = _recalls(name, [ranked], settings)
    for metric, function in (("map_at_r", average_precision_at_r), ("r_precision", r_precision)):
        i2t, t2i = (_mean_percent(function(hits, total)) for (_, hits), total in zip(ranked, totals, strict=True))
        figures.append(Figure(name, f"{metric}_percent", i2t, t2i, queries=figures[0].queries))
    return figures


def semantic_figures(
    protocol: str, scores: Scores, labels: Scores, own: Positives, settings: ReportSettings
) -> list[Figure]:
    """Return Semantic Recall in both forms: the paper's with GT in the set, the code's without GT in set and list."""
    figures: list[Figure] = []
    # The released code's sets depend on the depth of the lists that it reads: the maximum K of its recalls.
    depth = max(settings.recall_ks)
    for m in settings.semantic_ms:
        paper, code = extended_by_items(labels, own, m), extended_by_images(labels, own, m, depth)
        for name, sets, without in (("semantic_recall", paper, None), ("semantic_recall_code", code, own)):
            ranked = _rank(scores, sets, settings, depth, without)
            figures += _ir_recalls(protocol, name, sets, ranked, settings, f"_m{m}")
    return figures


def _rank(
    scores: Scores, positives: Positives, settings: ReportSettings, length: int = 0, without: Positives | None = None
) -> Ranked:
    """Rank the positives of both directions."""
    removed = (None, None) if without is None else (without.i2t, without.t2i)
    return [
        rank_positives(scores, direction, side, length, settings.ties, one, settings.threads)
        for (direction, side), one in zip(_sides(positives), removed, strict=True)
    ]


def _recalls(protocol: str, folds: list[Ranked], settings: ReportSettings) -> list[Figure]:
    """Return R@K as means over folds."""
    queries = (sum(len(i2t[0]) for i2t, _ in folds), sum(len(t2i[0]) for _, t2i in folds))
    figures = []
    for k in settings.recall_ks:
        i2t, t2i = (float(np.mean([recall_percent(fold[side][0], k) for fold in folds])) for side in (0, 1))
        figures.append(Figure(protocol, f"r{k}_percent", i2t, t2i, queries=queries))
    return figures


def _ir_recalls(
    protocol: str, name: str, sets: Positives, ranked: Ranked, settings: ReportSettings, suffix: str = ""
) -> list[Figure]:
    """Return the share of each query's set among its K best items, in percent, for every K."""
    counts = (len(sets.i2t), len(sets.t2i))
    figures = []
    for k in settings.recall_ks:
        i2t, t2i = (
            _mean_percent(ir_recall(hits, side.total, k))
            for (_, hits), (_, side) in zip(ranked, _sides(sets), strict=True)
        )
        figures.append(Figure(protocol, f"{name}{k}{suffix}_percent", i2t, t2i, queries=counts))
    return figures


def _sum(protocol: str, name: str, figures: Iterable[Figure]) -> Figure:
    """Return the sum of figures over both directions."""
    figures = list(figures)
    total = rsum(value for figure in figures for value in (figure.i2t, figure.t2i) if value is not None)
    return Figure(protocol, name, both=total, queries=figures[0].queries)


def _sides(positives: Positives) -> list[tuple[Direction, QueryPositives]]:
    """Return both directions with their positives."""
    return list(zip(DIRECTIONS, (positives.i2t, positives.t2i), strict=True))


def _mean_percent(values: NDArray[np.float64]) -> float:
    """Return the mean of fractions in percent; NaN for no values."""
    return float(values.mean() * 100) if len(values) else float("nan")


def graded_figures(
    protocol: str, scores: Scores, labels: Scores, own: Positives, settings: ReportSettings
) -> list[Figure]:
    """Return NCS with and without GT, Nsum, CS@K, nDCG in both forms, mean label distance and Kendall's tau.

    Every image and caption is a query, also those without an own item. Queries for which a metric is not defined are
    skipped in its mean and counted.
    """
    sides = (own.i2t, own.t2i)
    i2t, t2i = (_all_values(d, scores, labels, side, settings) for d, side in zip(DIRECTIONS, sides, strict=True))
    figures = [_mean_figure(protocol, name, i2t[name], t2i[name]) for name in i2t]
    # Nsum adds NCS at all depths and in both directions, as RSUM adds recalls.
    for part in ("", "_without_gt"):
        names = [f"ncs{k}{part}_percent" for k in settings.ncs_ks]
        total = _sum(protocol, f"nsum{part}_percent", [f for f in figures if f.name in names])
        figures.append(replace(total, queries=scores.shape))
    return figures


def one_caption_figures(scores: Scores, labels: Scores, own: Positives, settings: ReportSettings) -> list[Figure]:
    """Return CS@K as Ladder computes it: over images with only their first captions."""
    images = own.i2t.queries
    # The lowest column of each image's captions; images without a caption take no part.
    first = np.minimum.reduceat(own.i2t.items, own.i2t.indptr[:-1]) if len(images) else own.i2t.items
    scores, labels = scores.part(images, first), labels.part(images, first)
    every = np.arange(len(images))
    values: list[Values] = []
    for d in DIRECTIONS:
        ranking = Ranking(scores.lists(d, every), labels.lists(d, every), settings.ties)
        values.append({f"cs{k}": cs_at_k(ranking.best(k), k) for k in settings.cs_ks})
    return [_mean_figure("one_caption", name, values[0][name], values[1][name]) for name in values[0]]


def graded_values(
    scores: Floats, labels: Floats, own: Items, drawn: NDArray[np.bool_], settings: ReportSettings
) -> Values:
    """Return every metric of graded labels for a block of Q queries, (Q, n) scores and labels.

    `own`: items that are removed for figures without GT. `drawn`, (Q,): queries for which Kendall's tau is computed.
    """
    low, top = settings.label_low, settings.label_top
    lowest, highest = labels.min(initial=top), labels.max(initial=top)
    if highest > top + _SLACK * max(1.0, abs(top)):
        raise ValueError(f"a label is {highest:g}, above label_top = {top:g}. Set it to the label's maximum.")
    # Below it nDCG has negative gains.
    if lowest < (floor := low or 0) - _SLACK * max(1.0, abs(floor)):
        raise ValueError(f"a label is {lowest:g}, below label_low = {floor:g}. Set it to the label's minimum.")
    deepest = max([*settings.ncs_ks, *settings.cs_ks, *settings.distance_ks, *(k or 0 for k in settings.ndcg_ks), 1])
    # Complete lists only for metrics of complete lists: a partition is several times faster than a sort.
    depth = None if None in settings.ndcg_ks else deepest
    ranking = Ranking(scores, labels, settings.ties)
    best = ranking.best(depth)
    ranked, ideal = best.labels, ideal_labels(labels, depth)
    values: Values = {}
    # Without GT, the query's own items leave both the ranking and the ideal list.
    shallow = max(settings.ncs_ks, default=1)
    bare, bare_ideal = ranking.best(shallow, own).labels, ideal_labels(labels, shallow, own)
    for part, retrieved, relevant in (("", ranked, ideal), ("_without_gt", bare, bare_ideal)):
        values |= {f"ncs{k}{part}_percent": ncs(retrieved, relevant, k) * 100 for k in settings.ncs_ks}
    values |= {f"cs{k}": cs_at_k(best, k) for k in settings.cs_ks}
    # Rounding may put a label slightly above the maximum: its distance is 0.
    distances, ideal_distances = np.maximum(top - ranked, 0), np.maximum(top - ideal, 0)
    if low is not None:
        ranked, ideal = (ranked - low) / (top - low), (ideal - low) / (top - low)
    # nDCG is not defined if all labels are equal: every order of them is ideal.
    constant = (labels == labels[:, :1]).all(axis=1)
    ideal[constant] = ideal_distances[constant] = np.nan
    for k in settings.ndcg_ks:
        values[f"ndcg{k or ''}"] = ndcg(ranked, ideal, k)
        values[f"ndcg_distance{k or ''}"] = ndcg(distances, ideal_distances, k, "inverse_distance")
    values |= {f"label_distance{k}": label_distance(distances, k) for k in settings.distance_ks}
    if settings.kendall_tau:
        taus_of_drawn = kendall_tau(scores[drawn], labels[drawn])
        for name, taus in zip(("kendall_tau_a", "kendall_tau_b"), taus_of_drawn, strict=True):
            values[name] = np.full(len(scores), np.nan)
            values[name][drawn] = taus
    return values


def _mean_figure(protocol: str, name: str, i2t: NDArray[np.float64], t2i: NDArray[np.float64]) -> Figure:
    """Take means over the queries that have a value; NaN if none has."""
    defined = [values[~np.isnan(values)] for values in (i2t, t2i)]
    means = [float(values.mean()) if len(values) else float("nan") for values in defined]
    skipped = (len(i2t) - len(defined[0]), len(t2i) - len(defined[1]))
    return Figure(protocol, name, means[0], means[1], queries=(len(defined[0]), len(defined[1])), skipped=skipped)


def _all_values(
    direction: Direction, scores: Scores, labels: Scores, own: QueryPositives, settings: ReportSettings
) -> Values:
    """Return every metric of graded labels for all queries of a direction, in blocks on several threads."""
    queries = scores.shape[0 if direction == "i2t" else 1]
    # All images or captions are queries: those without an own item get an empty segment.
    count = np.zeros(queries, np.int64)
    count[own.queries] = np.diff(own.indptr)
    indptr = np.concatenate([[0], np.cumsum(count)])
    drawn = _draw_tau_queries(queries, settings)

    def block_values(block: slice) -> Values:
        mine, rows = own.items[indptr[block.start] : indptr[block.stop]], np.arange(queries)[block]
        relevance = labels.lists(direction, rows)
        check_ordered(relevance, f"labels, {direction}, queries {block.start} to {block.stop - 1}")
        without = (np.repeat(np.arange(len(rows)), count[block]), mine)
        return graded_values(scores.lists(direction, rows), relevance, without, drawn[block], settings)

    parts = map_blocks(block_values, scores, direction, queries, settings.threads)
    return {name: np.concatenate([values[name] for values in parts]) for name in parts[0]} if parts else {}


def _draw_tau_queries(queries: int, settings: ReportSettings) -> NDArray[np.bool_]:
    """Mark the queries for which Kendall's tau is computed: (queries,) bool."""
    drawn = np.full(queries, settings.kendall_tau)
    if settings.tau_queries is not None:
        drawn[np.random.default_rng(settings.seed).permutation(queries)[settings.tau_queries :]] = False
    return drawn
