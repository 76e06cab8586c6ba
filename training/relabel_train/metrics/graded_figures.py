"""Part of a report about graded labels: the relevance of the retrieved items."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from relabel_train.metrics.graded import Items, Ranking, ideal_labels, label_distance, ncs, ndcg
from relabel_train.metrics.kendall import cs_at_k, taus_of
from relabel_train.metrics.positives import Positives, QueryPositives
from relabel_train.metrics.results import Figure, ReportSettings
from relabel_train.metrics.scores import DIRECTIONS, Direction, Floats, Scores, check_ordered

Values = dict[str, NDArray[np.float64]]
"""Metrics by name, one value per query: (Q,) each; NaN for a metric that is not defined."""
_CELLS = 1 << 18
"""Labels ranked per step of a thread: 2 MiB of keys."""
_SLACK = 1e-4


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
    for part in ("", "_without_gt"):
        names = [f"ncs{k}{part}_percent" for k in settings.ncs_ks]
        total = sum(value for f in figures if f.name in names for value in (f.i2t, f.t2i) if value is not None)
        figures.append(Figure(protocol, f"nsum{part}_percent", both=total, queries=scores.shape))
    return figures


def one_caption_figures(scores: Scores, labels: Scores, own: Positives, settings: ReportSettings) -> list[Figure]:
    """Return CS@K as Ladder computes it: over images with their first captions alone."""
    images = own.i2t.queries
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

    Parameters
    ----------
    scores, labels : (Q, n) float32 or float64
    own : Items
        Items that are removed for figures without GT.
    drawn : (Q,) bool
        Queries for which Kendall's tau is computed.
    settings : ReportSettings

    Returns
    -------
    dict of name to (Q,) float64
        NaN for a metric that is not defined or not computed.

    Raises
    ------
    ValueError
        If a label is above `label_top`, or -inf.
    """
    top = settings.label_top
    if np.isneginf(labels.min(initial=0)):
        raise ValueError("a label is -inf. Labels are finite.")
    if labels.size and labels.max() > top + _SLACK * max(1.0, abs(top)):
        raise ValueError(f"a label is {labels.max():g}, above label_top = {top:g}. Give the label's largest value.")
    deepest = max([*settings.ncs_ks, *settings.cs_ks, *settings.distance_ks, *(k or 0 for k in settings.ndcg_ks), 1])
    depth = None if None in settings.ndcg_ks or drawn.all() else deepest
    ranking = Ranking(scores, labels, settings.ties)
    best = ranking.best(depth)
    ranked, ideal = best.labels(), ideal_labels(labels, depth)
    values: Values = {}
    shallow = max(settings.ncs_ks, default=1)
    bare, bare_ideal = ranking.best(shallow, own).labels(), ideal_labels(labels, shallow, own)
    for part, retrieved, relevant in (("", ranked, ideal), ("_without_gt", bare, bare_ideal)):
        values |= {f"ncs{k}{part}_percent": ncs(retrieved, relevant, k) * 100 for k in settings.ncs_ks}
    values |= {f"cs{k}": cs_at_k(best, k) for k in settings.cs_ks}
    distances, ideal_distances = np.maximum(top - ranked, 0), np.maximum(top - ideal, 0)
    low = settings.label_low
    if low is not None:
        ranked, ideal = (ranked - low) / (top - low), (ideal - low) / (top - low)
    for k in settings.ndcg_ks:
        values[f"ndcg{k or ''}"] = ndcg(ranked, ideal, k)
        values[f"ndcg_distance{k or ''}"] = ndcg(distances, ideal_distances, k, "inverse_distance")
    values |= {f"label_distance{k}": label_distance(distances, k) for k in settings.distance_ks}
    if settings.kendall_tau:
        keys = best.sorted_keys() if depth is None else ranking.best().sorted_keys()
        for name, taus in zip(("kendall_tau_a", "kendall_tau_b"), taus_of(keys[drawn]), strict=True):
            values[name] = np.full(len(scores), np.nan)
            values[name][drawn] = taus
    return values


def _mean_figure(protocol: str, name: str, i2t: NDArray[np.float64], t2i: NDArray[np.float64]) -> Figure:
    """Take means over the queries that have a value; NaN if none has."""
    kept = [values[~np.isnan(values)] for values in (i2t, t2i)]
    means = [float(values.mean()) if len(values) else float("nan") for values in kept]
    skipped = (len(i2t) - len(kept[0]), len(t2i) - len(kept[1]))
    return Figure(protocol, name, means[0], means[1], queries=(len(kept[0]), len(kept[1])), skipped=skipped)


def _all_values(
    direction: Direction, scores: Scores, labels: Scores, own: QueryPositives, settings: ReportSettings
) -> Values:
    queries, items = scores.shape if direction == "i2t" else scores.shape[::-1]
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
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
