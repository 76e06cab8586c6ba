"""Agreement of scores with human judgements: coefficients with intervals, and the figures of a set of texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from relabel.datasets.evaluation_sets import ALL, EvaluationSet, Judgements, Statistic
from relabel.judge import JudgeParams
from relabel.judge.report import Record

TITLES: dict[str, str] = {"pearson": "Pearson", "spearman": "Spearman", "tau_b": "tau-b", "tau_c": "tau-c"}
ACCURACY = "accuracy"
MEAN = "mean"
"""Name of the mean accuracy over kinds."""


class Estimate(NamedTuple):
    """Value of a statistic (at most 1), its 95% interval, and its deviation over draws. None if undefined."""

    value: float | None
    interval: Interval | None = None
    deviation: float | None = None

    def record(self, name: str, prefix: str) -> Record:
        """Return the entries of a record. `prefix`: prefix of the names of the interval's ends."""
        low, high = (self.interval.low, self.interval.high) if self.interval else (None, None)
        return {name: self.value, f"{prefix}low": low, f"{prefix}high": high}


def estimate(
    statistics: Sequence[Statistic],
    x: Vector,
    y: Vector,
    cluster: NDArray[np.integer],
    params: JudgeParams,
    threads: int = 1,
) -> dict[Statistic, Estimate]:
    """Compute correlation coefficients of finite values, with bootstrap intervals over clusters."""
    intervals: dict[str, Interval | None] = {}
    if "pearson" in statistics:
        # Pearson's r needs only sums, so it has a faster bootstrap, with the same draws.
        intervals["pearson"] = bootstrap(x, y, cluster, params.resamples, params.seed)
    if {*statistics} - {"pearson"}:
        # The import takes a quarter of a second, and figures that exist already do not need it.
        from relabel.judge.rank_bootstrap import rank_intervals

        intervals |= rank_intervals(x, y, cluster, params.resamples, params.seed, threads)._asdict()
    return {name: Estimate(coefficient(name, x, y), intervals[name]) for name in statistics}


def coefficient(statistic: Statistic, x: Vector, y: Vector) -> float | None:
    """Return a correlation coefficient, -1..1, of two (P,) float64 arrays, or None if it is undefined."""
    if statistic == "pearson":
        return pearson(x, y)
    if statistic == "spearman":
        return spearman(x, y) if len(x) > 1 else None
    # Tau-b and tau-c are defined for the same inputs: both arrays need two different values.
    tau = kendall(x, y)
    if statistic == "tau_b" or tau is None:
        return tau
    from scipy.stats import kendalltau

    return float(kendalltau(x, y, variant="c", method="asymptotic").statistic)


def set_figures(
    judged: EvaluationSet, judgements: Judgements, scores: Vector, params: JudgeParams, threads: int = 1
) -> list[Record]:
    """Compare scores with the judgements of a set by its protocol. Returns one record per group.

    `scores`: (P,) float64; NaN for a pair without a score. For ratings, each statistic is computed over all pairs, and
    over each group if there are several. For choices, the records are the accuracy of each kind, and their mean.
    """
    # Scores that differ only by float32 rounding, such as those of equal texts, must be ties for rank statistics.
    scores = round_relative(scores)
    cluster = np.unique(np.array(judgements.clusters), return_inverse=True)[1]
    if judgements.choices is not None:
        records = _accuracies(judged, judgements, judgements.choices, scores, cluster, params)
    else:
        assert judgements.ratings is not None, "a set has ratings or choices"
        records = _correlations(judged, judgements, judgements.ratings, scores, cluster, params, threads)
    return [{"task": judged.name, **record} for record in records]


def _correlations(
    judged: EvaluationSet,
    judgements: Judgements,
    ratings: NDArray[np.float64],
    scores: Vector,
    cluster: NDArray[np.integer],
    params: JudgeParams,
    threads: int,
) -> Iterator[Record]:
    groups, names = np.array(judgements.groups), list(dict.fromkeys(judgements.groups))
    count = ratings.shape[1]
    # Pairs of separate collections, such as a dev and a test split, are not ranked together.
    pooled = [ALL] if judged.group == ALL else []
    for group in pooled + (names if len(names) > 1 else []):
        in_group = np.full(len(scores), True) if group == ALL else groups == group
        scored = in_group & ~np.isnan(scores)
        # Each rating of a pair counts as a separate judgement.
        x, y, clusters = np.repeat(scores[scored], count), ratings[scored].ravel(), np.repeat(cluster[scored], count)
        record: Record = {"subset": group, "n": len(x), "missing": count * int(in_group.sum() - scored.sum())}
        for name, value in estimate(judged.statistics, x, y, clusters, params, threads).items():
            record |= value.record(name, f"{name}_")
        yield record


def _accuracies(
    judged: EvaluationSet,
    judgements: Judgements,
    choices: NDArray[np.int64],
    scores: Vector,
    cluster: NDArray[np.integer],
    params: JudgeParams,
) -> Iterator[Record]:
    better, worse = scores[choices[..., 0]], scores[choices[..., 1]]
    # An item counts as its worst comparison. If one of its scores is NaN, it is left out.
    worth = np.where(better > worse, 1.0, np.where(better == worse, judged.ties, 0.0)).min(axis=1)
    scored = ~(np.isnan(better) | np.isnan(worse)).any(axis=1)
    groups, count = np.array(judgements.groups), int(cluster.max()) + 1
    # All kinds share their draws, because the interval of their mean needs joint resamples.
    draws = cluster_counts(count, params.resamples, params.seed)
    values, resampled = list[float](), list[Vector]()
    for name in dict.fromkeys(judgements.groups):
        in_kind = (groups == name) & scored
        # A resample needs only the sums of each cluster.
        right, n = (np.bincount(cluster[in_kind], w[in_kind], count) for w in (worth, np.ones(len(worth))))
        with np.errstate(divide="ignore", invalid="ignore"):
            values.append(float(right.sum() / n.sum()))
            resampled.append((draws @ right) / (draws @ n))
        kind = {"subset": name, "n": int(n.sum()), "missing": int((groups == name).sum() - n.sum())}
        yield kind | _accuracy(values[-1], resampled[-1])
    # As in the papers, kinds have equal weight, whatever their sizes.
    total = {"subset": MEAN, "n": int(scored.sum()), "missing": int((~scored).sum())}
    yield total | _accuracy(float(np.mean(values)), np.mean(resampled, axis=0))


def _accuracy(value: float, resampled: Vector) -> Record:
    accuracy = Estimate(None if np.isnan(value) else value, percentile_interval(resampled))
    return accuracy.record(ACCURACY, f"{ACCURACY}_")
