"""Part of a report about positives: recalls, ranks, IR recall, Semantic Recall, mAP@R, R-Precision."""

from __future__ import annotations

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
from relabel_train.metrics.positives import Positives, QueryPositives, own_positives
from relabel_train.metrics.ranking import best_ranks, first_hits, ranks_and_hits
from relabel_train.metrics.results import Figure, ReportSettings
from relabel_train.metrics.scores import DIRECTIONS, Direction, Scores, folds_of
from relabel_train.metrics.semantic_recall import extended_by_images, extended_by_items

Ranks = tuple[NDArray[np.int64], NDArray[np.int64]]


def recall_figures(protocol: str, scores: Scores, own: Positives, settings: ReportSettings) -> list[Figure]:
    """Return R@K, RSUM, median and mean rank, and IR recall."""
    (i2t, i2t_hits), (t2i, t2i_hits) = (
        ranks_and_hits(scores, d, side, max(settings.recall_ks), settings.ties) for d, side in _sides(own)
    )
    figures = _recalls(protocol, [(i2t, t2i)], settings)
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
        for part, image in folds_of(scores, image_of_caption, folds)
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
            _mean_percent(ir_recall(found, side.total, k)) for found, (_, side) in zip(hits, _sides(sets), strict=True)
        )
        figures.append(Figure(protocol, f"{name}{k}{suffix}_percent", i2t, t2i, queries=counts))
    return figures


def _recalls(protocol: str, folds: list[Ranks], settings: ReportSettings, with_sum: bool = True) -> list[Figure]:
    queries = (sum(len(i2t) for i2t, _ in folds), sum(len(t2i) for _, t2i in folds))
    figures = []
    for k in settings.recall_ks:
        i2t, t2i = (float(np.mean([recall_percent(fold[side], k) for fold in folds])) for side in (0, 1))
        figures.append(Figure(protocol, f"r{k}_percent", i2t, t2i, queries=queries))
    if with_sum:
        both = rsum(value for f in figures for value in (f.i2t, f.t2i) if value is not None)
        figures.append(Figure(protocol, "rsum_percent", both=both, queries=queries))
    return figures


def _ranks(scores: Scores, positives: Positives, settings: ReportSettings) -> Ranks:
    i2t, t2i = (best_ranks(scores, d, side, settings.ties) for d, side in _sides(positives))
    return i2t, t2i


def _sides(positives: Positives) -> list[tuple[Direction, QueryPositives]]:
    return list(zip(DIRECTIONS, (positives.i2t, positives.t2i), strict=True))


def _mean_percent(values: NDArray[np.float64]) -> float:
    """Return the mean of fractions in percent; NaN for no values."""
    return float(values.mean() * 100) if len(values) else float("nan")
