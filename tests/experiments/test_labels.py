"""Contract: every label of a row has a point: its agreement with people, and the mean of its trainings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import t

from experiments.fit_table.labels import label_points
from experiments.fit_table.table import COLUMNS
from experiments.params import FitTableParams, ModelBudget

PARAMS = FitTableParams(
    train_labels=("sbert", "cider", "same_image"),
    models={name: ModelBudget(rows=(), by_label=("bcls", "soft_target")) for name in ("vsepp", "vse_inf")},
)
AGREEMENT: dict[str, dict[str, float | None]] = {
    "sbert": {"pearson": 0.76, "low": 0.75, "high": 0.77},
    "cider": {"pearson": 0.49, "low": 0.47, "high": 0.5},
    "same_image": {"pearson": None, "low": None, "high": None},
}


def rows() -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Make records whose RSUM is 300, 310 and 320 plus the number of the label."""
    made: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for model in PARAMS.models:
        made[model] = {}
        for loss in ("bcls", "soft_target"):
            for i, name in enumerate((loss, f"{loss}, cider", f"{loss}, same_image")):
                values = [dict.fromkeys(COLUMNS, x + i) for x in (300.0, 310.0, 320.0)]
                made[model][name] = [{"seed": s, "figures": v} for s, v in enumerate(values)]
    return made


def test_points_have_means_and_intervals() -> None:
    points = label_points(rows(), PARAMS, AGREEMENT)
    assert len(points) == 12
    assert [p["label"] for p in points[:3]] == list(PARAMS.train_labels)
    cider = points[1]
    assert (cider["pearson"], cider["RSUM"]["mean"]) == (0.49, pytest.approx(311))
    half = t.ppf(0.975, 2) * np.std([300, 310, 320], ddof=1) / np.sqrt(3)
    assert (cider["RSUM"]["low"], cider["RSUM"]["high"]) == pytest.approx((311 - half, 311 + half))
