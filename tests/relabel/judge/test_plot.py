"""Contract: a reliability diagram shows stated and actual share of each group of pairs, with Wilson's interval."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from relabel.judge.calibration import Reliability
from relabel.judge.plot import draw_diagrams
from relabel_train.scoring.calibration import CalibrationCurve


def test_a_diagram_shows_each_group_with_its_interval() -> None:
    from matplotlib.figure import Figure

    curve = CalibrationCurve((0.0, 1.0), (1.0, 4.5), (0.0, 0.9), own=(4.9, 0.99))
    stated, right, sizes = (0.02, 0.4, 0.85), (0, 17, 30), (40, 50, 30)
    actual = tuple(k / n for k, n in zip(right, sizes, strict=True))
    checked = {name: Reliability(curve, 0.03, 0.1, stated, actual, sizes, (30, 0.85, 1.0)) for name in "abcdef"}
    figure = Figure().subfigures(1, 1)
    draw_diagrams(figure, checked)
    panels = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title() for axes in panels] == [*checked]
    for axes in panels:
        diagonal, points, above = (line.get_xydata() for line in axes.lines)
        np.testing.assert_allclose(points, np.stack([stated, actual], axis=1))
        assert [*map(list, diagonal), *map(list, above)] == [[0, 0], [1, 1], [0.85, 1.0]]
        segments = axes.collections[0].get_segments()
        for k, n, segment in zip((*right, 30), (*sizes, 30), segments, strict=True):
            ends = binomtest(k, n).proportion_ci(0.95, "wilson")
            assert sorted(segment[:, 1]) == pytest.approx([ends.low, ends.high], abs=1e-4)
