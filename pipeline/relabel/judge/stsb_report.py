"""The STS-B table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relabel.judge.report import UNDEFINED, Report
from relabel.judge.stsb import SPLITS, StsbScore
from relabel.judge.tables import Table

_NOTE = (
    "Each sentence stands for an image of its own; both orders averaged where a label is not symmetric. Cer et al., "
    "SemEval-2017 Task 1."
)


def stsb_report(scores: Mapping[str, Sequence[StsbScore]]) -> Report:
    """Agreement of labels with STS-B's human scores, a list of splits each."""
    rows = []
    records = []
    for label, found in scores.items():
        by = {score.split: score for score in found}
        cells = [_cell(value) for split in SPLITS for value in (by[split].pearson, by[split].spearman)]
        rows.append((label, *cells))
        for score in found:
            figures = {"n": score.n, "pearson": score.pearson, "spearman": score.spearman}
            records.append({"label": label, "task": "stsb", "split": score.split, "subset": score.split, **figures})
    counts = ", ".join(f"{s.n:,} {s.split} pairs" for s in next(iter(scores.values()), ()))
    header = ("label", *(f"{split} {name}" for split in SPLITS for name in ("Pearson", "Spearman")))
    table = Table(f"STS-B: correlation with human scores, {counts}", header, tuple(rows), (_NOTE,))
    return Report((table,), tuple(records))


def _cell(value: float | None) -> str:
    return UNDEFINED if value is None else f"{value:.3f}"
