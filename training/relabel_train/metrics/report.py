"""Every metric that applies to the given data, in one report."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relabel_train.metrics.binary import (
    average_precision_at_r,
    ir_recall,
    mean_rank,
    median_rank,
    r_precision,
    recall_at_k,
    recall_percent,
    rsum,
)
from relabel_train.metrics.graded import (
    Items,
    Ranking,
    extended_by_images,
    extended_by_items,
    ideal_labels,
    label_distance,
    ncs,
    ndcg,
)
from relabel_train.metrics.kendall import compute_taus, cs_at_k
from relabel_train.metrics.positives import Positives, QueryPositives, own_positives
from relabel_train.metrics.ranking import best_ranks, first_hits, ranks_and_hits
from relabel_train.metrics.results import Figure, ReportSettings, RetrievalReport
from relabel_train.metrics.scores import (
    DIRECTIONS,
    Direction,
    Floats,
    Scores,
    check_ordered,
    open_labels,
    open_scores,
    split_into_folds,
)

Values = dict[str, NDArray[np.float64]]
"""Metrics by name, one value per query: (Q,) each; NaN for a metric that is not defined."""
_CELLS = 1 << 18
"""Labels ranked per step of a thread: 2 MiB of keys."""
_SLACK = 1e-4
"""Rounding that a label may exceed its largest value by, relative to that value."""

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
        function. Labels may not exceed ``settings.label_top``, 1 by default.
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
    >>> import numpy as np
    >>> from relabel_train.metrics import ReportSettings, retrieval_report
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
        if settings.one_caption:
            figures += one_caption_figures(opened, labels, ground_truth, settings)
    return RetrievalReport(images, captions, settings.ties, tuple(figures))


def recall_figures(protocol: str, scores: Scores, own: Positives, settings: ReportSettings) -> list[Figure]:
    """Return R@K, RSUM, median and mean rank, and IR recall."""
    (i2t, i2t_hits), (t2i, t2i_hits) = (
        ranks_and_hits(scores, d, side, max(settings.recall_ks), settings.ties) for d, side in _sides(own)
    )
    # One fold: the complete gallery.
    figures = _recalls(protocol, [[i2t, t2i]], settings)
    figures += [
        Figure(protocol, name, rank(i2t), rank(t2i), queries=(len(i2t), len(t2i)))
        for name, rank in (("median_rank", median_rank), ("mean_rank", mean_rank))
    ]
    return figures + _ir_recalls(protocol, "ir_recall", own, [i2t_hits, t2i_hits], settings)


def semantic_figures(
    protocol: str, scores: Scores, labels: Scores, own: Positives, settings: ReportSettings
) -> list[Figure]:
    """Return Semantic Recall in both forms: the paper's with GT in the set, the code's without GT in set and list."""
    figures: list[Figure] = []
    # The released code's sets depend on the depth of the lists that it reads: the largest K of its recalls.
    depth = max(settings.recall_ks)
    for m in settings.semantic_ms:
        paper, code = extended_by_items(labels, own, m), extended_by_images(labels, own, m, depth)
        for name, sets, without in (
            ("semantic_recall", paper, (None, None)),
            ("semantic_recall_code", code, (own.i2t, own.t2i)),
        ):
            hits = [
                first_hits(scores, d, side, depth, settings.ties, removed)
                for (d, side), removed in zip(_sides(sets), without, strict=True)
            ]
            figures += _ir_recalls(protocol, name, sets, hits, settings, f"_m{m}")
    return figures


def fold_figures(
    scores: Scores, image_of_caption: NDArray[np.int64], folds: int | ArrayLike, settings: ReportSettings
) -> list[Figure]:
    """Return R@K and RSUM as means over folds."""
    ranks = [
        _ranks(part, own_positives(image, part.shape[0]), settings)
        for part, image in split_into_folds(scores, image_of_caption, folds)
    ]
    return _recalls("folds", ranks, settings)


def positive_figures(name: str, scores: Scores, positives: Positives, settings: ReportSettings) -> list[Figure]:
    """Return R@K, mAP@R and R-Precision on positives found by people."""
    counts = (len(positives.i2t), len(positives.t2i))
    if name in settings.recall_only:
        return _recalls(name, [_ranks(scores, positives, settings)], settings, with_sum=False)
    values: dict[str, list[float]] = {f"r{k}_percent": [] for k in settings.recall_ks}
    values |= {"map_at_r_percent": [], "r_precision_percent": []}
    for direction, side in _sides(positives):
        # R-Precision of the query with the most positives needs a list of that length.
        length = max(int(side.total.max(initial=1)), *settings.recall_ks)
        hits = first_hits(scores, direction, side, length, settings.ties)
        for k in settings.recall_ks:
            values[f"r{k}_percent"].append(_mean_percent(recall_at_k(hits, k)))
        values["map_at_r_percent"].append(_mean_percent(average_precision_at_r(hits, side.total)))
        values["r_precision_percent"].append(_mean_percent(r_precision(hits, side.total)))
    return [Figure(name, metric, i2t, t2i, queries=counts) for metric, (i2t, t2i) in values.items()]


def _ir_recalls(
    protocol: str,
    name: str,
    sets: Positives,
    hits: list[NDArray[np.bool_]],
    settings: ReportSettings,
    suffix: str = "",
) -> list[Figure]:
    """Return the share of each query's set among its K best items, in percent, for every K."""
    counts = (len(hits[0]), len(hits[1]))
    figures = []
    for k in settings.recall_ks:
        i2t, t2i = (
            _mean_percent(ir_recall(side_hits, side.total, k))
            for side_hits, (_, side) in zip(hits, _sides(sets), strict=True)
        )
        figures.append(Figure(protocol, f"{name}{k}{suffix}_percent", i2t, t2i, queries=counts))
    return figures


