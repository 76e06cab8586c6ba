"""Every metric of graded labels for some queries, out of one sort of their lists."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relabel_train.metrics.cs_at_k import cs_at_k
from relabel_train.metrics.kendall_tau import taus_of
from relabel_train.metrics.label_distance import label_distance
from relabel_train.metrics.ncs import ncs
from relabel_train.metrics.ndcg import ndcg
from relabel_train.metrics.ranked_labels import Items, Ranking, ideal_labels
from relabel_train.metrics.scores import Floats
from relabel_train.metrics.settings import ReportSettings

Values = dict[str, NDArray[np.float64]]
_SLACK = 1e-4


def graded_values(
    scores: Floats, labels: Floats, own: Items, drawn: NDArray[np.bool_], settings: ReportSettings
) -> Values:
    """Take the metrics of some queries.

    Parameters
    ----------
    scores, labels : (Q, n) float32 or float64
    own : Items
        What is left out for figures without GT.
    drawn : (Q,) bool
        Whose Kendall's tau is taken.
    settings : ReportSettings

    Returns
    -------
    dict of name to (Q,) float64
        NaN where a metric is not defined, or not taken.

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
    found, ideal = best.labels(), ideal_labels(labels, depth)
    out: Values = {}
    shallow = max(settings.ncs_ks, default=1)
    bare, bare_ideal = ranking.best(shallow, own).labels(), ideal_labels(labels, shallow, own)
    for part, ranked, wanted in (("", found, ideal), ("_without_gt", bare, bare_ideal)):
        out |= {f"ncs{k}{part}_percent": ncs(ranked, wanted, k) * 100 for k in settings.ncs_ks}
    out |= {f"cs{k}": cs_at_k(best, k) for k in settings.cs_ks}
    far, near = np.maximum(top - found, 0), np.maximum(top - ideal, 0)
    low = settings.label_low
    if low is not None:
        found, ideal = (found - low) / (top - low), (ideal - low) / (top - low)
    for k in settings.ndcg_ks:
        out[f"ndcg{k or ''}"] = ndcg(found, ideal, k)
        out[f"ndcg_distance{k or ''}"] = ndcg(far, near, k, "inverse_distance")
    out |= {f"label_distance{k}": label_distance(far, k) for k in settings.distance_ks}
    if settings.kendall_tau:
        keys = best.sorted_keys() if depth is None else ranking.best().sorted_keys()
        for name, values in zip(("kendall_tau_a", "kendall_tau_b"), taus_of(keys[drawn]), strict=True):
            out[name] = np.full(len(scores), np.nan)
            out[name][drawn] = values
    return out
