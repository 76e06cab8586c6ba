"""Calibration: the expected human score, and the probability of a high one, as monotone functions of relevance.

The functions are fitted to CxC's SITS pairs of a caption and another image by centred isotonic regression (Oron and
Flournoy, Statistics in Biopharmaceutical Research 9(3), 2017): the pool adjacent violators algorithm, then linear
interpolation between the centres of its blocks. The regression uses the means of groups of at least `GROUP` pairs.
Smaller groups at the top overfit: they state higher probabilities than new pairs have.

Pairs of an image and its own caption are not used. The caption is one of the references, and 99% of these pairs have a
human score of 4 or more.
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
"""Minimum number of pairs of a group. On CxC test, the highest group of CIDEr stated 87% and had 76% with a minimum of
20; with 100, it states 81% and has 80%."""
RIGHT = 4
"""Minimum human score, of 5, at which a caption counts as a description of an image."""
STATED = 0.8
"""Default minimum probability of a match, as in `false-negatives`."""
_FILE = "calibration.json"
_BINS = 15
_FITTED = (
    "0.5 from: smallest relevance with P = 0.5. Curves are fitted to the non-GT pairs of val, and compared with those "
    "of this split."
)

Ends = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True)
class Calibration:
    """Curve of a label, with 95% intervals and the sample size.

    `expected`, `probability`: lower and upper bounds at each knot of the curve, by a bootstrap over images.
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

    `error`: expected calibration error of the probability, 0..1: the mean absolute difference between the stated
        probability and the actual share over groups of pairs, weighted by size. `score_error`: the same for the
        expected score, 0..5.
    `stated`, `actual`, `sizes`: mean stated probability, share of pairs with a score of `RIGHT` or more, and number of
        pairs of each group.
    `above`: number of pairs with a stated probability of `STATED` or more, the mean of these probabilities, and the
        actual share. Both are None if there are no such pairs.
    """

    curve: CalibrationCurve
    error: float
    score_error: float
    stated: Sequence[float]
    actual: Sequence[float]
    sizes: Sequence[int]
    above: tuple[int, float | None, float | None]


def calibrate(pairs: ScoredPairs, resamples: int = 1000, seed: int = 0) -> Calibration | None:
    """Fit a curve to judged pairs of a caption and an image; None if fewer than `GROUP` pairs have a relevance.

    `pairs`: pairs of the task "sits". `resamples`: bootstrap samples; with 0, the intervals equal the curve.
    """
    own, chosen = pairs.method != NON_GT, (pairs.method == NON_GT) & pairs.scored
    relevance, human, cluster = pairs.relevance[chosen], pairs.human.score[chosen], pairs.cluster[chosen]
    if len(human) < GROUP:
        return None
    facts = pairs.human.score[own]
    own_values = (round(float(facts.mean()), 4), round(float((facts >= RIGHT).mean()), 4))
    group, (images, image) = group_pairs(relevance), np.unique(cluster, return_inverse=True)
    # A bootstrap sample only needs the sums per image and group.
    shape = (len(images), int(group.max()) + 1)
    cell = image * shape[1] + group
    n, s, p = (
        np.bincount(cell, w, shape[0] * shape[1]).reshape(shape)
        for w in (np.ones(len(human)), human, (human >= RIGHT).astype(np.float64))
    )
    centre = np.bincount(group, relevance) / n.sum(0)
    fitted = [fit_monotone(centre, sums.sum(0) / n.sum(0), n.sum(0)) for sums in (s, p)]
    # Both functions are linear between the union of their knots.
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
    """Return the group number of each pair, by ascending relevance: (P,) int64.

    Pairs of equal relevance share a group. Each group has at least `size` pairs, unless there are fewer in total.
    """
    _, index, count = np.unique(relevance, return_inverse=True, return_counts=True)
    group, last, pairs = np.empty(len(count), np.int64), 0, 0
    for i, n in enumerate(count.tolist()):
        group[i] = last
        pairs += n
        if pairs >= size:
            last, pairs = last + 1, 0
    # Pairs left over at the end join the previous group.
    return np.minimum(group, max(last - 1, 0))[index] if pairs else group[index]


def fit_monotone(x: Vector, y: Vector, weight: Vector) -> tuple[Vector, Vector]:
    """Return the centres and the values of the blocks of an isotonic regression, both ascending.

    `x`: ascending. `y`, `weight`: values at `x`, and their positive weights.
    """
    from scipy.optimize import isotonic_regression

    found = isotonic_regression(y, weights=weight)
    start = found.blocks[:-1]
    total = np.add.reduceat(weight, start)
    return np.add.reduceat(weight * x, start) / total, found.x[start]


def reliability(curve: CalibrationCurve, pairs: ScoredPairs) -> Reliability | None:
    """Compare a curve with judged pairs of a caption and another image; None if no such pair has a relevance."""
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

    `found`: reliability by label, on the SITS pairs of `split`.
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
    """Return the mean absolute difference between stated and actual values, weighted by the group sizes `n`."""
    return float(np.abs(stated - actual) @ n / n.sum())


def _resampled(centre: Vector, sums: Vector, count: Vector, knots: Vector) -> Vector:
    """Return the function of a bootstrap sample at `knots`. Groups without a pair in the sample are ignored."""
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
    """Return the calibration in a JSON value."""
    return read_value(Calibration, value)  # type: ignore[no-any-return]
