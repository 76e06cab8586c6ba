"""The part of a report that asks who is positive: recalls, ranks, IR recall, mAP@R, R-Precision."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relabel_train.metrics.figures import Figure
from relabel_train.metrics.folds import cut
from relabel_train.metrics.hits import first_hits, ranks_and_hits
from relabel_train.metrics.ir_recall import ir_recall
from relabel_train.metrics.map_at_r import average_precision_at_r
from relabel_train.metrics.mean_rank import mean_rank
from relabel_train.metrics.median_rank import median_rank
from relabel_train.metrics.positives import Positives, QueryPositives, own_positives
from relabel_train.metrics.r_precision import r_precision
from relabel_train.metrics.ranks import best_ranks
from relabel_train.metrics.recall_at_k import recall_at_k
from relabel_train.metrics.recall_percent import recall_percent
from relabel_train.metrics.rsum import rsum
from relabel_train.metrics.scores import DIRECTIONS, Direction, Scores
from relabel_train.metrics.semantic_recall import extended_by_images, extended_by_items
from relabel_train.metrics.settings import ReportSettings

Ranks = tuple[NDArray[np.int64], NDArray[np.int64]]


def recall_figures(protocol: str, scores: Scores, own: Positives, settings: ReportSettings) -> list[Figure]:
    """R@K, RSUM, median and mean rank, IR recall."""
    (i2t, i2t_hits), (t2i, t2i_hits) = (
        ranks_and_hits(scores, d, side, max(settings.recall_ks), settings.ties) for d, side in _sides(own)
    )
    ranks = (i2t, t2i)
    figures = _recalls(protocol, [ranks], settings)
    counts = (len(ranks[0]), len(ranks[1]))
    figures += [
        Figure(protocol, "median_rank", median_rank(ranks[0]), median_rank(ranks[1]), queries=counts),
        Figure(protocol, "mean_rank", mean_rank(ranks[0]), mean_rank(ranks[1]), queries=counts),
    ]
    return figures + _shares(protocol, "ir_recall", own, i2t_hits, t2i_hits, settings)


def semantic_figures(
    protocol: str, scores: Scores, labels: Scores, own: Positives, settings: ReportSettings
) -> list[Figure]:
    """Semantic Recall in both forms: the paper's with GT in the set, the code's without GT in set and list."""
    figures: list[Figure] = []
    for m in settings.semantic_ms:
        paper, code = (
            extended_by_items(labels, own, m),
            extended_by_images(labels, own, m, max(settings.recall_ks)),
        )
        for name, sets, without in (("semantic_recall", paper, None), ("semantic_recall_code", code, own)):
            hits = (
                first_hits(
                    scores, "i2t", sets.i2t, max(settings.recall_ks), settings.ties, without.i2t if without else None
                ),
                first_hits(
                    scores, "t2i", sets.t2i, max(settings.recall_ks), settings.ties, without.t2i if without else None
                ),
            )
            figures += _shares(protocol, name, sets, *hits, settings, f"_m{m}")
    return figures


def _shares(
    protocol: str,
    name: str,
    sets: Positives,
    i2t: NDArray[np.bool_],
    t2i: NDArray[np.bool_],
    settings: ReportSettings,
    suffix: str = "",
) -> list[Figure]:
    """The share of each query's set among its K best, in percent."""
    counts = (len(i2t), len(t2i))
    figures = []
    for k in settings.recall_ks:
        shares = (
            mean_percent(ir_recall(i2t, sets.i2t.total, k)),
            mean_percent(ir_recall(t2i, sets.t2i.total, k)),
        )
        figures.append(Figure(protocol, f"{name}{k}{suffix}_percent", *shares, queries=counts))
    return figures


def fold_figures(
    scores: Scores, image_of_caption: NDArray[np.int64], folds: int | ArrayLike, settings: ReportSettings
) -> list[Figure]:
    """R@K and RSUM as means over folds."""
    found = [
        _ranks(part, own_positives(image, part.shape[0]), settings)
        for part, image in cut(scores, image_of_caption, folds)
    ]
    return _recalls("folds", found, settings)


def positive_figures(name: str, scores: Scores, positives: Positives, settings: ReportSettings) -> list[Figure]:
    """R@K, mAP@R and R-Precision on positives that people found."""
    counts = (len(positives.i2t), len(positives.t2i))
    if name in settings.recall_only:
        return _recalls(name, [_ranks(scores, positives, settings)], settings, with_sum=False)
    values: dict[str, list[float]] = {f"r{k}_percent": [] for k in settings.recall_ks}
    values |= {"map_at_r_percent": [], "r_precision_percent": []}
    for direction, side in _sides(positives):
        length = max(int(side.total.max(initial=1)), *settings.recall_ks)
        hits = first_hits(scores, direction, side, length, settings.ties)
        for k in settings.recall_ks:
            values[f"r{k}_percent"].append(mean_percent(recall_at_k(hits, k)))
        values["map_at_r_percent"].append(mean_percent(average_precision_at_r(hits, side.total)))
        values["r_precision_percent"].append(mean_percent(r_precision(hits, side.total)))
    return [Figure(name, metric, i2t, t2i, queries=counts) for metric, (i2t, t2i) in values.items()]


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


def mean_percent(values: NDArray[np.float64]) -> float:
    """Take the mean of fractions in percent; NaN where there is none."""
    return float(values.mean() * 100) if len(values) else float("nan")
