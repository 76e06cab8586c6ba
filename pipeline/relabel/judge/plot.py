"""Pictures of judgements.

`draw` plots relevance against human score in one panel per label, bars of the agreement of all labels, and the
reliability of calibrated probabilities. `draw_summary` plots all labels on all evaluation sets: one panel of bars per
set, and one for speed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from relabel.core.numeric.statistics import round_relative
from relabel.datasets.cxc import Task
from relabel.datasets.evaluation_sets import ALL
from relabel.judge.calibration import STATED, Reliability
from relabel.judge.cxc_figures import NON_GT, OWN, PairScores, bin_pairs, subsets
from relabel.judge.figures import Estimate
from relabel.judge.report import Record
from relabel.judge.tables import UNDEFINED, Column, Cost
from relabel.store.files import write_atomic

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

GT, OTHER, ALL_PAIRS, INK, PALE = "#D55E00", "#0072B2", "#8C8C8C", "#262626", "#E6E6E6"
"""Vermilion and blue of Okabe and Ito, distinct for every kind of colour vision, and greys."""
_TASK: Task = "sits"
_COLUMNS = 3
_ACROSS = 4  # panels per row in the picture of all sets
_DIAGRAMS = 5  # reliability diagrams per row
_SHARES = (0, 0.5, 1)
_Z = 1.96  # normal quantile of 95% intervals
_TITLES: dict[Task, str] = {"sits": "Caption and image", "sts": "Caption and caption", "sis": "Image and image"}
_DIAMOND: dict[str, Any] = {"color": "white", "mec": INK, "marker": "D", "ls": "", "markersize": 4.5}
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


def draw(
    labels: Sequence[PairScores], records: Sequence[Record], checked: Mapping[str, Reliability], path: Path
) -> None:
    """Draw judged labels as PNG.

    Panels show caption-image pairs (SITS) in hexagons, vermilion for GT and blue for non-GT; darker means more pairs.
    The line is the mean human score of non-GT pairs in 20 bins of equal size, with a band of one standard deviation.
    Bars show Pearson's r of each task with 95% intervals, and diamonds show the figures of papers.

    The last row compares stated probabilities of a human score of 4 or more with the share of such pairs.

    `records`: records of `cxc_report` for the same labels. `checked`: reliability of the labels with a curve. `path`:
    output file, written atomically.
    """
    shown = [scored for scored in labels if _TASK in scored.tasks]
    names = list(dict.fromkeys(record["label"] for record in records))
    panels, bars = 3.1 * math.ceil(len(shown) / _COLUMNS) + 0.6, 0.55 * len(names) + 1.5
    diagrams = 2.5 * math.ceil(len(checked) / _DIAGRAMS) + 0.9 if checked else 0.0
    heights = [height for height in (panels, bars, diagrams) if height]
    title = f"How labels agree with people: Crisscrossed Captions, {labels[0].split} split"
    with _picture(path, title, (11.5, sum(heights) + 0.6), (0.1, None)) as figure:
        rows = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)
        upper, lower, *last = np.ravel(rows).tolist()
        titles = {ALL: "all", NON_GT: "non-GT"}
        _panels(upper, shown, [Column.of(records, _TASK, name, "pearson", title) for name, title in titles.items()])
        tasks = [task for task in _TITLES if any(record["task"] == task for record in records)]
        for axes, task in zip(lower.subplots(1, len(tasks), sharey=True, squeeze=False)[0], tasks, strict=True):
            _agreement(axes, task, names, records)
        _legend(
            lower,
            {"all pairs": ALL_PAIRS, "GT: pairs of one image": GT, "non-GT: pairs of two images": OTHER},
            [{"color": INK, "lw": 1.2, "label": "95% interval"}, {**_DIAMOND, "label": "as a paper reports it"}],
        )
        if checked:
            draw_diagrams(last[0], checked)


@contextmanager
def _picture(path: Path, title: str, size: tuple[float, float], pads: tuple[float, float | None]) -> Iterator[Figure]:
    """Yield an empty figure, and then write it as PNG."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with mpl.rc_context(STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(h_pad=pads[0], w_pad=pads[1]))
        # Without pyplot, matplotlib does not need a display and does not change the caller's figures.
        FigureCanvasAgg(figure)
        figure.suptitle(title, x=0.01, ha="left", fontsize=14, weight="bold")
        yield figure
        write_atomic(path, partial(figure.savefig, format="png", dpi=150))


