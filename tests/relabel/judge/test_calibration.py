"""Contract: a calibration states the expected human score and the probability of 4 or more as functions of relevance
that never decrease, fitted to CxC's pairs of two images only; its intervals contain it, and are those of a bootstrap
over images; stated and actual shares are compared as a loop compares them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from relabel.core.numeric.statistics import cluster_counts
from relabel.datasets.cxc import HumanScores
from relabel.judge.calibration import (
    Calibration,
    calibrate,
    calibration_error,
    calibration_report,
    fit_monotone,
    group_pairs,
    read_calibration,
    reliability,
    write_calibration,
)
from relabel.judge.cxc import ScoredPairs
from relabel.store.workdir import Work
from relabel_train.scoring.calibration import CalibrationCurve

Array = NDArray[np.float64]


def judged_pairs(count: int, seed: int, images: int = 60, noise: float = 1.0) -> ScoredPairs:
    """Make pairs with ties, whose human scores rise with relevance; a tenth is of one image, some have no relevance."""
    rng = np.random.default_rng(seed)
    relevance = rng.integers(0, 400, count) / 400
    human = np.clip(5 * relevance + rng.normal(0, noise, count), 0, 5).round(2)
    own = rng.random(count) < 0.1
    human[own], relevance[own] = 4.9, 1.0
    relevance[rng.random(count) < 0.02] = np.nan
    ids = [str(i) for i in range(count)]
    method = np.where(own, "c2i_original", "c2i_intrasim").tolist()
    judged = HumanScores("sits", "val", ids, ids, human, method)
    missing = ["no" if np.isnan(r) else None for r in relevance]
    return ScoredPairs(judged, relevance, missing, rng.integers(0, images, count).astype(np.int32))


def pool_by_loop(x: Array, y: Array, weight: Array) -> tuple[list[float], list[float]]:
    """Merge neighbours that decrease, or are equal, until none is left; return centres and values of the blocks."""
    blocks = [[w * a, w * b, w] for a, b, w in zip(x, y, weight, strict=True)]
    i = 0
    while i + 1 < len(blocks):
        left, right = blocks[i], blocks[i + 1]
        if left[1] / left[2] >= right[1] / right[2]:
            blocks[i : i + 2] = [[a + b for a, b in zip(left, right, strict=True)]]
            i = max(i - 1, 0)
        else:
            i += 1
    return [sx / w for sx, _, w in blocks], [sy / w for _, sy, w in blocks]


def test_blocks_are_those_of_a_loop() -> None:
    rng = np.random.default_rng(0)
    for size in [1, 2, *rng.integers(3, 30, 200)]:
        x, weight = np.sort(rng.random(size)), rng.integers(1, 9, size).astype(np.float64)
        # No two means are equal up to rounding, of which a loop and a library may make one block or two.
        y = x + rng.normal(0, 0.5, size)
        centres, values = fit_monotone(x, y, weight)
        expected = pool_by_loop(x, y, weight)
        np.testing.assert_allclose(centres, expected[0], rtol=1e-9)
        np.testing.assert_allclose(values, expected[1], rtol=1e-9, atol=1e-12)


def test_groups_hold_equal_pairs_together_and_enough_of_them() -> None:
    rng = np.random.default_rng(1)
    for size in (1, 7, 50):
        relevance = rng.integers(0, 40, rng.integers(60, 300)) / 7
        group = group_pairs(relevance, size)
        assert np.bincount(group).min() >= size
        by_value = {value: {*group[relevance == value]} for value in np.unique(relevance)}
        numbers = [number for (number,) in by_value.values()]
        assert numbers == sorted(numbers)
        # A group ends at the first value at which it is large enough.
        for number in range(group.max()):
            last = relevance[group == number].max()
            assert ((group == number) & (relevance < last)).sum() < size
    assert {*group_pairs(np.array([0.3, 0.1, 0.3]), 50)} == {0}


@pytest.fixture(scope="module")
def pairs() -> ScoredPairs:
    return judged_pairs(3000, 0)


@pytest.fixture(scope="module")
def fitted(pairs: ScoredPairs) -> Calibration:
    found = calibrate(pairs, resamples=30, seed=3)
    assert found is not None
    return found


def test_a_curve_never_decreases_and_its_intervals_contain_it(fitted: Calibration) -> None:
    curve = fitted.curve
    assert curve.is_valid
    assert len(curve.relevance) > 10
    assert 0.5 < np.ptp(curve.probability) < 1
    for values, (low, high) in ((curve.expected, fitted.expected), (curve.probability, fitted.probability)):
        assert len(low) == len(high) == len(values)
        assert all(a <= b <= c for a, b, c in zip(low, values, high, strict=True))
        assert np.subtract(high, low).mean() > 0
        assert (np.diff([low, high]) >= 0).all()


def test_values_and_intervals_are_those_of_a_loop_over_images(pairs: ScoredPairs, fitted: Calibration) -> None:
    chosen = [i for i, m in enumerate(pairs.method) if m == "c2i_intrasim" and not np.isnan(pairs.relevance[i])]
    relevance, human, image = pairs.relevance[chosen], pairs.human.score[chosen], pairs.cluster[chosen]
    assert (fitted.pairs, fitted.images) == (len(chosen), len({*image}))
    group, knots = group_pairs(relevance), fitted.curve.relevance
    centre = [float(relevance[group == g].mean()) for g in range(group.max() + 1)]

    def values(selected: NDArray[np.intp], right: bool) -> Array:
        y = (human[selected] >= 4) if right else human[selected]
        drawn = [g for g in range(group.max() + 1) if (group[selected] == g).any()]
        means = [float(y[group[selected] == g].mean()) for g in drawn]
        sizes = [float((group[selected] == g).sum()) for g in drawn]
        x, fit = pool_by_loop(np.array(centre)[drawn], np.array(means), np.array(sizes))
        return np.interp(knots, x, fit)

    members = [np.flatnonzero(image == one) for one in np.unique(image)]
    draws = cluster_counts(len(members), 30, 3).astype(int)
    resampled = [np.concatenate([np.repeat(m, n) for m, n in zip(members, draw, strict=True)]) for draw in draws]
    for right, curve, ends in (
        (False, fitted.curve.expected, fitted.expected),
        (True, fitted.curve.probability, fitted.probability),
    ):
        exact = values(np.arange(len(chosen)), right)
        # Knots are rounded to six digits and values to four.
        np.testing.assert_allclose(curve, exact, atol=2e-4)
        low, high = np.quantile([values(sample, right) for sample in resampled], [0.025, 0.975], axis=0)
        np.testing.assert_allclose(ends, [np.minimum(low, exact), np.maximum(high, exact)], atol=2e-4)


def test_pairs_of_one_image_have_values_of_their_own(pairs: ScoredPairs, fitted: Calibration) -> None:
    assert fitted.curve.own == (4.9, 1.0)
    assert calibrate(judged_pairs(90, 0), 0) is None


def test_stated_shares_are_compared_as_by_a_loop(fitted: Calibration) -> None:
    other, curve = judged_pairs(2000, 5, noise=2.0), fitted.curve
    found = reliability(curve, other)
    assert found is not None
    stated, right = [], []
    for r, h, m in zip(other.relevance, other.human.score, other.method, strict=True):
        if m == "c2i_intrasim" and not np.isnan(r):
            stated.append(float(np.interp(r, curve.relevance, curve.probability)))
            right.append(h >= 4)
    ranked = sorted(zip(stated, right, strict=True))
    assert sum(found.sizes) == len(ranked)
    error, start = 0.0, 0
    for size, mean, share in zip(found.sizes, found.stated, found.actual, strict=True):
        part = ranked[start : start + size]
        assert mean == pytest.approx(sum(p for p, _ in part) / size)
        assert share == pytest.approx(sum(r for _, r in part) / size)
        error += abs(mean - share) * size / len(ranked)
        start += size
    assert found.error == pytest.approx(error)
    assert found.error > 0.02
    above = [(p, r) for p, r in ranked if p >= 0.8]
    assert found.above[0] == len(above) > 0
    assert found.above[1:] == pytest.approx(np.mean(above, axis=0))


def test_a_report_has_a_line_for_each_label(fitted: Calibration, pairs: ScoredPairs) -> None:
    checked = reliability(fitted.curve, pairs)
    assert checked is not None
    report = calibration_report({"mine": checked}, "val")
    (row,) = report.tables[0].rows
    assert row[0] == "mine"
    assert float(row[2]) == pytest.approx(fitted.curve.threshold(0.8), abs=6e-4)
    assert float(row[3]) == pytest.approx(100 * checked.error, abs=0.06)
    assert int(row[4]) == checked.above[0]
    lines = report.points["cxc.reliability.csv"].splitlines()
    assert len(lines) == 1 + len(checked.sizes)
    assert report.tables[0].title.startswith("CxC val, ")
    assert not calibration_report({}, "val").tables
    assert reliability(fitted.curve, replace(pairs, relevance=np.full(len(pairs.human), np.nan))) is None


def test_the_error_of_two_groups() -> None:
    assert calibration_error(np.array([0.2, 0.9]), np.array([0.3, 0.5]), np.array([30, 10])) == pytest.approx(0.175)


def test_a_written_calibration_is_read_back(fitted: Calibration, tmp_path: Path) -> None:
    for name, calibration in (("some", fitted), ("none", None)):
        (tmp_path / name).mkdir()
        write_calibration(calibration, Work(tmp_path / name))
        assert read_calibration(tmp_path / name) == calibration


def test_a_threshold_parts_relevance_by_its_probability(fitted: Calibration) -> None:
    curve, grid = fitted.curve, np.linspace(-0.5, 1.5, 5000)
    for probability in (0.0, 0.1, 0.5, 0.8, max(curve.probability)):
        threshold = curve.threshold(probability)
        assert threshold is not None
        apart = abs(grid - threshold) > 1e-9
        reached = curve.evaluate(grid, "probability") >= probability
        np.testing.assert_array_equal(reached[apart], (grid >= threshold)[apart])
    assert curve.threshold(max(curve.probability) + 1e-6) is None
    every = CalibrationCurve((0.0, 1.0), (1.0, 2.0), (0.5, 0.7), (5.0, 1.0))
    assert [every.threshold(p) for p in (0.2, 0.5, 0.6)] == [-np.inf, -np.inf, pytest.approx(0.5)]


def test_values_between_knots_and_of_an_images_own_captions() -> None:
    curve = CalibrationCurve((0.0, 0.5, 1.0), (1.0, 3.0, 4.5), (0.0, 0.4, 0.9), own=(4.9, 0.99))
    relevance = np.array([[0.25, 0.5], [2.0, np.nan]])
    own = np.array([[False, True], [False, True]])
    np.testing.assert_allclose(curve.evaluate(relevance, "probability", own), [[0.2, 0.99], [0.9, np.nan]])
    np.testing.assert_allclose(curve.evaluate(relevance, "expected"), [[0.4, 0.6], [0.9, np.nan]])
    assert curve.evaluate(relevance, "relevance") is relevance
