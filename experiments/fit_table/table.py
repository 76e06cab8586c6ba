"""Means and standard deviations over seeds, as a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.params import FitTableParams
from relabel.core.tables import Table

OF_LABELS = {"nDCG": 4, "CS@100": 3, "Kendall tau": 3, "NCS": 1}
"""Figures that a label judges, and their digits."""


def columns(params: FitTableParams) -> dict[str, int]:
    """Return the figures of the table, and their digits."""
    judged = {f"{name} ({judge})": digits for judge in params.judges for name, digits in OF_LABELS.items()}
    return {"RSUM": 1, **judged, "ECCV i2t": 2, "ECCV t2i": 2}


def figures(evaluation: Mapping[str, Any], params: FitTableParams) -> dict[str, float | None]:
    """Return the table's figures of one training, averaged over both directions except for ECCV.

    RSUM, nDCG, CS@100 and Kendall's tau-b are computed on the first `graded` test images, nDCG with labels mapped to
    0..1. NCS is the mean of @1, @5 and @10 over both directions without own items, in percent. ECCV is mAP@R on all
    test images, in percent. A figure that is undefined is None.

    Parameters
    ----------
    evaluation : mapping
        `Evaluation.to_json`.
    params : FitTableParams
    """
    judged = {judge: evaluation["graded"][judge]["figures"] for judge in params.judges}
    names = {"nDCG": "ndcg", "CS@100": "cs100", "Kendall tau": "kendall_tau_b"}
    values = {"RSUM": judged[params.judges[0]]["all"]["rsum_percent"]["both"]}
    for judge, report in judged.items():
        for name, key in names.items():
            values[f"{name} ({judge})"] = np.mean([report["labels"][key][side] for side in ("i2t", "t2i")])
        # The sum over three cut-offs and two directions becomes a mean.
        values[f"NCS ({judge})"] = report["labels"]["nsum_without_gt_percent"]["both"] / 6
    eccv = evaluation["retrieval"]["figures"].get("eccv")
    values |= {f"ECCV {side}": eccv["map_at_r_percent"][side] if eccv else math.nan for side in ("i2t", "t2i")}
    return {name: _number(value) for name, value in values.items()}


def summary(results: Mapping[str, Sequence[Mapping[str, Any]]], params: FitTableParams) -> dict[str, Any]:
    """Return the setting and the figures of each row: per seed, their mean and standard deviation (n - 1).

    The deviation of one seed is None, and so are figures that are undefined with any seed.

    Parameters
    ----------
    results : mapping of row to its records, one per seed
    """
    return {
        name: {
            c: _spread([record["figures"][c] for record in records])
            for c in columns(params)
            if c in records[0]["figures"]
        }
        | {"lr": records[0]["lr"], "value": records[0]["value"]}
        for name, records in results.items()
    }


def to_table(rows: Mapping[str, Mapping[str, Any]], params: FitTableParams, notes: Sequence[str]) -> list[Table]:
    """Return one table per model with `mean ± sd` per cell, * if the row is trained with the label that judges it.

    The notes stand below the last table.
    """
    tables = []
    for model, of_model in rows.items():
        known = {c: digits for c, digits in columns(params).items() if any(c in row for row in of_model.values())}
        taught = {name: f"({row.teacher(params.train_labels[0])})" for name, row in params.rows_of(model).items()}
        lines = [
            (
                name,
                _setting(row),
                *(_cell(row[c], digits) + "*" * c.endswith(taught[name]) for c, digits in known.items()),
            )
            for name, row in of_model.items()
        ]
        average = params.models[model].average
        budget = params.models[average[0] if average else model]
        name = f"{model} (mean scores of {' and '.join(average)})" if average else model
        title = f"Losses and labels, {name} {budget.embed_dim}-d, at most {budget.epochs or params.epochs} epochs, "
        below = tuple(notes) if model == list(rows)[-1] else ()
        header = ("trained with", "lr, main", *known)
        tables.append(Table(f"{title}{len(params.seeds)} seeds", header, tuple(lines), below))
    return tables


def _spread(values: Sequence[float | None]) -> dict[str, Any]:
    """Return the values per seed, their mean and standard deviation."""
    known = [math.nan if value is None else value for value in values]
    # ddof=1: the seeds are a sample of all possible seeds.
    sd = _number(np.std(known, ddof=1)) if len(known) > 1 else None
    return {"mean": _number(np.mean(known)), "sd": sd, "seeds": list(values)}


def _number(value: Any) -> float | None:
    """Return a number that JSON can hold; None for NaN and infinity."""
    return float(value) if np.isfinite(value) else None


def _setting(row: Mapping[str, Any]) -> str:
    """Return the setting of a row, which an average of models with settings of their own lacks."""
    return ", ".join(f"{row[name]:g}" for name in ("lr", "value") if row[name] is not None)


def _cell(column: Mapping[str, Any], digits: int) -> str:
    numbers = [column[name] for name in ("mean", "sd") if column[name] is not None]
    return " ± ".join(f"{number:.{digits}f}" for number in numbers)
