"""Mean human score at each level of relevance, which pictures draw as a line, and the points of `dvc plots`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.core.tables import csv_text
from relabel.judge.cxc_report import OWN, CxcFigures, PairScores, subsets


@dataclass(frozen=True, eq=False)
class Bins:
    """Pairs in at most B bins of equal size, by relevance.

    `relevance`: (B,) float64; mean relevance of each bin, ascending.
    `mean`, `spread`: (B,) float64; mean and standard deviation of the human scores, 0..5.
    `n`: (B,) int64; number of pairs in each bin.
    """

    relevance: NDArray[np.float64]
    mean: NDArray[np.float64]
    spread: NDArray[np.float64]
    n: NDArray[np.int64]


def bin_pairs(relevance: NDArray[np.float64], human: NDArray[np.float64], bins: int = 20) -> Bins:
    """Cut pairs into bins of equal size by relevance. Pairs of equal relevance share a bin, so ties make fewer bins.

    `relevance`, `human`: (P,) float64; finite.
    """
    if not len(relevance):
        empty = np.empty(0)
        return Bins(empty, empty, empty, np.empty(0, np.int64))
    # Index, in order of relevance, of the last pair of each bin but the last one; -1 where there are fewer pairs than
    # bins.
    last = len(relevance) * np.arange(1, bins) // bins - 1
    edges = np.unique(np.sort(relevance)[last[last >= 0]])
    # A pair that equals an edge belongs to the bin that ends with it, so no tie is divided between two bins.
    index = np.searchsorted(edges, relevance, side="left")
    n = np.bincount(index, minlength=len(edges) + 1)
    nonempty = n > 0
    # The last bin is empty where the largest edge is also the largest relevance. Its 0 / 0 is left out below.
    with np.errstate(invalid="ignore"):
        x, mean = (np.bincount(index, v, len(n)) / n for v in (relevance, human))
        variance = np.bincount(index, (human - mean[index]) ** 2, len(n)) / n
    return Bins(x[nonempty], mean[nonempty], np.sqrt(variance[nonempty]), n[nonempty])


def point_files(name: str, records: Sequence[Mapping[str, Any]], compared: Sequence[CxcFigures]) -> dict[str, str]:
    """Return the files of `dvc plots` by name: Pearson's r by label, and the human score by relevance.

    `records`: of `cxc_report`.
    """
    points = {
        "agreement": agreement_points(records),
        "calibration": [point for one in compared for point in one.calibration],
    }
    return {f"{name}.{kind}.csv": f"{csv_text(rows)}\n" for kind, rows in points.items()}


def agreement_points(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return Pearson's r of each label and subset with its interval, where defined; x is `pearson`, y is `label`.

    `records`: of `cxc_report`.
    """
    names = ("label", "task", "subset", "pearson", "low", "high")
    return [{n: _short(r[n]) for n in names} for r in records if r.get("pearson") is not None]


def calibration_points(labels: Sequence[PairScores], bins: int = 20) -> list[dict[str, Any]]:
    """Return the mean human score at each level of relevance, for pairs of two images; x is `relevance`, y is `human`.

    `bins`: number of bins per label and task.
    """
    points = []
    for scored in labels:
        for task, columns in scored.columns.items():
            # Pairs of one image are rated high at any relevance and would bend the line. SIS has none, so its subset is
            # `all`.
            (other,) = (s for s in subsets(task) if s not in OWN and (s != "all" or task == "sis"))
            in_subset = columns.subset(other) & ~np.isnan(columns.relevance)
            level = bin_pairs(columns.relevance[in_subset], columns.human[in_subset], bins)
            for x, mean, spread, n in zip(level.relevance, level.mean, level.spread, level.n, strict=True):
                figures = {"relevance": _short(float(x)), "human": _short(float(mean)), "spread": _short(float(spread))}
                points.append({"label": scored.label, "task": task, **figures, "n": int(n)})
    return points


def _short(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value
