"""Does a label that agrees better with people train better? Agreement of each label, and figures of its trainings."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.fit_table.claims import figure_of, paired_difference
from experiments.params import FitTableParams
from relabel.stages import Session
from relabel.stages.correlate import correlate
from relabel.store.files import write_atomic

FIGURES = {"RSUM": "RSUM", "ECCV": "ECCV mAP@R (%)"}
"""Figures of the picture: RSUM, and the mean mAP@R of both directions on ECCV Caption."""
Rows = Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]
"""Records by model and row, one per seed."""


def label_agreement(session: Session, labels: Sequence[str]) -> dict[str, dict[str, float | None]]:
    """Return Pearson's r of labels with people on CxC's caption-image pairs of different images, with 95% intervals.

    Encodings and judgements that do not exist are built.

    Returns
    -------
    dict of label to `pearson`, `low` and `high`; None for a label that is constant on these pairs
    """
    records = correlate(session, labels, ["cxc"]).report.records
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
        for loss, label in itertools.product(budget.by_label, params.train_labels):
            own = params.rows[loss].label or params.train_labels[0]
            records = rows[model][loss if label == own else f"{loss}, {label}"]
            point: dict[str, Any] = {"model": model, "loss": loss, "label": label}
            point |= {name: agreement[label][name] for name in ("pearson", "low", "high")}
            for name in FIGURES:
                values = [figure_of(record["figures"], name) for record in records]
                point[name] = paired_difference(values, [0.0] * len(values))._asdict()
            points.append(point)
    return points


def draw_labels(points: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw the points as PNG: one row of panels per figure, one column per model, one colour per loss.

    Bars are 95% intervals. A label that is constant on the judged pairs, as `same_image`, has no agreement: its figure
    is a dashed line.
    """
    from matplotlib.figure import Figure

    models, losses = (list(dict.fromkeys(p[name] for p in points)) for name in ("model", "loss"))
    figure = Figure(figsize=(1.5 + 4.5 * len(models), 7.8), layout="constrained")
    grid = figure.subplots(len(FIGURES), len(models), squeeze=False, sharex=True)
    for (i, (name, title)), (j, model) in itertools.product(enumerate(FIGURES.items()), enumerate(models)):
        for loss in losses:
            some = [p for p in points if (p["model"], p["loss"]) == (model, loss) and p["pearson"] is not None]
            x, across = _bars(some, ("pearson", "low", "high"))
            y, up = _bars([p[name] for p in some], ("mean", "low", "high"))
            bars = grid[i, j].errorbar(x, y, up, across, fmt="o", label=loss, capsize=2, linewidth=1)
            for point in points:
                if (point["model"], point["loss"], point["pearson"]) == (model, loss, None):
                    grid[i, j].axhline(point[name]["mean"], color=bars[0].get_color(), linestyle="--", linewidth=1)
            for point, place in zip(some, zip(x, y, strict=True), strict=True):
                grid[i, j].annotate(point["label"], place, (4, 4), textcoords="offset points", fontsize=7)
        grid[i, j].set(ylabel=f"{title} of {model}", xlabel="agreement: Pearson's r on non-GT pairs of CxC")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper right", ncols=len(losses), frameon=False)
    write_atomic(path, partial(figure.savefig, format="png", dpi=150))


def _bars(values: Sequence[Mapping[str, Any]], names: Sequence[str]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return N values and the (2, N) lengths of their bars."""
    middle, low, high = np.array([[v[name] for v in values] for name in names])
    return middle, np.stack([middle - low, high - middle])
