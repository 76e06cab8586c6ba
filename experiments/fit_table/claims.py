"""Claims of the papers, each a paired comparison of two rows over the seeds, and their verdicts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from relabel.core.tables import Table

SMALLEST = 0.01
"""Smallest difference that counts, as a share of the baseline's mean."""


class Claim(NamedTuple):
    """A claim that one row is above another one in a figure, or, with `keeps`, not below it by more than `SMALLEST`."""

    paper: str
    claim: str
    row: str
    baseline: str
    figure: str
    keeps: bool = False


WARM, LISTWISE, GRADED = "triplet, warm-up", "smooth_ndcg_triplet", "smooth_ndcg_triplet, graded batches"
CLAIMS = (
    Claim("BCLS", "soft negatives are above the hardest negative", "triplet_soft", "triplet", "RSUM"),
    Claim("BCLS", "soft negatives are above the hardest one after a warm-up", "triplet_soft", WARM, "RSUM"),
    Claim("BCLS", "BCLS is above the triplet with soft negatives", "bcls", "triplet_soft", "RSUM"),
    Claim("BCLS", "BCLS is above the triplet with soft negatives", "bcls", "triplet_soft", "Kendall tau"),
    Claim("BCLS", "BCLS is above the triplet with the hardest negative", "bcls", "triplet", "RSUM"),
    Claim("BCLS", "BCLS is above the hardest negative after a warm-up", "bcls", WARM, "RSUM"),
    Claim("BCLS", "BCLS finds more positives of ECCV Caption", "bcls", "triplet", "ECCV"),
    Claim("BCLS", "Kendall's loss beside a triplet helps recall", "triplet_soft + kendall", "triplet_soft", "RSUM"),
    Claim("ladder", "the ladder keeps recall", "ladder", "triplet", "RSUM", keeps=True),
    Claim("ladder", "the ladder lifts coherence", "ladder", "triplet", "CS@100"),
    Claim("SAM", "soft margins lift recall", "triplet + sam", "triplet", "RSUM"),
    Claim("SAM", "soft margins lift NCS", "triplet + sam", "triplet", "NCS"),
    Claim("S-NDCG", "S-NDCG with a triplet is above the triplet", LISTWISE, "triplet", "RSUM"),
    Claim("S-NDCG", "S-NDCG with a triplet is above the triplet after a warm-up", LISTWISE, WARM, "RSUM"),
    Claim("S-NDCG", "S-NDCG with a triplet finds more positives", LISTWISE, "triplet", "ECCV"),
    Claim("log-ratio", "log-ratio is above the triplet for graded retrieval", "log_ratio", "triplet", "nDCG"),
    Claim("log-ratio", "log-ratio is above the dense triplet", "log_ratio", "dense_triplet", "nDCG"),
    Claim("BiXSE", "graded sigmoid is above InfoNCE", "graded_sigmoid", "multi_positive_infonce", "nDCG"),
    Claim("BiXSE", "graded sigmoid is above InfoNCE", "graded_sigmoid", "multi_positive_infonce", "RSUM"),
    Claim("relabel", "BCLS on graded batches is above random ones", "bcls, graded batches", "bcls", "RSUM"),
    Claim("relabel", "S-NDCG with a triplet on graded batches is above random ones", GRADED, LISTWISE, "RSUM"),
)
"""Claims that the table tests."""


class Difference(NamedTuple):
    """Mean of paired differences with its 95% interval."""

    mean: float
    low: float
    high: float


def paired_difference(row: Sequence[float], baseline: Sequence[float]) -> Difference:
    """Return the mean difference of two rows trained with the same seeds, with the 95% interval of Student's t.

    Rows of one seed share the initial weights and, with the same sampler, the batches.

    Parameters
    ----------
    row, baseline : sequence of float
        One figure per seed, at least two, in the same order.

    Examples
    --------
    >>> from experiments.fit_table.claims import paired_difference
    >>> difference = paired_difference([303.0, 305.0, 304.0], [300.0, 303.0, 300.0])
    >>> [round(value, 2) for value in difference]
    [3.0, 0.52, 5.48]
    """
    from scipy.stats import ttest_1samp

    values = np.subtract(row, baseline)
    interval = ttest_1samp(values, 0).confidence_interval(0.95)
    return Difference(float(values.mean()), float(interval.low), float(interval.high))