def _legend(figure: SubFigure, patches: Mapping[str, str], lines: Sequence[Mapping[str, Any]]) -> None:
    """Add a legend. `patches`: colours by title. `lines`: options of matplotlib's lines."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Artist] = [Patch(color=colour, label=title) for title, colour in patches.items()]
    handles += [Line2D([], [], **line) for line in lines]
    figure.legend(handles=handles, loc="outside lower left", ncols=len(handles), frameon=False)


def _panels(figure: SubFigure, shown: Sequence[PairScores], columns: Sequence[Column]) -> None:
    grid = figure.subplots(math.ceil(len(shown) / _COLUMNS), _COLUMNS, squeeze=False, sharey=True)
    for axes, scored in zip(grid.ravel(), shown, strict=False):
        _panel(axes, scored)
        figures = ", ".join(f"{column.title} {_r(column.estimates[scored.label])}" for column in columns)
        axes.set_title(scored.label)
        axes.set_title(f"r: {figures}", loc="right", fontsize=9, weight="normal")
        axes.set_xlabel(f"relevance ({scored.about.source}, pooling {scored.about.params['pooling']})")
    for axes in grid[:, 0]:
        axes.set_ylabel("human score (0 to 5)")
    for axes in grid.ravel()[len(shown) :]:
        axes.set_visible(False)
    _legend(
        figure,
        {"GT: the image's own caption": GT, "non-GT: another image's caption": OTHER},
        [{"color": INK, "marker": "o", "markersize": 3, "label": "mean of non-GT pairs, band: one standard deviation"}],
    )


def _panel(axes: Axes, scored: PairScores) -> None:
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm, to_rgba

    pairs = scored.tasks[_TASK]
    x, y = round_relative(pairs.relevance[pairs.scored]), pairs.human.score[pairs.scored]
    same_image = np.isin(pairs.method[pairs.scored], OWN)
    if not len(x):
        axes.text(0.5, 0.5, "no pair was scored", transform=axes.transAxes, ha="center")
        return
    # Show the range of nearly all pairs: CIDEr-D's range ends at 10, but its scores end at 6.
    low, high = (float(end) for end in np.quantile(x, [0.0005, 0.9995]))
    low, high = (low, high) if high > low else (low - 0.5, high + 0.5)
    levels = np.unique(x)
    place = x
    # Noise makes columns visible if the relevance has only a few values.
    if len(levels) <= 10:
        place = x + 0.06 * (high - low) * np.random.default_rng(0).uniform(-1, 1, len(x))
    margin = 0.07 * (high - low)
    extent = (low - margin, high + margin, -0.2, 5.2)
    # Pairs of one image are few and high; drawn last, they stay visible.
    for members, colour in ((~same_image, OTHER), (same_image, GT)):
        shades = LinearSegmentedColormap.from_list("shades", [to_rgba(colour, 0.08), to_rgba(colour, 1.0)])
        visible = members & (place >= extent[0]) & (place <= extent[1])
        cells = axes.hexbin(
            place[visible], y[visible], gridsize=(44, 22), extent=extent, mincnt=1, cmap=shades, linewidths=0
        )
        counts = np.asarray(cells.get_array(), np.float64)
        # Counts span decades. The exponent makes single pairs visible, and with the quantile as maximum, a crowded cell
        # does not make all others pale.
        cells.set_norm(PowerNorm(0.4, 0, float(np.quantile(counts, 0.99)) if len(counts) else 1.0))
    bins = bin_pairs(x[~same_image], y[~same_image])
    axes.fill_between(bins.relevance, bins.mean - bins.spread, bins.mean + bins.spread, color=INK, alpha=0.13, lw=0)
    # White border around the line
    axes.plot(bins.relevance, bins.mean, color="white", lw=3)
    axes.plot(bins.relevance, bins.mean, color=INK, lw=1.5, marker="o", markersize=3)
    axes.set_xlim(*extent[:2])
    axes.set_ylim(*extent[2:])
    axes.set_yticks(range(6))
    if len(levels) <= 10:
        axes.set_xticks(levels)


def draw_diagrams(figure: SubFigure, checked: Mapping[str, Reliability]) -> None:
    """Draw a reliability diagram per label: stated probabilities and actual shares, with 95% intervals."""
    grid = figure.subplots(math.ceil(len(checked) / _DIAGRAMS), _DIAGRAMS, squeeze=False, sharex=True, sharey=True)
    for axes, (label, found) in zip(grid.ravel(), checked.items(), strict=False):
        axes.plot([0, 1], [0, 1], color=ALL_PAIRS, lw=1, ls=":")
        axes.plot(found.stated, found.actual, color=OTHER, marker="o", markersize=3, lw=1)
        groups = [*zip(found.sizes, found.stated, found.actual, strict=True), found.above]
        n, stated, actual = np.array(groups[: None if found.above[0] else -1], np.float64).T
        if found.above[0]:
            axes.plot(stated[-1], actual[-1], **_DIAMOND)
        # Wilson's interval; a normal one has no width if no pair of a group is right.
        centre, scale = actual + _Z**2 / 2 / n, 1 + _Z**2 / n
        width = _Z * np.sqrt(actual * (1 - actual) / n + (_Z / 2 / n) ** 2)
        axes.vlines(stated, (centre - width) / scale, (centre + width) / scale, color=INK, lw=1.2)
        axes.set_title(label)
        axes.text(0.03, 0.93, f"ECE {100 * found.error:.1f}")
        axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal", xticks=_SHARES, yticks=_SHARES)
        axes.set_xlabel("stated probability")
    for axes in grid[:, 0]:
        axes.set_ylabel("actual share")
    for axes in grid.ravel()[len(checked) :]:
        axes.set_visible(False)
    title = "Calibration: non-GT pairs with a human score of 4 or more"
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, weight="bold")
    points = {"color": OTHER, "marker": "o", "markersize": 3, "lw": 1, "label": "15 groups of pairs"}
    interval = {"color": INK, "lw": 1.2, "label": "95% interval"}
    above = {**_DIAMOND, "label": f"pairs with a stated probability of {STATED} or more"}
    perfect = {"color": ALL_PAIRS, "lw": 1, "ls": ":", "label": "perfect calibration"}
    _legend(figure, {}, [points, interval, above, perfect])


def _r(estimate: Estimate) -> str:
    return UNDEFINED if estimate.value is None else f"{estimate.value:.3f}"


@dataclass(frozen=True)
class _Bars:
    """A column drawn as bars, with a colour for each label and the published figures by label."""

    column: Column
    colours: Mapping[str, str]
    papers: Mapping[str, float] = field(default_factory=dict)


def _agreement(axes: Axes, task: Task, labels: Sequence[str], records: Sequence[Record]) -> None:
    """Draw Pearson's r of a task, over all pairs and for each sampling method."""
    several = len(subsets(task)) > 1
    bars = []
    for subset in subsets(task):
        colour = GT if subset in OWN else ALL_PAIRS if several and subset == ALL else OTHER
        of_subset = [r for r in records if (r["task"], r["subset"]) == (task, subset)]
        papers = {r["label"]: r["paper"] for r in of_subset if r["paper"] is not None}
        bars.append(_Bars(Column.of(of_subset, task, subset, "pearson", subset), dict.fromkeys(labels, colour), papers))
    _draw_bars(axes, labels, bars, "{:.3f}")
    axes.set_title(f"{_TITLES[task]} ({task.upper()})")
    axes.set_xlabel("Pearson's r with human scores")
    axes.set_xlim(right=1.02)


