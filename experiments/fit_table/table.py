"""Means and standard deviations over seeds, as a table and as CSV."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.params import FitTableParams
from relabel.core.tables import Table, csv_text

COLUMNS = ("RSUM", "nDCG", "CS@100", "Kendall tau", "NCS", "ECCV i2t", "ECCV t2i")
_DIGITS = dict(zip(COLUMNS, (1, 4, 3, 3, 1, 2, 2), strict=True))


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
    judged = evaluation["graded"][params.judge]["figures"]
    ncs = evaluation["graded"][params.ncs]["figures"]["labels"]
    labels, eccv = judged["labels"], evaluation["retrieval"]["figures"].get("eccv")
    # The sums over three cut-offs and two directions become a mean.
    values = {
        "RSUM": judged["all"]["rsum_percent"]["both"],
        "nDCG": _both(labels["ndcg"]),
        "CS@100": _both(labels["cs100"]),
        "Kendall tau": _both(labels["kendall_tau_b"]),
        "NCS": ncs["nsum_without_gt_percent"]["both"] / 6,
        "ECCV i2t": eccv["map_at_r_percent"]["i2t"] if eccv else math.nan,
        "ECCV t2i": eccv["map_at_r_percent"]["t2i"] if eccv else math.nan,
    }
    return {name: _number(value) for name, value in values.items()}


def summary(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Return the setting and the figures of each row: per seed, their mean and standard deviation (n - 1).

    The deviation of one seed is None, and so are figures that are undefined with any seed.

    Parameters
    ----------
    results : mapping of row to its records, one per seed
    """
    rows: dict[str, Any] = {}
    for name, records in results.items():
        per_seed = {column: [record["figures"][column] for record in records] for column in COLUMNS}
        per_seed["steps"] = [record["steps"] for record in records]
        per_seed["seconds"] = [record["seconds"] for record in records]
        rows[name] = {column: _spread(values) for column, values in per_seed.items()}
        rows[name] |= {"lr": records[0]["lr"], "value": records[0]["value"]}
    return rows


def to_csv(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Return one line per model and row with the setting, and the mean and the standard deviation of each column."""
    columns = [(name, figure) for name in (*COLUMNS, "steps", "seconds") for figure in ("mean", "sd")]
    records = [
        {"model": model, "row": row, "lr": values["lr"], "value": values["value"]}
        | {f"{n} {f}": values[n][f] for n, f in columns}
        for model, of_model in rows.items()
        for row, values in of_model.items()
    ]
    return csv_text(records) + "\n"


def to_table(rows: Mapping[str, Mapping[str, Any]], params: FitTableParams, notes: Sequence[str]) -> list[Table]:
    """Return one table per model with `mean ± sd` per cell; the notes stand below the last one."""
    tables = []
    for model, of_model in rows.items():
        body = [
            (name, _setting(columns), *(_cell(columns[c], _DIGITS[c]) for c in COLUMNS))
            for name, columns in of_model.items()
        ]
        average = params.models[model].average
        budget = params.models[average[0] if average else model]
        seeds, epochs = len(params.models[model].seeds or params.seeds), budget.epochs or params.epochs
        name = f"{model} (mean scores of {' and '.join(average)})" if average else model
        title = f"Losses and labels, {name} {budget.embed}-d, at most {epochs} epochs, {seeds} seeds"
        header = ("trained with", "lr, main", *COLUMNS)
        tables.append(Table(title, header, tuple(body), tuple(notes) if model == list(rows)[-1] else ()))
    return tables


def _spread(values: Sequence[float | None]) -> dict[str, Any]:
    """Return the values per seed, their mean and standard deviation."""
    known = [math.nan if value is None else value for value in values]
    # ddof=1: the seeds are a sample of all possible seeds.
    sd = _number(np.std(known, ddof=1)) if len(known) > 1 else None
    return {"mean": _number(np.mean(known)), "sd": sd, "seeds": list(values)}


def _setting(columns: Mapping[str, Any]) -> str:
    if columns["lr"] is None:
        return ""  # an average of models with settings of their own
    return f"{columns['lr']:g}" + ("" if columns["value"] is None else f", {columns['value']:g}")


def _both(figure: Mapping[str, Any]) -> float:
    """Return the mean of both directions."""
    return float((figure["i2t"] + figure["t2i"]) / 2)


def _number(value: Any) -> float | None:
    """Return a number that JSON can hold; None for NaN and infinity."""
    return float(value) if np.isfinite(value) else None


def _cell(column: Mapping[str, Any], digits: int) -> str:
    if column["mean"] is None:
        return ""
    spread = "" if column["sd"] is None else f" ± {column['sd']:.{digits}f}"
    return f"{column['mean']:.{digits}f}{spread}"
