"""Contract: claims compare rows seed by seed. Verdicts follow from the interval, that of scipy's paired t-test."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_rel

from experiments.fit_table.claims import CLAIMS, Difference, claims_tables, judge_claims, paired_difference, verdict
from experiments.fit_table.table import COLUMNS
from experiments.rows import ROWS


def records(values: list[float]) -> list[dict[str, Any]]:
    return [{"figures": dict.fromkeys(COLUMNS, value)} for value in values]


def test_every_claim_names_rows_and_figures_of_the_table() -> None:
    for claim in CLAIMS:
        assert {claim.row, claim.baseline} <= set(ROWS)
        assert claim.figure in (*COLUMNS, "ECCV")


def test_the_interval_is_that_of_a_paired_t_test() -> None:
    rng = np.random.default_rng(0)
    row, baseline = rng.normal(310, 4, 5), rng.normal(300, 4, 5)
    expected = ttest_rel(row, baseline).confidence_interval(0.95)
    found = paired_difference(row.tolist(), baseline.tolist())
    assert found.mean == pytest.approx((row - baseline).mean())
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize(
    ("interval", "keeps", "expected"),
    [
        ((0.1, 8.0), False, "holds"),
        ((-0.1, 8.0), False, "undecided"),
        ((-2.0, 2.9), False, "does not hold"),  # 1% of 300 is the smallest difference that counts
        ((-9.0, -1.0), False, "does not hold"),
        ((-2.9, 5.0), True, "holds"),
        ((-3.1, 5.0), True, "undecided"),
        ((-9.0, -3.1), True, "does not hold"),
    ],
)
def test_verdicts(interval: tuple[float, float], keeps: bool, expected: str) -> None:
    assert verdict(Difference(sum(interval) / 2, *interval), 300.0, keeps) == expected


def test_claims_skip_missing_rows() -> None:
    rows = {"triplet": records([300, 310, 305]), "triplet_soft": records([310, 315, 320])}
    (claim,) = judge_claims("vsepp", rows)
    assert (claim["row"], claim["baseline"], claim["model"]) == ("triplet_soft", "triplet", "vsepp")
    assert claim["mean"] == pytest.approx(np.mean([310 - 300, 315 - 310, 320 - 305]))
    (table,) = claims_tables([claim])
    assert table.rows[0][-1] == claim["verdict"]
    assert "+3.3%" in table.rows[0]


def test_undefined_figures_make_no_claim() -> None:
    """Check a dataset without ECCV Caption, and one seed, which has no interval."""
    without = records([300, 310, 305])
    for record in without:
        record["figures"] |= {"ECCV i2t": None, "ECCV t2i": None}
    judged = judge_claims("vsepp", {"triplet": without, "bcls": records([1, 2, 3])})
    assert {claim["figure"] for claim in judged} == {"RSUM"}
    assert judge_claims("vsepp", {name: records([300]) for name in ("triplet", "triplet_soft")}) == []