def verdict(difference: Difference, baseline: float, keeps: bool = False) -> str:
    """Judge a claim by an interval.

    A claim of a difference holds if the interval is above 0, and does not hold if it is below `SMALLEST` of the
    baseline. A claim that a row keeps a figure holds if the interval is above minus `SMALLEST` of the baseline, and
    does not hold if it is below that.

    Examples
    --------
    >>> from experiments.fit_table.claims import Difference, verdict
    >>> verdict(Difference(3.0, 0.5, 5.5), 300.0)
    'holds'
    >>> verdict(Difference(0.0, -1.0, 1.0), 300.0)
    'does not hold'
    >>> verdict(Difference(0.0, -5.0, 5.0), 300.0)
    'undecided'
    >>> verdict(Difference(0.0, -1.0, 1.0), 300.0, keeps=True)
    'holds'
    """
    smallest = SMALLEST * abs(baseline)
    holds, fails = (-smallest, -smallest) if keeps else (0.0, smallest)
    if difference.low > holds:
        return "holds"
    return "does not hold" if difference.high < fails else "undecided"


def judge_claims(model: str, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return the claims whose rows a model has trained, with the difference, its interval and the verdict.

    Parameters
    ----------
    model : str
    rows : mapping of row to its records
        One per seed, in the same order; `figures` of a record has the columns of the table.
    """
    judged = []
    for claim in CLAIMS:
        row, baseline = (
            [figure_of(record["figures"], claim.figure) for record in rows.get(name, ())]
            for name in (claim.row, claim.baseline)
        )
        if len(row) < 2 or len(baseline) < 2 or not np.isfinite([*row, *baseline]).all():
            continue
        difference, mean = paired_difference(row, baseline), float(np.mean(baseline))
        body = {"model": model, **claim._asdict(), "baseline_mean": mean, **difference._asdict()}
        judged.append(body | {"verdict": verdict(difference, mean, claim.keeps)})
    return judged


def claims_tables(claims: Sequence[Mapping[str, Any]]) -> list[Table]:
    """Return the claims as one table per model; the notes stand below the last one."""
    notes = (
        "Difference: mean over seeds of the row minus the baseline, with its 95% interval (paired, Student's t).",
        f"holds: the interval is above 0. does not hold: it is below {SMALLEST:.0%} of the baseline. A claim to keep a "
        f"figure holds if the interval is above -{SMALLEST:.0%}. undecided: everything else.",
        "Intervals are not corrected for the number of claims.",
    )
    rows: dict[str, list[tuple[str, ...]]] = {}
    for c in claims:
        digits = 1 if abs(c["baseline_mean"]) > 5 else 4
        mean, low, high = (f"{c[name]:+.{digits}f}" for name in Difference._fields)
        effect, relative = f"{mean} [{low} {high}]", f"{c['mean'] / c['baseline_mean']:+.1%}"
        line = (f"{c['paper']}: {c['claim']}", c["figure"], effect, relative, c["verdict"])
        rows.setdefault(c["model"], []).append(line)
    header = ("claim", "figure", "difference", "relative", "verdict")
    tables = [Table(f"Claims of the papers, {model}", header, tuple(lines)) for model, lines in rows.items()]
    return [*tables[:-1], *(replace(table, notes=notes) for table in tables[-1:])]


def figure_of(figures: Mapping[str, float | None], column: str) -> float:
    """Return a figure of a record; ECCV is the mean of both directions, and a missing figure NaN.

    Examples
    --------
    >>> from experiments.fit_table.claims import figure_of
    >>> figure_of({"ECCV i2t": 12.0, "ECCV t2i": 20.0}, "ECCV")
    16.0
    """
    if column == "ECCV":
        return (figure_of(figures, "ECCV i2t") + figure_of(figures, "ECCV t2i")) / 2
    value = figures[column]
    return math.nan if value is None else value
