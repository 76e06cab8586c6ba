"""Calibration: the human score that people give to pairs of a relevance, as monotone functions of relevance.

The pairs are CxC's SITS pairs of a caption and another image. Each function is fitted by centred isotonic regression
(Oron and Flournoy, Statistics in Biopharmaceutical Research 9(3), 2017): isotonic regression by the pool adjacent
violators algorithm, then linear interpolation between the centres of its blocks. The regression is one of the means of
groups of at least `GROUP` pairs: the highest group of fewer pairs states more than other pairs hold.

Pairs of an image and its own caption have no part in the fit. The caption is among the references there, and people
score 99% of these pairs 4 or more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.statistics import Vector, cluster_counts
from relabel.core.tables import Table, csv_text
from relabel.judge.cxc import ScoredPairs
from relabel.judge.cxc_figures import NON_GT, bin_pairs
from relabel.judge.report import Report
from relabel.store.workdir import Work
from relabel_train.files import read_value
from relabel_train.scoring.calibration import CalibrationCurve

GROUP = 100
"""Minimum number of pairs of a group. With 20, CIDEr's pairs of a stated 87% had 76% in CxC test; with 100, of a stated
81% had 80%."""
RIGHT = 4
"""Human score, of 5, from which a caption describes an image."""
STATED = 0.8
"""Probability that defines a match, as in `false-negatives`."""
_FILE = "calibration.json"
_BINS = 15
_FITTED = (
    "0.5 from: smallest relevance with P = 0.5. Curves are fitted to the non-GT pairs of val, and compared with those "
    "of this split."
)

Ends = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True)
class Calibration:
    """Curve of a label, with 95% intervals and the size of its sample.

    `expected`, `probability`: lower and upper ends at each knot of the curve, by a bootstrap over images.
    `pairs`, `images`: numbers of judged pairs and of their images.
    """

    curve: CalibrationCurve
    expected: Ends
    probability: Ends
    pairs: int
    images: int


@dataclass(frozen=True)
class Reliability:
    """Agreement of the probabilities that a curve states with judged pairs.

    `error`: expected calibration error of the probability, 0..1: the mean distance between the stated and the actual
        share over groups of pairs, weighted by their sizes. `score_error`: the same of the expected score, 0..5.
    `stated`, `actual`, `sizes`: of each group, the mean stated probability, the share of pairs scored `RIGHT` or more,
        and the number of pairs.
    `above`: number of pairs with a stated probability of `STATED` or more, its mean, and the actual share; shares are
        None without such pairs.
    """

    curve: CalibrationCurve
    error: float
    score_error: float
    stated: Sequence[float]
    actual: Sequence[float]
    sizes: Sequence[int]
    above: tuple[int, float | None, float | None]


def calibrate(pairs: ScoredPairs, resamples: int = 1000, seed: int = 0) -> Calibration | None:
    """Fit a curve to the judged pairs of a caption and an image; None if fewer than `GROUP` pairs have a score.

    `pairs`: of the task "sits". `resamples`: of the bootstrap; 0 for intervals that are the curve itself.
    """
    own, chosen = pairs.method != NON_GT, (pairs.method == NON_GT) & pairs.scored
    relevance, human, cluster = pairs.relevance[chosen], pairs.human.score[chosen], pairs.cluster[chosen]
    if len(human) < GROUP:
        return None
    facts = pairs.human.score[own]
    own_values = (round(float(facts.mean()), 4), round(float((facts >= RIGHT).mean()), 4))
    group, (images, image) = group_pairs(relevance), np.unique(cluster, return_inverse=True)
    # Sums per image and group are all that a resample needs.
    shape = (len(images), int(group.max()) + 1)
    cell = image * shape[1] + group
    n, s, p = (
        np.bincount(cell, w, shape[0] * shape[1]).reshape(shape)
        for w in (np.ones(len(human)), human, (human >= RIGHT).astype(np.float64))
    )
    centre = np.bincount(group, relevance) / n.sum(0)
    fitted = [fit_monotone(centre, sums.sum(0) / n.sum(0), n.sum(0)) for sums in (s, p)]
    # Knots of both functions: each of them is linear between all of these.
    knots = np.unique(np.concatenate([x for x, _ in fitted]).round(6))
    draws = cluster_counts(len(images), resamples, seed) if resamples else np.ones((1, len(images)))
    counts = draws @ n
    values, ends = [], []
    for sums, (x, y) in zip((s, p), fitted, strict=True):
        values.append(np.interp(knots, x, y))
        drawn = [_resampled(centre, total, count, knots) for total, count in zip(draws @ sums, counts, strict=True)]
        low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
        ends.append((_rounded(np.minimum(low, values[-1])), _rounded(np.maximum(high, values[-1]))))
    curve = CalibrationCurve(tuple(knots.tolist()), _rounded(values[0]), _rounded(values[1]), own_values)
    return Calibration(curve, ends[0], ends[1], len(human), len(images))


def group_pairs(relevance: Vector, size: int = GROUP) -> NDArray[np.int64]:
    """Return the group of each pair, by ascending relevance: (P,) int64.

    Pairs of equal relevance share a group. Each group has at least `size` pairs, unless there are fewer.
    """
    _, index, count = np.unique(relevance, return_inverse=True, return_counts=True)
    group, last, pairs = np.empty(len(count), np.int64), 0, 0
    for i, n in enumerate(count.tolist()):
        group[i] = last
        pairs += n
        if pairs >= size:
            last, pairs = last + 1, 0
    # The pairs that remain at the end join the group before them.
    return np.minimum(group, max(last - 1, 0))[index] if pairs else group[index]


def fit_monotone(x: Vector, y: Vector, weight: Vector) -> tuple[Vector, Vector]:
    """Return the centres of the blocks of an isotonic regression, and their values, both ascending.

    `x`: ascending. `y`, `weight`: values at x and their weights, above 0.
    """
    from scipy.optimize import isotonic_regression

    found = isotonic_regression(y, weights=weight)
    start = found.blocks[:-1]
    total = np.add.reduceat(weight, start)
    return np.add.reduceat(weight * x, start) / total, found.x[start]


def reliability(curve: CalibrationCurve, pairs: ScoredPairs) -> Reliability | None:
    """Compare a curve with judged pairs of two images; None if no such pair has a score."""
    chosen = (pairs.method == NON_GT) & pairs.scored
    if not chosen.any():
        return None
    relevance, human = pairs.relevance[chosen], pairs.human.score[chosen]
    right = (human >= RIGHT).astype(np.float64)
    stated = curve.evaluate(relevance, "probability")
    groups = bin_pairs(stated, right, _BINS)
    scores = bin_pairs(5 * curve.evaluate(relevance, "expected"), human, _BINS)
    above = stated >= STATED
    shares = (float(stated[above].mean()), float(right[above].mean())) if above.any() else (None, None)
    return Reliability(
        curve,
        calibration_error(groups.relevance, groups.mean, groups.n),
        calibration_error(scores.relevance, scores.mean, scores.n),
        groups.relevance.tolist(),
        groups.mean.tolist(),
        groups.n.tolist(),
        (int(above.sum()), *shares),
    )


def calibration_report(found: Mapping[str, Reliability], split: str) -> Report:
    """Report the thresholds of labels, and the agreement of their curves with judged pairs; empty without labels.

    `found`: by label, on the SITS pairs of `split`. Curves are fitted to the pairs of val.
    """
    rows, points = [], []
    for label, checked in found.items():
        reached = (_threshold(checked.curve, p) for p in (0.5, STATED))
        above, *shares = checked.above
        cells = ("" if share is None else f"{share:.1%}" for share in shares)
        rows.append((label, *reached, f"{100 * checked.error:.1f}", f"{above:,}", *cells))
        groups = zip(checked.stated, checked.actual, checked.sizes, strict=True)
        points += [{"label": label, "stated": round(s, 4), "actual": round(a, 4), "n": n} for s, a, n in groups]
    if not rows:
        return Report()
    title = f"CxC {split}, calibration: P, the probability of a human score of {RIGHT} or more"
    header = ("label", "0.5 from", f"{STATED} from", "ECE", f"pairs of P >= {STATED}", "stated", "actual")
    notes = (
        _FITTED,
        "ECE: expected calibration error of P in points. CxC chose its pairs by similarity: P holds for such.",
    )
    return Report((Table(title, header, tuple(rows), notes),), (), {"cxc.reliability.csv": csv_text(points)})


def _threshold(curve: CalibrationCurve, probability: float) -> str:
    found = curve.threshold(probability)
    return "never" if found is None else f"{found:.3f}" if np.isfinite(found) else "any"


def calibration_error(stated: Vector, actual: Vector, n: NDArray[np.int64]) -> float:
    """Return the mean distance between stated and actual values of groups of `n` pairs."""
    return float(np.abs(stated - actual) @ n / n.sum())


def _resampled(centre: Vector, sums: Vector, count: Vector, knots: Vector) -> Vector:
    """Return the function of a resample at knots. Groups without a pair in it have no part."""
    drawn = count > 0
    return np.interp(knots, *fit_monotone(centre[drawn], sums[drawn] / count[drawn], count[drawn]))


def _rounded(values: Vector) -> tuple[float, ...]:
    return tuple(np.round(values, 4).tolist())


def write_calibration(calibration: Calibration | None, work: Work) -> None:
    """Write a calibration as an artefact."""
    text = json.dumps(asdict(calibration) if calibration else None, indent=1)
    work.file(_FILE, lambda path: path.write_text(text, encoding="utf-8"))


def read_calibration(folder: Path) -> Calibration | None:
    """Read the calibration of an artefact."""
    value = json.loads((folder / _FILE).read_text(encoding="utf-8"))
    return None if value is None else calibration_of(value)


def calibration_of(value: object) -> Calibration:
    """Return the calibration that a value of JSON describes."""
    return read_value(Calibration, value)  # type: ignore[no-any-return]
