"""Does a label that agrees better with people train better? Agreement of each label, and figures of its trainings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.fit_table.claims import Difference, figure_of, paired_difference
from experiments.params import FitTableParams
from relabel.judge.plot import STYLE
from relabel.stages import Project
from relabel.stages.correlate import correlate
from relabel.store.files import write_atomic

FIGURES = ("RSUM", "ECCV")
"""Figures of the picture: RSUM, and the mean mAP@R of both directions on ECCV Caption."""
_NAME_WIDTH = 0.035  # least distance of two names on the axis of agreement
Rows = Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]
"""Records by model and row, one per seed."""


def label_agreement(project: Project, labels: Sequence[str]) -> dict[str, dict[str, float | None]]:
    """Return Pearson's r of labels with people on CxC's caption-image pairs of different images, with 95% intervals.

    Encodings and judgements that do not exist are built.

    Returns
    -------
    dict of label to `pearson`, `low` and `high`; None for a label that is constant on these pairs
    """
    records = correlate(project, labels, ["cxc"]).report.records
    return {
        record["label"]: {name: record[name] for name in ("pearson", "low", "high")}
        for record in records
        if record["task"] == "sits" and record["subset"] == "c2i_intrasim" and record["label"] in labels
    }


def label_points(
    rows: Rows, params: FitTableParams, agreement: Mapping[str, Mapping[str, float | None]]
) -> list[dict[str, Any]]:
    """Return one point per model, loss and label: the label's agreement, and its figures with 95% intervals.

    Parameters
    ----------
    rows : mapping
        Records of the table.
    params : FitTableParams
    agreement : mapping of label to its agreement, as `label_agreement` returns it
    """
    points = []
    for model, budget in params.models.items():
        for loss in budget.by_label:
            own = params.rows[loss].label or params.train_labels[0]
            for label in params.train_labels:
                records = rows[model][loss if label == own else f"{loss}, {label}"]
                figures = {name: _interval([figure_of(r["figures"], name) for r in records]) for name in FIGURES}
                points.append({"model": model, "loss": loss, "label": label, **agreement[label], **figures})
    return points


def draw_labels(points: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw the points as PNG: one row of panels per figure, one column per model, one colour per loss.

    Bars are 95% intervals. A label that is constant on the judged pairs, as `same_image`, has no agreement: it stands
    at 0, with an open marker.

    Parameters
    ----------
    points : sequence of mapping
        As `label_points` returns them.
    path : Path
        Written completely or not at all.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    models, losses = (list(dict.fromkeys(p[name] for p in points)) for name in ("model", "loss"))
    titles = {"RSUM": "RSUM", "ECCV": "ECCV mAP@R (%)"}
    shown = [name for name in FIGURES if all(np.isfinite(p[name]["mean"]) for p in points)]
    with mpl.rc_context(STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=(1.5 + 4.5 * len(models), 1 + 3.4 * len(shown)), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.subplots(len(shown), len(models), squeeze=False, sharex=True)
        for axes_of_figure, name in zip(grid, shown, strict=True):
            for axes, model in zip(axes_of_figure, models, strict=True):
                for number, loss in enumerate(losses):
                    chosen = [p for p in points if (p["model"], p["loss"]) == (model, loss)]
                    _series(axes, chosen, name, ("#0072B2", "#D55E00", "#009E73", "#CC79A7")[number % 4], loss)
                _name_labels(axes, {p["label"]: p["pearson"] or 0.0 for p in points})
                axes.set_ylabel(f"{titles[name]} of {model}")
        for axes in grid[-1]:
            axes.set_xlabel("agreement of the label: Pearson's r on non-GT pairs of CxC")
        handles, names = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper right", ncols=len(losses), frameon=False)
        write_atomic(path, partial(figure.savefig, format="png", dpi=150))


def _series(axes: Any, points: Sequence[Mapping[str, Any]], name: str, colour: str, loss: str) -> None:
    """Draw the labels of one loss."""
    for i, point in enumerate(points):
        known, value = point["pearson"] is not None, point[name]
        x = point["pearson"] or 0.0
        across = [[x - point["low"]], [point["high"] - x]] if known and point["low"] is not None else None
        up = [[value["mean"] - value["low"]], [value["high"] - value["mean"]]]
        face = colour if known else "white"
        style = {"fmt": "o", "color": colour, "markerfacecolor": face, "capsize": 2, "linewidth": 1}
        axes.errorbar(x, value["mean"], yerr=up, xerr=across, label=loss if i == 0 else None, **style)


def _name_labels(axes: Any, agreement: Mapping[str, float]) -> None:
    """Write the names of labels above a panel, each with a line to its place on the axis."""
    place = -1.0
    for label, x in sorted(agreement.items(), key=lambda item: item[1]):
        place = max(x, place + _NAME_WIDTH)
        axes.annotate(
            label,
            (x, 1),
            (place, 1.05),
            xycoords=("data", "axes fraction"),
            rotation=45,
            fontsize=8,
            arrowprops={"arrowstyle": "-", "linewidth": 0.5, "color": "grey"},
        )


def _interval(values: Sequence[float]) -> dict[str, float]:
    """Return mean and 95% interval of figures of several seeds; of one seed, the figure itself three times."""
    found: Difference = paired_difference(values, [0.0] * len(values))
    bounds = (found.low, found.high) if len(values) > 1 else (found.mean, found.mean)
    return {"mean": found.mean, "low": bounds[0], "high": bounds[1]}
