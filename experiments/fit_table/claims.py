"""Claims of the papers, each a paired comparison of two rows over the seeds, and their verdicts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from relabel.core.tables import Table

Verdict = Literal["holds", "does not hold", "undecided"]
SMALLEST = 0.01
"""Smallest difference that counts, as a share of the baseline's mean."""


@dataclass(frozen=True)
class Claim:
    """A claim that one row is above another one in a figure, or not below it.

    Attributes
    ----------
    paper, text : str
    row, baseline : str
        Rows of the table.
    column : str
        Figure of the table.
    keeps : bool
        Whether the claim is only that the row is not below the baseline by more than `SMALLEST`.
    """

    paper: str
    text: str
    row: str
    baseline: str
    column: str
    keeps: bool = False


CLAIMS = (
    Claim("BCLS", "soft negatives are above the hardest negative", "triplet_soft", "triplet", "RSUM"),
    Claim(
        "BCLS", "soft negatives are above the hardest one after a warm-up", "triplet_soft", "triplet, warm-up", "RSUM"
    ),
    Claim("BCLS", "BCLS is above the triplet with soft negatives", "bcls", "triplet_soft", "RSUM"),
    Claim("BCLS", "BCLS is above the triplet with soft negatives", "bcls", "triplet_soft", "Kendall tau"),
    Claim("BCLS", "BCLS is above the triplet with the hardest negative", "bcls", "triplet", "RSUM"),
    Claim("BCLS", "BCLS is above the hardest negative after a warm-up", "bcls", "triplet, warm-up", "RSUM"),
    Claim("BCLS", "BCLS finds more positives of ECCV Caption", "bcls", "triplet", "ECCV"),
    Claim("BCLS", "Kendall's loss beside a triplet helps recall", "triplet_soft + kendall", "triplet_soft", "RSUM"),
    Claim("ladder", "the ladder keeps recall", "ladder", "triplet", "RSUM", keeps=True),
    Claim("ladder", "the ladder lifts coherence", "ladder", "triplet", "CS@100"),
    Claim("SAM", "soft margins lift recall", "triplet + sam", "triplet", "RSUM"),
    Claim("SAM", "soft margins lift NCS", "triplet + sam", "triplet", "NCS"),
    Claim("S-NDCG", "S-NDCG with a triplet is above the triplet", "smooth_ndcg_triplet", "triplet", "RSUM"),
    Claim(
        "S-NDCG",
        "S-NDCG with a triplet is above the triplet after a warm-up",
        "smooth_ndcg_triplet",
        "triplet, warm-up",
        "RSUM",
    ),
    Claim("S-NDCG", "S-NDCG with a triplet finds more positives", "smooth_ndcg_triplet", "triplet", "ECCV"),
    Claim("log-ratio", "log-ratio is above the triplet for graded retrieval", "log_ratio", "triplet", "nDCG"),
    Claim("log-ratio", "log-ratio is above the dense triplet", "log_ratio", "dense_triplet", "nDCG"),
    Claim("BiXSE", "graded sigmoid is above InfoNCE", "graded_sigmoid", "multi_positive_infonce", "nDCG"),
    Claim("BiXSE", "graded sigmoid is above InfoNCE", "graded_sigmoid", "multi_positive_infonce", "RSUM"),
    Claim("relabel", "BCLS on graded batches is above random ones", "bcls, graded batches", "bcls", "RSUM"),
    Claim(
        "relabel",
        "S-NDCG with a triplet on graded batches is above random ones",
        "smooth_ndcg_triplet, graded batches",
        "smooth_ndcg_triplet",
        "RSUM",
    ),
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
        One figure per seed, in the same order. One seed gives an infinite interval.

    Examples
    --------
    >>> from experiments.fit_table.claims import paired_difference
    >>> difference = paired_difference([303.0, 305.0, 304.0], [300.0, 303.0, 300.0])
    >>> [round(value, 2) for value in difference]
    [3.0, 0.52, 5.48]
    """
    from scipy.stats import t

    values = np.subtract(row, baseline)
    mean = float(values.mean())
    if len(values) < 2:
        return Difference(mean, -math.inf, math.inf)
    half = float(t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values)))
    return Difference(mean, mean - half, mean + half)


def verdict(difference: Difference, baseline: float, keeps: bool = False) -> Verdict:
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
        One per seed; `figures` of a record has the columns of the table.
    """
    judged = []
    for claim in CLAIMS:
        if claim.row not in rows or claim.baseline not in rows:
            continue
        ours, theirs = (
            {record["seed"]: figure_of(record["figures"], claim.column) for record in rows[name]}
            for name in (claim.row, claim.baseline)
        )
        seeds = [seed for seed in ours if seed in theirs]
        row, baseline = [ours[seed] for seed in seeds], [theirs[seed] for seed in seeds]
        if not seeds or not np.isfinite([*row, *baseline]).all():
            continue
        difference = paired_difference(row, baseline)
        mean = float(np.mean(baseline))
        judged.append(
            {
                "model": model,
                "paper": claim.paper,
                "claim": claim.text,
                "figure": claim.column,
                "row": claim.row,
                "baseline": claim.baseline,
                "baseline_mean": mean,
                "difference": difference.mean,
                "interval": None if math.isinf(difference.low) else [difference.low, difference.high],
                "verdict": verdict(difference, mean, claim.keeps),
            }
        )
    return judged


def claims_tables(claims: Sequence[Mapping[str, Any]]) -> list[Table]:
    """Return the claims as one table per model; the notes stand below the last one."""
    notes = (
        "Difference: mean over seeds of the row minus the baseline, with its 95% interval (paired, Student's t).",
        f"holds: the interval is above 0. does not hold: it is below {SMALLEST:.0%} of the baseline. A claim to keep a "
        f"figure holds if the interval is above -{SMALLEST:.0%}. undecided: everything else.",
        "Intervals are not corrected for the number of claims.",
    )
    header = ("claim", "figure", "difference", "relative", "verdict")
    models = list(dict.fromkeys(c["model"] for c in claims))
    tables = []
    for model in models:
        rows = [
            (
                f"{c['paper']}: {c['claim']}",
                c["figure"],
                _effect(c),
                f"{c['difference'] / c['baseline_mean']:+.1%}",
                c["verdict"],
            )
            for c in claims
            if c["model"] == model
        ]
        last = model == models[-1]
        tables.append(Table(f"Claims of the papers, {model}", header, tuple(rows), notes if last else ()))
    return tables


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


def _effect(claim: Mapping[str, Any]) -> str:
    digits = 1 if abs(claim["baseline_mean"]) > 5 else 4
    interval = claim["interval"]
    between = "" if interval is None else f" [{interval[0]:+.{digits}f} {interval[1]:+.{digits}f}]"
    return f"{claim['difference']:+.{digits}f}{between}"
