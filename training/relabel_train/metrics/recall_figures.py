"""The part of a report that asks who is positive: recalls, ranks, IR recall, mAP@R, R-Precision."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relabel_train.metrics.figures import Figure
from relabel_train.metrics.folds import cut
from relabel_train.metrics.ir_recall import ir_recall
from relabel_train.metrics.map_at_r import average_precision_at_r
from relabel_train.metrics.mean_rank import mean_rank
from relabel_train.metrics.median_rank import median_rank
from relabel_train.metrics.positives import Positives, QueryPositives, own_positives
from relabel_train.metrics.r_precision import r_precision
from relabel_train.metrics.ranking import ranked_hits
from relabel_train.metrics.ranks import best_ranks
from relabel_train.metrics.recall_percent import recall_percent
from relabel_train.metrics.rsum import rsum
from relabel_train.metrics.scores import DIRECTIONS, Direction, Scores, blocks
from relabel_train.metrics.settings import ReportSettings

Ranks = tuple[NDArray[np.int64], NDArray[np.int64]]


def recall_figures(protocol: str, scores: Scores, own: Positives, settings: ReportSettings) -> list[Figure]:
    """R@K, RSUM, median and mean rank, IR recall."""
    ranks = _ranks(scores, own, settings)
    figures = _recalls(protocol, [ranks], settings)
    counts = (len(ranks[0]), len(ranks[1]))
    figures += [
        Figure(protocol, "median_rank", median_rank(ranks[0]), median_rank(ranks[1]), queries=counts),
        Figure(protocol, "mean_rank", mean_rank(ranks[0]), mean_rank(ranks[1]), queries=counts),
    ]
    found = [_hits(scores, d, side, max(settings.recall_ks), settings) for d, side in _sides(own)]
    for k in settings.recall_ks:
        shares = [float(np.mean(ir_recall(h, p.total, k)) * 100) for h, (_, p) in zip(found, _sides(own), strict=True)]
        figures.append(Figure(protocol, f"ir_recall{k}_percent", shares[0], shares[1], queries=counts))
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
    figures = _recalls(name, [_ranks(scores, positives, settings)], settings, with_sum=False)
    values: dict[str, list[float]] = {"map_at_r_percent": [], "r_precision_percent": []}
    for direction, side in _sides(positives):
        hits = _hits(scores, direction, side, int(side.total.max(initial=1)), settings)
        values["map_at_r_percent"].append(_mean_percent(average_precision_at_r(hits, side.total)))
        values["r_precision_percent"].append(_mean_percent(r_precision(hits, side.total)))
    return figures + [Figure(name, metric, i2t, t2i, queries=counts) for metric, (i2t, t2i) in values.items()]


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


def _hits(
    scores: Scores, direction: Direction, positives: QueryPositives, length: int, settings: ReportSettings
) -> NDArray[np.bool_]:
    """Say what stands at the first places: (Q, length) bool; a shorter gallery has nothing behind its end."""
    items = scores.shape[1 if direction == "i2t" else 0]
    hits = np.zeros((len(positives), length), np.bool_)
    for some in blocks(scores, direction, len(positives)):
        part = positives.take(some)
        lists = scores.lists(direction, part.queries)
        hits[some, :items] = ranked_hits(lists, part.dense(items), min(length, items), settings.ties)
    return hits


def _sides(positives: Positives) -> list[tuple[Direction, QueryPositives]]:
    return list(zip(DIRECTIONS, (positives.i2t, positives.t2i), strict=True))


def _mean_percent(values: NDArray[np.float64]) -> float:
    return float(values.mean() * 100) if len(values) else float("nan")
