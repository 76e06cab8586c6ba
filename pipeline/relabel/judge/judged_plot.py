"""Picture of all labels on all judged sets: one panel of bars per set, and one of speed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from relabel.judge.judged_summary import Column, Cost, labels_of
from relabel.judge.plot import ALL_PAIRS, INK, OTHER, PALE, STYLE
from relabel.store.atomic import write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ACROSS = 4  # panels per row


def draw_summary(columns: Sequence[Column], costs: Mapping[str, Cost], path: Path) -> None:
    """Draw the table of all judged sets as PNG.

    A panel shows the headline figure of one set, times 100, with its 95% interval as a line; the best label is blue.
    The last panel shows captions per second on a logarithmic scale.

    Parameters
    ----------
    columns : sequence of Column
    costs : mapping of str to Cost
    path : Path
        Written completely or not at all.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    labels = labels_of(columns)
    panels = len(columns) + bool(costs)
    across = min(_ACROSS, panels)
    down = math.ceil(panels / across)
    height = 0.24 * len(labels) + 0.95
    with mpl.rc_context(STYLE):  # type: ignore[arg-type]
        size = (2.6 * across + 1.3, height * down + 0.5)
        figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.06))
        FigureCanvasAgg(figure)
        figure.suptitle("How labels agree with people, x100", x=0.01, ha="left", fontsize=14, weight="bold")
        grid = figure.subplots(down, across, squeeze=False, sharey=True)
        for axes, column in zip(grid.ravel(), columns, strict=False):
            _bars(axes, column, labels)
        if costs:
            _speeds(grid.ravel()[len(columns)], costs, labels)
        for axes in grid.ravel()[panels:]:
            axes.set_visible(False)
        for axes in grid.ravel():
            axes.set_ylim(len(labels) - 0.4, -0.6)
            axes.set_yticks(range(len(labels)), labels)
            axes.set_axisbelow(True)
            axes.grid(axis="x", color=PALE)
        write_atomic(path, partial(figure.savefig, format="png", dpi=150))


def _bars(axes: Axes, column: Column, labels: Sequence[str]) -> None:
    best, end = column.best(), 0.0
    for place, label in enumerate(labels):
        estimate = column.estimates.get(label)
        if estimate is None or estimate.value is None:
            reason = "not scored" if estimate is None else "undefined"
            axes.text(0.5, place, reason, va="center", fontsize=6.5, color=ALL_PAIRS)
            continue
        value = 100 * estimate.value
        axes.barh(place, value, 0.7, color=OTHER if label in best else ALL_PAIRS)
        reach = value
        if estimate.interval is not None:
            low, reach = 100 * estimate.interval.low, max(value, 100 * estimate.interval.high)
            axes.plot([low, reach], [place, place], color=INK, lw=1.1, solid_capstyle="butt")
        axes.text(max(reach, 0.0) + 1.2, place, f"{value:.1f}", va="center", fontsize=7)
        end = max(end, reach)
    # The figures stand to the right of the bars.
    axes.set_xlim(min(0.0, axes.get_xlim()[0]), 1.2 * end or 1.0)
    axes.set_title(column.title, fontsize=9.5)
    axes.set_xlabel(column.statistic, fontsize=8)


def _speeds(axes: Axes, costs: Mapping[str, Cost], labels: Sequence[str]) -> None:
    speeds = {label: cost.captions_per_second for label, cost in costs.items()}
    fastest = max(speeds.values())
    axes.set_xscale("log")
    for place, label in enumerate(labels):
        if label in speeds:
            axes.barh(place, speeds[label], 0.7, color=OTHER if speeds[label] == fastest else ALL_PAIRS)
            axes.text(1.15 * speeds[label], place, f"{speeds[label]:,.0f}", va="center", fontsize=7)
    # Bars of a logarithmic axis start one decade below the slowest label.
    axes.set_xlim(min(speeds.values()) / 10, 6 * fastest)
    axes.set_title("speed", fontsize=9.5)
    axes.set_xlabel("captions per second", fontsize=8)