def _recalls(
    protocol: str,
    folds: list[list[NDArray[np.int64]]],
    settings: ReportSettings,
    with_sum: bool = True,
) -> list[Figure]:
    """Return R@K as means over folds, given the ranks of both directions per fold, and their sum over K."""
    queries = (sum(len(i2t) for i2t, _ in folds), sum(len(t2i) for _, t2i in folds))
    figures = []
    for k in settings.recall_ks:
        i2t, t2i = (float(np.mean([recall_percent(fold[side], k) for fold in folds])) for side in (0, 1))
        figures.append(Figure(protocol, f"r{k}_percent", i2t, t2i, queries=queries))
    if with_sum:
        both = rsum(value for f in figures for value in (f.i2t, f.t2i) if value is not None)
        figures.append(Figure(protocol, "rsum_percent", both=both, queries=queries))
    return figures


def _ranks(scores: Scores, positives: Positives, settings: ReportSettings) -> list[NDArray[np.int64]]:
    """Return the rank of each query's best positive, i2t and t2i."""
    return [best_ranks(scores, d, side, settings.ties) for d, side in _sides(positives)]


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
        total = sum(value for f in figures if f.name in names for value in (f.i2t, f.t2i) if value is not None)
        figures.append(Figure(protocol, f"nsum{part}_percent", both=total, queries=scores.shape))
    return figures


