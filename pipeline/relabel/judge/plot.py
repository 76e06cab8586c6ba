"""Pictures of judgements.

`draw` shows relevance against human score in one panel per label, above the agreement of every label. `draw_summary`
shows all labels on all judged sets: one panel of bars per set, and one of speed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.statistics import round_relative
from relabel.datasets.cxc import METHODS, Task
from relabel.judge.calibration import bin_pairs
from relabel.judge.cxc_report import OWN, PairScores
from relabel.judge.judged_report import Column, Cost, labels_of
from relabel.store.files import write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

GT, OTHER, ALL_PAIRS, INK, PALE = "#D55E00", "#0072B2", "#8C8C8C", "#262626", "#E6E6E6"
"""Okabe and Ito's vermilion and blue, apart for every kind of colour vision, and greys."""
_TASK: Task = "sits"
_COLUMNS = 3
_ACROSS = 4  # panels per row of the picture of all sets
_TITLES: dict[Task, str] = {"sits": "Caption and image", "sts": "Caption and caption", "sis": "Image and image"}
STYLE: dict[str, Any] = {
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "font.size": 9,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def draw(labels: Sequence[PairScores], records: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw judged labels as PNG.

    Panels show caption-image pairs (SITS): hexagons, vermilion for GT and blue for non-GT, are darker the more pairs
    fall into them. The line is the mean human score of non-GT pairs in 20 bins of equal size, its band one standard
    deviation. Bars show Pearson's r of each task with 95% intervals; a diamond is the paper's figure.

    `records`: of `cxc_report`, for the same labels. `path`: written completely or not at all.
    """
    shown = [scored for scored in labels if _TASK in scored.tables]
    names = list(dict.fromkeys(r["label"] for r in records))
    panels, bars = 3.1 * math.ceil(len(shown) / _COLUMNS) + 0.6, 0.55 * len(names) + 1.5
    title = f"How labels agree with people: Crisscrossed Captions, {labels[0].split} split"
    with _picture(path, title, (11.5, panels + bars + 0.6), (0.1, None)) as figure:
        upper, lower = np.ravel(figure.subfigures(2, 1, height_ratios=[panels, bars], squeeze=False)).tolist()
        _panels(upper, shown, [r for r in records if r["task"] == _TASK])
        tasks = [task for task in _TITLES if any(r["task"] == task for r in records)]
        for axes, task in zip(lower.subplots(1, len(tasks), sharey=True, squeeze=False)[0], tasks, strict=True):
            _bars(axes, task, names, [r for r in records if r["task"] == task])
        _bars_legend(lower)


@contextmanager
def _picture(path: Path, title: str, size: tuple[float, float], pads: tuple[float, float | None]) -> Iterator[Figure]:
    """Yield an empty figure, and write it as PNG."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with mpl.rc_context(STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(h_pad=pads[0], w_pad=pads[1]))
        # A canvas without pyplot: no display is looked for, and no state of the caller's figures changes.
        FigureCanvasAgg(figure)
        figure.suptitle(title, x=0.01, ha="left", fontsize=14, weight="bold")
        yield figure
        write_atomic(path, partial(figure.savefig, format="png", dpi=150))


def _panels(figure: SubFigure, shown: Sequence[PairScores], records: Sequence[Mapping[str, Any]]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    height = math.ceil(len(shown) / _COLUMNS)
    grid = figure.subplots(height, _COLUMNS, squeeze=False, sharey=True)
    for axes, scored in zip(grid.ravel(), shown, strict=False):
        r = {record["subset"]: record["pearson"] for record in records if record["label"] == scored.label}
        _panel(axes, scored)
        figures = ", ".join(
            f"{name} {_r(r.get(subset))}" for name, subset in (("all", "all"), ("non-GT", METHODS[_TASK][1]))
        )
        axes.set_title(scored.label)
        axes.set_title(f"r: {figures}", loc="right", fontsize=9, weight="normal")
        axes.set_xlabel(f"relevance ({scored.params['source']}, pooling {scored.params['pooling']})")
    for axes in grid[:, 0]:
        axes.set_ylabel("human score (0 to 5)")
    for axes in grid.ravel()[len(shown) :]:
        axes.set_visible(False)
    handles = [
        Patch(color=GT, label="GT: the image's own caption"),
        Patch(color=OTHER, label="non-GT: another image's caption"),
        Line2D([], [], color=INK, marker="o", markersize=3, label="mean of non-GT pairs, band: one standard deviation"),
    ]
    figure.legend(handles=handles, loc="outside lower left", ncols=3, frameon=False)


def _panel(axes: Axes, scored: PairScores) -> None:
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm, to_rgba

    columns = scored.columns[_TASK]
    scored_pairs = ~np.isnan(columns.relevance)
    x, y = round_relative(columns.relevance[scored_pairs]), columns.human[scored_pairs]
    same_image = np.isin(columns.method[scored_pairs], OWN)
    if not len(x):
        axes.text(0.5, 0.5, "no pair was scored", transform=axes.transAxes, ha="center")
        return
    low, high = _limits(x)
    levels = np.unique(x)
    place = x
    # A label of few values has columns of no width: noise spreads them so that they can be seen.
    if len(levels) <= 10:
        place = x + 0.06 * (high - low) * np.random.default_rng(0).uniform(-1, 1, len(x))
    margin = 0.07 * (high - low)
    extent = (low - margin, high + margin, -0.2, 5.2)
    # Pairs of one image are few and high: drawn last, they stay visible.
    for members, colour in ((~same_image, OTHER), (same_image, GT)):
        shades = LinearSegmentedColormap.from_list("shades", [to_rgba(colour, 0.08), to_rgba(colour, 1.0)])
        visible = members & (place >= extent[0]) & (place <= extent[1])
        cells = axes.hexbin(
            place[visible], y[visible], gridsize=(44, 22), extent=extent, mincnt=1, cmap=shades, linewidths=0
        )
        counts = np.asarray(cells.get_array(), np.float64)
        # Counts span decades: the exponent keeps single pairs visible, and the quantile keeps one crowded cell from
        # paling all others.
        cells.set_norm(PowerNorm(0.4, 0, float(np.quantile(counts, 0.99)) if len(counts) else 1.0))
    _line(axes, x[~same_image], y[~same_image])
    axes.set_xlim(*extent[:2])
    axes.set_ylim(*extent[2:])
    axes.set_yticks(range(6))
    if len(levels) <= 10:
        axes.set_xticks(levels)


def _line(axes: Axes, x: NDArray[np.float64], y: NDArray[np.float64]) -> None:
    bins = bin_pairs(x, y)
    axes.fill_between(bins.relevance, bins.mean - bins.spread, bins.mean + bins.spread, color=INK, alpha=0.13, lw=0)
    # A white border separates the line from dark hexagons.
    axes.plot(bins.relevance, bins.mean, color="white", lw=3)
    axes.plot(bins.relevance, bins.mean, color=INK, lw=1.5, marker="o", markersize=3)


def _limits(x: NDArray[np.float64]) -> tuple[float, float]:
    """Return the range of nearly all pairs, since CIDEr-D's range ends at 10 and its scores at 6."""
    low, high = (float(v) for v in np.quantile(x, [0.0005, 0.9995]))
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _bars(axes: Axes, task: Task, names: list[str], records: list[Mapping[str, Any]]) -> None:
    methods = METHODS[task]
    subsets = [("all", ALL_PAIRS if len(methods) > 1 else OTHER)]
    subsets += [(m, GT if m in OWN else OTHER) for m in methods] if len(methods) > 1 else []
    thick = 0.27
    record_of = {(r["label"], r["subset"]): r for r in records}
    for k, (subset, colour) in enumerate(subsets):
        for i, name in enumerate(names):
            record, place = record_of.get((name, subset)), i + (k - (len(subsets) - 1) / 2) * thick
            if record is None or record["pearson"] is None:
                axes.text(0.005, place, "undefined", va="center", fontsize=6.5, color=ALL_PAIRS)
                continue
            r = record["pearson"]
            axes.barh(place, r, thick * 0.86, color=colour)
            if record["low"] is not None:
                axes.plot([record["low"], record["high"]], [place, place], color=INK, lw=1.2, solid_capstyle="butt")
            # The figure stands to the right of the bar, its interval and the paper's diamond.
            end = max(r, record["high"] or r)
            if record["paper"] is not None:
                axes.plot(record["paper"], place, marker="D", markersize=4.5, color="white", mec=INK, mew=1)
                end = max(end, record["paper"] + 0.012)
            axes.text(end + 0.012, place, f"{r:.3f}", va="center", fontsize=7)
    axes.set_title(f"{_TITLES[task]} ({task.upper()})")
    axes.set_xlabel("Pearson's r with human scores")
    axes.set_xlim(min([0.0, *(r["low"] or r["pearson"] or 0.0 for r in records)]), 1.02)
    # An inverted axis: the first label is on top, as in the table.
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.set_yticks(range(len(names)), names)
    axes.set_axisbelow(True)
    axes.grid(axis="x", color=PALE)


def _bars_legend(figure: SubFigure) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles = [
        Patch(color=ALL_PAIRS, label="all pairs"),
        Patch(color=GT, label="GT: pairs of one image"),
        Patch(color=OTHER, label="non-GT: pairs of two images"),
        Line2D([], [], color=INK, lw=1.2, label="95% interval"),
        Line2D([], [], color="white", mec=INK, marker="D", ls="", markersize=4.5, label="as a paper reports it"),
    ]
    figure.legend(handles=handles, loc="outside lower left", ncols=len(handles), frameon=False)


def _r(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3f}"


def draw_summary(columns: Sequence[Column], costs: Mapping[str, Cost], path: Path) -> None:
    """Draw the table of all judged sets as PNG.

    A panel shows the headline figure of one set, times 100, with its 95% interval as a line; the best label is blue.
    The last panel shows captions per second on a logarithmic scale.

    `path`: written completely or not at all.
    """
    labels = labels_of(columns)
    panels = len(columns) + bool(costs)
    across = min(_ACROSS, panels)
    down = math.ceil(panels / across)
    height = 0.24 * len(labels) + 0.95
    size = (2.6 * across + 1.3, height * down + 0.5)
    with _picture(path, "How labels agree with people, x100", size, (0.08, 0.06)) as figure:
        grid = figure.subplots(down, across, squeeze=False, sharey=True)
        for axes, column in zip(grid.ravel(), columns, strict=False):
            _set_bars(axes, column, labels)
        if costs:
            _speeds(grid.ravel()[len(columns)], costs, labels)
        for axes in grid.ravel()[panels:]:
            axes.set_visible(False)
        for axes in grid.ravel():
            axes.set_ylim(len(labels) - 0.4, -0.6)
            axes.set_yticks(range(len(labels)), labels)
            axes.set_axisbelow(True)
            axes.grid(axis="x", color=PALE)


def _set_bars(axes: Axes, column: Column, labels: Sequence[str]) -> None:
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
