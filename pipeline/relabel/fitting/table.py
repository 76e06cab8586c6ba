"""One table of all rows: means over seeds and their spread."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from relabel.fitting.params import FitTableParams
from relabel.judge.tables import Table

COLUMNS = ("RSUM", "nDCG", "CS@100", "Kendall tau", "NCS", "ECCV i2t", "ECCV t2i")
_DIGITS = dict(zip(COLUMNS, (1, 4, 3, 3, 1, 2, 2), strict=True))


def figures(result: Mapping[str, Any], params: FitTableParams) -> dict[str, float]:
    """Take the table's figures of one run; of two directions their mean, but ECCV.

    RSUM, nDCG, CS@100 and Kendall's tau-b are of the first test images (`graded`), nDCG with labels mapped to 0..1; NCS
    is the mean of @1, @5, @10 of both directions, own items left out, in percent; ECCV is mAP@R in percent, on all.
    """
    evaluation = result["evaluation"]
    judged = evaluation["graded"][params.judge]["figures"]
    ncs = evaluation["graded"][params.ncs]["figures"]["labels"]
    labels, eccv = judged["labels"], evaluation["retrieval"]["figures"].get("eccv")
    found = {
        "RSUM": judged["all"]["rsum_percent"]["both"],
        "nDCG": _both(labels["ndcg"]),
        "CS@100": _both(labels["cs100"]),
        "Kendall tau": _both(labels["kendall_tau_b"]),
        "NCS": ncs["nsum_without_gt_percent"]["both"] / 6,
        "ECCV i2t": eccv["map_at_r_percent"]["i2t"] if eccv else float("nan"),
        "ECCV t2i": eccv["map_at_r_percent"]["t2i"] if eccv else float("nan"),
    }
    return {name: float(value) for name, value in found.items()}


def summary(results: Mapping[str, Sequence[Mapping[str, Any]]], params: FitTableParams) -> dict[str, Any]:
    """Gather rows: each seed's figures, their mean and standard deviation (n - 1; null for one seed)."""
    rows = {}
    for name, runs in results.items():
        each = [figures(run, params) for run in runs]
        values = {column: np.array([one[column] for one in each]) for column in COLUMNS}
        rows[name] = {
            column: {
                "mean": _number(v.mean()),
                "sd": _number(v.std(ddof=1)) if len(v) > 1 else None,
                "seeds": [_number(x) for x in v],
            }
            for column, v in values.items()
        }
        seconds = [run["training"]["seconds"] for run in runs]
        rows[name]["seconds"] = {"mean": _number(np.mean(seconds)), "sd": None, "seeds": seconds}
    return rows


def to_csv(rows: Mapping[str, Any]) -> str:
    """Write one line a row: mean and sd of each column."""
    out = io.StringIO()
    names = [*COLUMNS, "seconds"]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["row", *(f"{name} {what}" for name in names for what in ("mean", "sd"))])
    for row, found in rows.items():
        writer.writerow([row, *(found[name][what] for name in names for what in ("mean", "sd"))])
    return out.getvalue()


def to_table(rows: Mapping[str, Any], params: FitTableParams, notes: Sequence[str]) -> Table:
    """Lay it out for people."""
    body = [(name, *(_cell(found[c], _DIGITS[c]) for c in COLUMNS)) for name, found in rows.items()]
    title = f"Losses and labels, {params.model} {params.embed}-d, {params.epochs} epochs, {len(params.seeds)} seeds"
    return Table(title, ("trained with", *COLUMNS), tuple(body), tuple(notes))


def _both(figure: Mapping[str, Any]) -> float:
    return float((figure["i2t"] + figure["t2i"]) / 2)


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _cell(found: Mapping[str, Any], digits: int) -> str:
    if found["mean"] is None:
        return ""
    spread = "" if found["sd"] is None else f" ± {found['sd']:.{digits}f}"
    return f"{found['mean']:.{digits}f}{spread}"