def one_caption_figures(scores: Scores, labels: Scores, own: Positives, settings: ReportSettings) -> list[Figure]:
    """Return CS@K as Ladder computes it: over images with their first captions alone."""
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
    """Return every metric of graded labels for a block of queries, from one sort of their lists.

    `scores`, `labels`: (Q, n) float32 or float64. `own`: items that are removed for figures without GT. `drawn`: (Q,)
    bool; queries for which Kendall's tau is computed. Returns dict of name to (Q,) float64: NaN for a metric that is
    not defined or not computed.
    """
    top = settings.label_top
    if np.isneginf(labels.min(initial=0)):
        raise ValueError("a label is -inf. Labels are finite.")
    if labels.size and labels.max() > top + _SLACK * max(1.0, abs(top)):
        raise ValueError(f"a label is {labels.max():g}, above label_top = {top:g}. Give the label's largest value.")
    deepest = max([*settings.ncs_ks, *settings.cs_ks, *settings.distance_ks, *(k or 0 for k in settings.ndcg_ks), 1])
    # Complete lists only for metrics of complete lists: a partition is several times faster than a sort.
    depth = None if None in settings.ndcg_ks or drawn.all() else deepest
    ranking = Ranking(scores, labels, settings.ties)
    best = ranking.best(depth)
    ranked, ideal = best.labels(), ideal_labels(labels, depth)
    values: Values = {}
    # Without GT, the query's own items leave both the ranking and the ideal list.
    shallow = max(settings.ncs_ks, default=1)
    bare, bare_ideal = ranking.best(shallow, own).labels(), ideal_labels(labels, shallow, own)
    for part, retrieved, relevant in (("", ranked, ideal), ("_without_gt", bare, bare_ideal)):
        values |= {f"ncs{k}{part}_percent": ncs(retrieved, relevant, k) * 100 for k in settings.ncs_ks}
    values |= {f"cs{k}": cs_at_k(best, k) for k in settings.cs_ks}
    # Rounding may put a label a little above the largest value: its distance is 0.
    distances, ideal_distances = np.maximum(top - ranked, 0), np.maximum(top - ideal, 0)
    low = settings.label_low
    if low is not None:
        ranked, ideal = (ranked - low) / (top - low), (ideal - low) / (top - low)
    for k in settings.ndcg_ks:
        values[f"ndcg{k or ''}"] = ndcg(ranked, ideal, k)
        values[f"ndcg_distance{k or ''}"] = ndcg(distances, ideal_distances, k, "inverse_distance")
    values |= {f"label_distance{k}": label_distance(distances, k) for k in settings.distance_ks}
    if settings.kendall_tau:
        # Tau needs complete lists, so lists of limited depth are ranked again.
        keys = best.sorted_keys() if depth is None else ranking.best().sorted_keys()
        for name, taus in zip(("kendall_tau_a", "kendall_tau_b"), compute_taus(keys[drawn]), strict=True):
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
    queries, items = scores.shape if direction == "i2t" else scores.shape[::-1]
    # All images or captions are queries: those without an own item get an empty segment.
    count = np.zeros(queries, np.int64)
    count[own.queries] = np.diff(own.indptr)
    indptr = np.concatenate([[0], np.cumsum(count)])
    drawn = _draw_tau_queries(queries, settings)
    step = max(1, _CELLS // max(1, items))

    def block_values(start: int) -> Values:
        block = np.arange(start, min(start + step, queries))
        mine = own.items[indptr[start] : indptr[block[-1] + 1]]
        relevance = labels.lists(direction, block)
        check_ordered(relevance, f"labels, {direction}, queries {start} to {block[-1]}")
        without = (np.repeat(np.arange(len(block)), count[block]), mine)
        return graded_values(scores.lists(direction, block), relevance, without, drawn[block], settings)

    # numpy sorts without the interpreter's lock; blocks keep their order, so no figure depends on the threads.
    with ThreadPoolExecutor(settings.threads or _cores()) as pool:
        parts = list(pool.map(block_values, range(0, queries, step)))
    return {name: np.concatenate([values[name] for values in parts]) for name in parts[0]} if parts else {}


def _draw_tau_queries(queries: int, settings: ReportSettings) -> NDArray[np.bool_]:
    """Mark the queries for which Kendall's tau is computed: (queries,) bool."""
    drawn = np.full(queries, settings.kendall_tau)
    if settings.tau_queries is not None:
        drawn[np.random.default_rng(settings.seed).permutation(queries)[settings.tau_queries :]] = False
    return drawn


def _cores() -> int:
    """Return the number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
