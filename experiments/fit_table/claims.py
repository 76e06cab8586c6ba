"""Claims of the papers, each a paired comparison of two rows over the seeds, and their verdicts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.params import FitTableParams
from relabel.config import read_yaml
from relabel.core.tables import Table

SMALLEST = 0.01
"""Smallest difference that counts, as a share of the baseline's mean."""


class Claim(NamedTuple):
    """A claim that one row is above another one in a figure, or, with `keeps`, not below it by more than `SMALLEST`.

    A figure of labels is that of the first judge that taught neither row.
    """

    paper: str
    claim: str
    row: str
    baseline: str
    figure: str
    keeps: bool = False


_PAPERS = read_yaml(Path(__file__).with_name("claims.yaml"))
CLAIMS = tuple(Claim(paper, **claim) for paper, claims in _PAPERS.items() for claim in claims)
"""Claims that the table tests."""


class Difference(NamedTuple):
    """Mean of paired differences with its 95% interval."""

    mean: float
    low: float
    high: float


def image_interval(rows: Sequence[Mapping[str, Any]], baselines: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Return the 95% interval of a difference in RSUM over test images: 2,000 bootstrap samples, of the same seeds.

    Parameters
    ----------
    rows, baselines : sequence of records
        One per seed; `images` has the part of each test image in RSUM.
    """
    values = np.mean([np.subtract(r["images"], b["images"]) for r, b in zip(rows, baselines, strict=True)], axis=0)
    drawn = np.random.default_rng(0).integers(len(values), size=(2000, len(values)))
    low, high = np.quantile(values[drawn].mean(axis=1), (0.025, 0.975))
    return float(low), float(high)


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

    A claim of a difference holds if the interval is above 0, and does not hold if it is below 0. A claim that a row
    keeps a figure holds if the interval is above minus `SMALLEST` of the baseline, and does not hold if it is below
    that. Otherwise it is undecided.

    Examples
    --------
    >>> from experiments.fit_table.claims import Difference, verdict
    >>> verdict(Difference(3.0, 0.5, 5.5), 300.0)
    'holds'
    >>> verdict(Difference(-1.0, -1.5, -0.5), 300.0)
    'does not hold'
    >>> verdict(Difference(0.0, -1.0, 1.0), 300.0)
    'undecided'
    >>> verdict(Difference(0.0, -1.0, 1.0), 300.0, keeps=True)
    'holds'
    """
    limit = -SMALLEST * abs(baseline) if keeps else 0.0
    if difference.low > limit:
        return "holds"
    return "does not hold" if difference.high < limit else "undecided"


def judge_claims(
    model: str, rows: Mapping[str, Sequence[Mapping[str, Any]]], params: FitTableParams
) -> list[dict[str, Any]]:
    """Return the claims whose rows a model has trained, with the difference, its intervals and the verdict.

    The verdict follows from both intervals: that over seeds, and for RSUM that over test images if it is known. It is
    "own label" if the only judge of a figure taught one of the rows.

    Parameters
    ----------
    model : str
    rows : mapping of row to its records
        One per seed, in the same order; `figures` of a record has the columns of the table.
    params : FitTableParams
    """
    judged, trained = [], params.rows_of(model)
    for claim in CLAIMS:
        pair = [rows.get(name, ()) for name in (claim.row, claim.baseline)]
        if min(map(len, pair)) < 2:
            continue
        taught = {trained[name].teacher(params.train_labels[0]) for name in (claim.row, claim.baseline)}
        judges = sorted(
            (j for j in params.judges if f"{claim.figure} ({j})" in pair[0][0]["figures"]), key=taught.__contains__
        )
        name = f"{claim.figure} ({judges[0]})" if judges else claim.figure
        row, baseline = ([figure_of(record["figures"], name) for record in records] for records in pair)
        if not np.isfinite([*row, *baseline]).all():
            continue
        difference, mean = paired_difference(row, baseline), float(np.mean(baseline))
        body = {"model": model, **claim._asdict(), "figure": name, "baseline_mean": mean, **difference._asdict()}
        low, high = difference.low, difference.high
        if name == "RSUM" and all("images" in record for records in pair for record in records):
            body["images"] = image_interval(*pair)
            low, high = min(low, body["images"][0]), max(high, body["images"][1])
        decided = verdict(Difference(difference.mean, low, high), mean, claim.keeps)
        judged.append(body | {"verdict": "own label" if judges and judges[0] in taught else decided})
    return judged


def claims_tables(claims: Sequence[Mapping[str, Any]]) -> list[Table]:
    """Return the claims as one table per model; the notes stand below the last one."""
    notes = (
        "Difference: mean over seeds of the row minus the baseline, with its 95% interval over seeds (paired t).",
        "images: the 95% interval of that mean over test images (bootstrap, the same seeds).",
        "holds: the intervals are above 0. does not hold: they are below 0. For a claim to keep a figure, the limit is "
        f"-{SMALLEST:.0%} of the baseline instead of 0. undecided: everything else. own label: the only label that "
        "judges the figure taught one of the rows.",
        "Intervals are not corrected for the number of claims.",
    )
    rows: dict[str, list[tuple[str, ...]]] = {}
    for c in claims:
        digits = 1 if abs(c["baseline_mean"]) > 5 else 4
        mean, low, high = (f"{c[name]:+.{digits}f}" for name in Difference._fields)
        effect, relative = f"{mean} [{low} {high}]", f"{c['mean'] / c['baseline_mean']:+.1%}"
        effect += ", images [{:+.1f} {:+.1f}]".format(*c["images"]) if "images" in c else ""
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
