"""Agreement of scores with the judgements of a set, by the protocol of the set."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.statistics import (
    Interval,
    Vector,
    bootstrap,
    cluster_counts,
    kendall,
    pearson,
    percentile_interval,
    round_relative,
    spearman,
)
from relabel.datasets.judged import ALL, JudgedSet, Judgements, Statistic
from relabel.store.workdir import Work

TITLES: dict[str, str] = {"pearson": "Pearson", "spearman": "Spearman", "tau_b": "tau-b", "tau_c": "tau-c"}
_FILE = "figures.json"
MEAN = "mean"
"""Name of the mean accuracy over kinds."""


@dataclass(frozen=True)
class Figure:
    """One figure of a label on a set.

    `statistic`: a `Statistic`, or "accuracy".
    `group`: "all", a group of the set, or "mean" (accuracy over the kinds).
    `n`, `missing`: judgements that count, and those without a score.
    `value`: -1..1, accuracies 0..1; None where it is undefined.
    `interval`: 95% bootstrap interval over the set's clusters.
    """

    statistic: str
    group: str
    n: int
    missing: int
    value: float | None
    interval: Interval | None


def set_figures(
    judged: JudgedSet,
    judgements: Judgements,
    scores: Vector,
    resamples: int = 1000,
    seed: int = 0,
    threads: int = 1,
) -> list[Figure]:
    """Compare scores with the judgements of a set by its protocol.

    `scores`: (P,) float64; NaN where a pair has no score. `resamples`: bootstrap resamples of the intervals, clustered
    as the set says; 0 for none. Returns list of Figure: ratings: each statistic over all pairs, then over each group if
    there are several. Choices: the accuracy of each kind, then their mean.
    """
    # Equal texts score 1 up to float32 rounding; a rank statistic must see them as ties.
    scores = round_relative_finite(scores)
    clusters = np.unique(np.array(judgements.clusters), return_inverse=True)[1]
    if judgements.choices is not None:
        return _accuracies(judged, judgements, judgements.choices, scores, clusters, resamples, seed)
    assert judgements.ratings is not None, "a set has ratings or choices"
    names = list(dict.fromkeys(judgements.groups))
    groups = np.array(judgements.groups)
    figures = []
    # Pairs of separate collections, such as a dev and a test split, are never ranked against each other.
    pooled = [ALL] if judged.group == ALL else []
    for group in pooled + (names if len(names) > 1 else []):
        in_group = np.full(len(scores), True) if group == ALL else groups == group
        scored = in_group & ~np.isnan(scores)
        ratings = judgements.ratings[scored]
        # Every rating of a pair is a judgement by itself.
        x, y = np.repeat(scores[scored], ratings.shape[1]), ratings.ravel()
        cluster = np.repeat(clusters[scored], ratings.shape[1])
        missing = int(in_group.sum() - scored.sum()) * ratings.shape[1]
        for statistic, found in estimate(judged.statistics, x, y, cluster, resamples, seed, threads).items():
            figures.append(Figure(statistic, group, len(x), missing, found.value, found.interval))
    return figures


def write_figures(figures: Sequence[Figure], work: Work) -> None:
    """Write the figures of a label as an artefact."""
    text = json.dumps([asdict(figure) for figure in figures], indent=1)
    work.file(_FILE, lambda path: path.write_text(text, encoding="utf-8"))


def read_figures(folder: Path) -> list[Figure]:
    """Read the figures of an artefact."""
    figures = json.loads((folder / _FILE).read_text(encoding="utf-8"))
    return [Figure(**one | {"interval": one["interval"] and Interval(**one["interval"])}) for one in figures]


class Estimate(NamedTuple):
    """Value of a statistic, at most 1, and its 95% interval; None where one is undefined."""

    value: float | None
    interval: Interval | None = None


def estimate(
    statistics: Sequence[Statistic],
    x: Vector,
    y: Vector,
    cluster: NDArray[np.integer],
    resamples: int = 1000,
    seed: int = 0,
    threads: int = 1,
) -> dict[Statistic, Estimate]:
    """Compute correlation coefficients with their bootstrap intervals.

    `x`, `y`: (P,) float64; finite. `cluster`: (P,) int; cluster of each pair. `resamples`: 0 for no interval.
    """
    intervals: dict[str, Interval | None] = {}
    if "pearson" in statistics:
        # It needs sums alone, so it has a faster bootstrap over the same draws.
        intervals["pearson"] = bootstrap(x, y, cluster, resamples, seed)
    if {*statistics} - {"pearson"}:
        # It takes a quarter of a second to import, and figures that exist need none of it.
        from relabel.judge.rank_bootstrap import rank_intervals

        intervals |= rank_intervals(x, y, cluster, resamples, seed, threads)._asdict()
    return {name: Estimate(coefficient(name, x, y), intervals[name]) for name in statistics}


def coefficient(statistic: Statistic, x: Vector, y: Vector) -> float | None:
    """Return a correlation coefficient of two (P,) float64, -1..1; None where it is undefined."""
    if statistic == "pearson":
        return pearson(x, y)
    if statistic == "spearman":
        return spearman(x, y) if len(x) > 1 else None
    # Tau-b decides if a coefficient is defined: both kinds need two different values on each side.
    tau = kendall(x, y)
    if statistic == "tau_b" or tau is None:
        return tau
    from scipy.stats import kendalltau

    return float(kendalltau(x, y, variant="c", method="asymptotic").statistic)


def round_relative_finite(scores: Vector) -> Vector:
    """Round finite scores as `round_relative` does; NaN stays."""
    rounded = np.array(scores, np.float64)
    finite = ~np.isnan(rounded)
    rounded[finite] = round_relative(rounded[finite])
    return rounded


def _accuracies(
    judged: JudgedSet,
    judgements: Judgements,
    choices: NDArray[np.int64],
    scores: Vector,
    clusters: NDArray[np.integer],
    resamples: int,
    seed: int,
) -> list[Figure]:
    better, worse = scores[choices[..., 0]], scores[choices[..., 1]]
    # An item is as right as the worst of its comparisons. NaN in any of them leaves the item out.
    worth = np.where(better > worse, 1.0, np.where(better == worse, judged.ties, 0.0)).min(axis=1)
    scored = ~(np.isnan(better) | np.isnan(worse)).any(axis=1)
    names, groups = list(dict.fromkeys(judgements.groups)), np.array(judgements.groups)
    count = int(clusters.max()) + 1
    # One array of draws serves all kinds, so that the mean over kinds resamples images, too.
    draws = cluster_counts(count, resamples, seed) if resamples else None
    figures, resampled = [], []
    for name in names:
        in_kind = (groups == name) & scored
        value = float(worth[in_kind].mean()) if in_kind.any() else None
        interval = None
        if draws is not None:
            # Sums per cluster are all that a resample needs.
            right, n = (np.bincount(clusters[in_kind], w, count) for w in (worth[in_kind], np.ones(int(in_kind.sum()))))
            with np.errstate(divide="ignore", invalid="ignore"):
                resampled.append((draws @ right) / (draws @ n))
            interval = percentile_interval(resampled[-1])
        missing = int((groups == name).sum() - in_kind.sum())
        figures.append(Figure("accuracy", name, int(in_kind.sum()), missing, value, interval))
    # Kinds count equally, whatever their sizes, as in the papers.
    values = [figure.value for figure in figures]
    mean = None if None in values else float(np.mean([v for v in values if v is not None]))
    total, missing = sum(f.n for f in figures), sum(f.missing for f in figures)
    interval = percentile_interval(np.mean(resampled, axis=0)) if resampled else None
    return [*figures, Figure("accuracy", MEAN, total, missing, mean, interval)]
