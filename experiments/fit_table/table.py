"""Means and standard deviations over seeds, as a table and as CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.params import FitTableParams
from relabel.core.tables import Table, csv_text

COLUMNS = ("RSUM", "nDCG", "CS@100", "Kendall tau", "NCS", "ECCV i2t", "ECCV t2i")
_DIGITS = dict(zip(COLUMNS, (1, 4, 3, 3, 1, 2, 2), strict=True))


def figures(result: Mapping[str, Any], params: FitTableParams) -> dict[str, float]:
    """Return the table's figures of one training, averaged over both directions except for ECCV.

    RSUM, nDCG, CS@100 and Kendall's tau-b are computed on the first `graded` test images, nDCG with labels mapped to
    0..1. NCS is the mean of @1, @5 and @10 over both directions without own items, in percent. ECCV is mAP@R on all
    test images, in percent.
    """
    evaluation = result["evaluation"]
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
        "ECCV i2t": eccv["map_at_r_percent"]["i2t"] if eccv else float("nan"),
        "ECCV t2i": eccv["map_at_r_percent"]["t2i"] if eccv else float("nan"),
    }
    return {name: float(value) for name, value in values.items()}


def summary(results: Mapping[str, Sequence[Mapping[str, Any]]], params: FitTableParams) -> dict[str, Any]:
    """Return the figures of each row: per seed, their mean and standard deviation (n - 1; None for one seed)."""
    rows = {}
    for name, runs in results.items():
        per_seed = [figures(run, params) for run in runs]
        values = {column: np.array([one[column] for one in per_seed]) for column in COLUMNS}
        rows[name] = {
            column: {
                "mean": _number(v.mean()),
                # ddof=1: the seeds are a sample of all possible seeds.
                "sd": _number(v.std(ddof=1)) if len(v) > 1 else None,
                "seeds": [_number(x) for x in v],
            }
            for column, v in values.items()
        }
        seconds = [run["training"]["seconds"] for run in runs]
        rows[name]["seconds"] = {"mean": _number(np.mean(seconds)), "sd": None, "seeds": seconds}
    return rows


def to_csv(rows: Mapping[str, Any]) -> str:
    """Return one line per row with the mean and the standard deviation of each column."""
    columns = [(name, figure) for name in (*COLUMNS, "seconds") for figure in ("mean", "sd")]
    records = [{"row": row, **{f"{n} {f}": values[n][f] for n, f in columns}} for row, values in rows.items()]
    return csv_text(records) + "\n"


def to_table(rows: Mapping[str, Any], params: FitTableParams, notes: Sequence[str]) -> Table:
    """Return the table with `mean ± sd` per cell."""
    body = [(name, *(_cell(columns[c], _DIGITS[c]) for c in COLUMNS)) for name, columns in rows.items()]
    title = f"Losses and labels, {params.model} {params.embed}-d, {params.epochs} epochs, {len(params.seeds)} seeds"
    return Table(title, ("trained with", *COLUMNS), tuple(body), tuple(notes))


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