def _draw_bars(axes: Axes, labels: Sequence[str], series: Sequence[_Bars], form: str, scale: float = 1.0) -> None:
    """Draw a group of bars per label, with lines for intervals, diamonds for published figures, and figures as text."""
    thick = 0.8 / len(series)
    for k, bars in enumerate(series):
        for i, label in enumerate(labels):
            estimate, place = bars.column.estimates.get(label), i + (k - (len(series) - 1) / 2) * thick
            if estimate is None or estimate.value is None:
                text = "not scored" if estimate is None else UNDEFINED
                axes.text(0.005 * scale, place, text, va="center", fontsize=6.5, color=ALL_PAIRS)
                continue
            end = value = scale * estimate.value
            axes.barh(place, value, 0.86 * thick, color=bars.colours[label])
            if estimate.interval is not None:
                ends = [scale * estimate.interval.low, scale * estimate.interval.high]
                axes.plot(ends, [place, place], color=INK, lw=1.2, solid_capstyle="butt")
                end = max(end, ends[1])
            if label in bars.papers:
                axes.plot(bars.papers[label], place, **_DIAMOND)
                end = max(end, bars.papers[label])
            # Write the figure to the right of the bar, its interval and the diamond.
            axes.annotate(form.format(value), (end, place), (4, 0), textcoords="offset points", va="center", fontsize=7)
    # Invert the axis to put the first label on top, as in the table.
    axes.set_ylim(len(labels) - 0.45, -0.55)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_axisbelow(True)
    axes.grid(axis="x", color=PALE)


