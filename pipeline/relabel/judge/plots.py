"""Points for `dvc plots`: lists of flat records, one list a plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from relabel.judge.agreement import OWN, Scored, subsets
from relabel.judge.calibration import binned


def agreement_points(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Pearson's r of each label and subset with its interval, where defined; x is `pearson`, y is `label`.

    Parameters
    ----------
    records : sequence of mapping
        As `cxc_report` makes them.
    """
    names = ("label", "task", "subset", "pearson", "low", "high")
    return [{n: _short(r[n]) for n in names} for r in records if r.get("pearson") is not None]


def calibration_points(labels: Sequence[Scored], bins: int = 20) -> list[dict[str, Any]]:
    """Mean human score at each level of relevance, for pairs of two images; x is `relevance`, y is `human`.

    Parameters
    ----------
    labels : sequence of Scored
    bins : int
        Of equally many pairs, a label and task.
    """
    points = []
    for scored in labels:
        for task, columns in scored.columns.items():
            (other,) = (s for s in subsets(task) if s not in OWN and (s != "all" or task == "sis"))
            inside = columns.subset(other) & ~np.isnan(columns.relevance)
            found = binned(columns.relevance[inside], columns.human[inside], bins)
            for x, mean, spread, n in zip(found.relevance, found.mean, found.spread, found.n, strict=True):
                figures = {"relevance": _short(float(x)), "human": _short(float(mean)), "spread": _short(float(spread))}
                points.append({"label": scored.label, "task": task, **figures, "n": int(n)})
    return points


def _short(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value
