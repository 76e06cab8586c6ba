"""The part of a report that asks how relevant what was retrieved is."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from relabel_train.metrics.cs_at_k import cs_at_k
from relabel_train.metrics.figures import Figure
from relabel_train.metrics.graded_values import Values, graded_values
from relabel_train.metrics.positives import Positives, QueryPositives
from relabel_train.metrics.ranked_labels import Ranking
from relabel_train.metrics.scores import DIRECTIONS, Direction, Scores, refuse_unordered
from relabel_train.metrics.settings import ReportSettings

_CELLS = 1 << 18
"""Labels ranked at once by a thread: 2 MiB of keys."""


def graded_figures(
    protocol: str, scores: Scores, labels: Scores, own: Positives, settings: ReportSettings
) -> list[Figure]:
    """NCS with and without GT, Nsum, CS@K, nDCG in both forms, mean label distance, Kendall's tau.

    Every image and caption is a query, also those without an own item. A query for which a metric is not defined is
    left out of its mean and counted.
    """
    sides = (own.i2t, own.t2i)
    i2t, t2i = (_values(d, scores, labels, side, settings) for d, side in zip(DIRECTIONS, sides, strict=True))
    figures = [mean_figure(protocol, name, i2t[name], t2i[name]) for name in i2t]
    for part in ("", "_without_gt"):
        names = [f"ncs{k}{part}_percent" for k in settings.ncs_ks]
        total = sum(value for f in figures if f.name in names for value in (f.i2t, f.t2i) if value is not None)
        figures.append(Figure(protocol, f"nsum{part}_percent", both=total, queries=scores.shape))
    return figures


def one_caption_figures(scores: Scores, labels: Scores, own: Positives, settings: ReportSettings) -> list[Figure]:
    """CS@K as Ladder takes it: images with their first captions alone."""
    images = own.i2t.queries
    first = np.minimum.reduceat(own.i2t.items, own.i2t.indptr[:-1]) if len(images) else own.i2t.items
    scores, labels = scores.part(images, first), labels.part(images, first)
    every = np.arange(len(images))
    values: list[Values] = []
    for d in DIRECTIONS:
        ranked = Ranking(scores.lists(d, every), labels.lists(d, every), settings.ties)
        values.append({f"cs{k}": cs_at_k(ranked.best(k), k) for k in settings.cs_ks})
    return [mean_figure("one_caption", name, values[0][name], values[1][name]) for name in values[0]]


def mean_figure(protocol: str, name: str, i2t: NDArray[np.float64], t2i: NDArray[np.float64]) -> Figure:
    """Take means over the queries that have a value; NaN where none has."""
    kept = [values[~np.isnan(values)] for values in (i2t, t2i)]
    means = [float(values.mean()) if len(values) else float("nan") for values in kept]
    left_out = (len(i2t) - len(kept[0]), len(t2i) - len(kept[1]))
    return Figure(protocol, name, means[0], means[1], queries=(len(kept[0]), len(kept[1])), skipped=left_out)


def _values(
    direction: Direction, scores: Scores, labels: Scores, own: QueryPositives, settings: ReportSettings
) -> Values:
    queries, items = scores.shape if direction == "i2t" else scores.shape[::-1]
    count = np.zeros(queries, np.int64)
    count[own.queries] = np.diff(own.indptr)
    indptr = np.concatenate([[0], np.cumsum(count)])
    drawn = _drawn(queries, settings)
    step = max(1, _CELLS // max(1, items))

    def work(start: int) -> Values:
        some = np.arange(start, min(start + step, queries))
        mine = own.items[indptr[start] : indptr[some[-1] + 1]]
        found = labels.lists(direction, some)
        refuse_unordered(found, f"labels, {direction}, queries {start} to {some[-1]}")
        without = (np.repeat(np.arange(len(some)), count[some]), mine)
        return graded_values(scores.lists(direction, some), found, without, drawn[some], settings)

    with ThreadPoolExecutor(settings.threads or _cores()) as pool:
        done = list(pool.map(work, range(0, queries, step)))
    return {name: np.concatenate([values[name] for values in done]) for name in done[0]} if done else {}


def _drawn(queries: int, settings: ReportSettings) -> NDArray[np.bool_]:
    """Say whose tau is taken."""
    drawn = np.full(queries, settings.kendall_tau)
    if settings.tau_queries is not None:
        drawn[np.random.default_rng(settings.seed).permutation(queries)[settings.tau_queries :]] = False
    return drawn


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