def draw_summary(columns: Sequence[Column], costs: Mapping[str, Cost], path: Path) -> None:
    """Draw the table of all evaluation sets as PNG.

    Each panel shows the headline figure of one set, times 100, with a line for its 95% interval. The best label is
    blue. The last panel shows captions per second on a logarithmic scale.

    `path`: output file, written atomically.
    """
    labels = list(dict.fromkeys(label for column in columns for label in column.estimates))
    panels = len(columns) + bool(costs)
    across = min(_ACROSS, panels)
    down = math.ceil(panels / across)
    size = (2.6 * across + 1.3, (0.24 * len(labels) + 0.95) * down + 0.5)
    with _picture(path, "How labels agree with people, x100", size, (0.08, 0.06)) as figure:
        grid = figure.subplots(down, across, squeeze=False, sharey=True).ravel()
        for axes, column in zip(grid, columns, strict=False):
            _panel_of_set(axes, labels, column, "{:.1f}", 100)
            # Leave space for the figures to the right of the bars.
            axes.set_xlim(right=1.2 * axes.get_xlim()[1])
        if costs:
            speeds = {label: Estimate(cost.captions_per_second) for label, cost in costs.items()}
            axes = grid[len(columns)]
            axes.set_xscale("log")
            _panel_of_set(axes, labels, Column("speed", speeds, "captions per second"), "{:,.0f}")
            rates = [cost.captions_per_second for cost in costs.values()]
            # On a logarithmic axis, bars start one decade below the slowest label.
            axes.set_xlim(min(rates) / 10, 6 * max(rates))
        for axes in grid[panels:]:
            axes.set_visible(False)


def _panel_of_set(axes: Axes, labels: Sequence[str], column: Column, form: str, scale: float = 1.0) -> None:
    colours = {label: OTHER if label in column.best() else ALL_PAIRS for label in labels}
    _draw_bars(axes, labels, [_Bars(column, colours)], form, scale)
    axes.set_title(column.title, fontsize=9.5)
    axes.set_xlabel(column.statistic, fontsize=8)
