"""Contract: intervals of rank correlations are percentiles over the resamples of Pearson's interval. Each resample
equals scipy's coefficients of the repeated pairs, for any number of threads.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kendalltau, spearmanr

from relabel.core.numeric.statistics import cluster_counts
from relabel.judge.rank_bootstrap import rank_intervals

P, CLUSTERS = 90, 17
RNG = np.random.default_rng(11)
HUMAN = RNG.integers(0, 7, P) / 3
RELEVANCE = np.round(HUMAN + RNG.normal(size=P), 1)
CLUSTER = RNG.integers(0, CLUSTERS, P) * 3 + 5


@pytest.mark.parametrize("threads", [1, 2])
def test_equals_scipy_on_repeated_pairs(threads: int) -> None:
    names = np.unique(CLUSTER)
    counts = cluster_counts(len(names), 70, 4).astype(int)
    expected = []
    for row in counts:
        rows = np.repeat(np.arange(P), row[np.searchsorted(names, CLUSTER)])
        x, y = RELEVANCE[rows], HUMAN[rows]
        expected.append((spearmanr(x, y)[0], kendalltau(x, y)[0], kendalltau(x, y, variant="c")[0]))
    intervals = rank_intervals(RELEVANCE, HUMAN, CLUSTER, 70, 4, threads)
    for interval, values in zip(intervals, np.array(expected).T, strict=True):
        assert interval is not None
        assert (interval.low, interval.high) == pytest.approx(np.quantile(values, [0.025, 0.975]), abs=1e-12)
