"""Tables, records and metrics of a judgement: what `relabel correlate` shows and writes."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from relabel.judge import tables
from relabel.judge.agreement import ALL, AgreementRow, Scored, correlate
from relabel.judge.human import METHODS, Task
from relabel.judge.published import PAPERS
from relabel.judge.rankings import Ranked, RankingRow, rank
from relabel.judge.statistics import Agreement
from relabel.judge.tables import Style, Table
from relabel.progress import SILENT, Progress

UNDEFINED = "undefined"
_TASKS: dict[Task, str] = {
    "sits": "caption and image (SITS)",
    "sts": "caption and caption (STS)",
    "sis": "image and image (SIS)",
}
_RULES: dict[Task, str] = {
    "sits": "An image stands for its first five captions, pooled as the label says.",
    "sts": "Captions alone, without their images' other captions; both orders averaged where a label is not symmetric.",
    "sis": "Every caption of one image against the first five of the other, pooled as the label says (mean for refs); "
    "both orders averaged where a label is not symmetric. All pairs are of two images (i2i_csim).",
}
_SELF = (
    "The judged caption itself is among the references of its own image, as in the papers. That lifts the figure over "
    "all pairs (CIDEr-D: 0.74, without it 0.43): read non-GT beside it."
)
_NO_SELF = "The judged caption is taken out of its own image's references; the papers keep it, so theirs are not shown."


@dataclass(frozen=True)
class Report:
    """Figures in every form.

    Attributes
    ----------
    tables : tuple of Table
        For people.
    records : tuple of dict
        For programs: one flat record a figure row, of numbers, strings and None; undefined is None.
    """

    tables: tuple[Table, ...]
    records: tuple[dict[str, Any], ...]

    def __add__(self, other: Report) -> Report:
        return Report(self.tables + other.tables, self.records + other.records)

    @property
    def data(self) -> dict[str, Any]:
        """Everything, for JSON."""
        notes = list(dict.fromkeys(note for table in self.tables for note in table.notes))
        return {"rows": list(self.records), "notes": notes}

    def render(self, style: Style = "text") -> str:
        """Render the tables (text, md, latex) or the records (csv)."""
        if style == "csv":
            return csv_text(self.records)
        if style == "text":
            return "\n\n".join(tables.text(table) for table in _each_note_once(self.tables))
        render = tables.markdown if style == "md" else tables.latex
        return "\n\n".join(render(table) for table in self.tables)


def cxc_report(labels: Sequence[Scored], resamples: int = 1000, seed: int = 0, progress: Progress = SILENT) -> Report:
    """Agreement of labels with CxC's human scores; see `correlate`."""
    rows = correlate(labels, resamples, seed, progress)
    interval = (
        f"In brackets: 95% interval of {resamples:,} bootstrap resamples of images, seed {seed}." if resamples else ""
    )
    include_self = all(scored.include_self for scored in labels)
    built = [
        _cxc_table(task, [r for r in rows if r.task == task], include_self, interval)
        for task in _TASKS
        if any(r.task == task for r in rows)
    ]
    return Report(tuple(built), tuple(_cxc_record(row, include_self) for row in rows))


def eccv_report(labels: Sequence[Ranked]) -> Report:
    """Labels as rankers on ECCV Caption; see `rank`."""
    rows = rank(labels)
    return Report((_eccv_table(rows),) if rows else (), tuple(_eccv_record(row) for row in rows))


def csv_text(records: Sequence[Mapping[str, Any]]) -> str:
    """Render records as CSV: one header of all their keys, empty where a record has none or None."""
    names = list(dict.fromkeys(name for record in records for name in record))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: "" if v is None else v for k, v in record.items()} for record in records)
    return out.getvalue().rstrip("\n")


def metrics(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Nest records as label, task, subset, figure, for `dvc metrics`: 4 decimals, undefined left out."""
    out: dict[str, Any] = {}
    for record in records:
        figures = {k: round(record[k], 4) for k in _METRICS if record.get(k) is not None}
        out.setdefault(record["label"], {}).setdefault(record["task"], {})[record["subset"]] = figures
    return out


_METRICS = ("n", "missing", "pearson", "low", "high", "spearman", "kendall", "map_at_r", "r_precision", "r_at_1")


def _each_note_once(given: Sequence[Table]) -> Iterator[Table]:
    seen: set[str] = set()
    for table in given:
        yield replace(table, notes=tuple(note for note in table.notes if note not in seen))
        seen.update(table.notes)


def _cxc_table(task: Task, rows: list[AgreementRow], include_self: bool, interval: str) -> Table:
    by = {(r.label, r.subset): r for r in rows}
    labels = list(dict.fromkeys(r.label for r in rows))
    methods = METHODS[task] if len(METHODS[task]) > 1 else ()
    papers = list(dict.fromkeys(r.published.paper for r in rows if r.published))
    header = ["label", "all", *(("GT", "non-GT") if methods else ()), *(("paper", "by") if papers else ())]
    lines = []
    for label in labels:
        found = [by[label, s] for s in (ALL, *methods)]
        line = [label, *(_pearson(r.figures) for r in found)]
        if papers:
            given = [r.published for r in found if r.own_image is not True]
            cells = [f"{p.value:.3f}" if p else "-" for p in given]
            names = dict.fromkeys(p.paper for p in given if p)
            line += [" / ".join(cells) if names else "", ", ".join(names)]
        lines.append(tuple(line))
    notes = [_RULES[task]]
    if task == "sits":
        notes[0] += f" {_SELF if include_self else _NO_SELF}"
    if methods:
        notes.append(f"GT: pairs of one image ({methods[0]}). non-GT: of two ({methods[1]}).")
    notes += [interval] if interval else []
    notes += _missing_notes(rows)
    notes += [f"paper: {'all / non-GT, ' if methods else ''}as printed. {name}: {PAPERS[name]}." for name in papers[:1]]
    notes += [f"{name}: {PAPERS[name]}." for name in papers[1:]]
    split, n = rows[0].split, max(by[label, ALL].figures.n + by[label, ALL].missing for label in labels)
    title = f"CxC {split}, {_TASKS[task]}: Pearson's r with human scores, {n:,} pairs"
    return Table(title, tuple(header), tuple(lines), tuple(notes))


def _missing_notes(rows: list[AgreementRow]) -> list[str]:
    notes: dict[str, list[str]] = {}
    for row in rows:
        if row.subset == ALL and row.missing:
            notes.setdefault(f"{row.missing:,} pairs left out: {'; '.join(row.why)}", []).append(row.label)
    return [
        f"{', '.join(labels)}: {note}{'; ...' if not note.endswith('...') else ''}" for note, labels in notes.items()
    ]


def _pearson(figures: Agreement) -> str:
    if figures.pearson is None:
        return UNDEFINED
    interval = figures.interval
    return f"{figures.pearson:.4f}" + (f" [{_short(interval.low)} {_short(interval.high)}]" if interval else "")


def _short(r: float) -> str:
    return f"{r:.3f}".replace("0.", ".", 1)


def _cxc_record(row: AgreementRow, include_self: bool) -> dict[str, Any]:
    figures, interval, paper = row.figures, row.figures.interval, row.published
    return {
        "label": row.label,
        "source": row.source,
        "task": row.task,
        "split": row.split,
        "subset": row.subset,
        "n": figures.n,
        "missing": row.missing,
        "pearson": figures.pearson,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "spearman": figures.spearman,
        "kendall": figures.kendall,
        "include_self": include_self if row.task == "sits" else None,
        "paper": paper.value if paper else None,
        "paper_label": paper.label if paper else None,
        "paper_source": PAPERS[paper.paper] if paper else None,
    }


def _eccv_table(rows: list[RankingRow]) -> Table:
    by = {(r.label, r.direction): r for r in rows}
    lines, gates = [], {}
    for label in dict.fromkeys(r.label for r in rows):
        both = by[label, "i2t"], by[label, "t2i"]
        if gate := both[0].gate:
            gates[label] = gate
        cells = [f"{v:.2f}" for r in both for v in (r.map_at_r, r.r_precision, r.r_at_1)]
        papers = [f"{r.published.map_at_r:.2f} / {r.published.r_precision:.2f}" if r.published else "" for r in both]
        lines.append((f"{label} *" if gate else label, *cells, *papers))
    header = ("label", "i2t mAP@R", "R-P", "R@1", "t2i mAP@R", "R-P", "R@1", "S-NDCG i2t", "S-NDCG t2i")
    ties = rows[0].ties
    rules = {
        "pessimistic": "Ties: the query's own image or captions first, then all that is not positive.",
        "row": "Ties: in the order of the corpus.",
    }
    count = {r.direction: r.n for r in rows}
    notes = [
        f"{count['i2t']:,} image queries rank 25,000 captions (i2t), {count['t2i']:,} caption queries rank 5,000 "
        f"images (t2i). {rules[ties]} R@1 says little here: a caption meets itself.",
        *(f"* {label}: re-ranks the best of {gate}; the rest in the gate's order." for label, gate in gates.items()),
        f"S-NDCG: mAP@R / R-P as printed. {PAPERS['S-NDCG']}.",
    ]
    return Table("ECCV Caption: labels as rankers, percent", header, tuple(lines), tuple(notes))


def _eccv_record(row: RankingRow) -> dict[str, Any]:
    paper = row.published
    return {
        "label": row.label,
        "source": row.source,
        "task": "eccv",
        "split": "test",
        "subset": row.direction,
        "n": row.n,
        "map_at_r": row.map_at_r,
        "r_precision": row.r_precision,
        "r_at_1": row.r_at_1,
        "ties": row.ties,
        "gate": row.gate,
        "paper": paper.map_at_r if paper else None,
        "paper_r_precision": paper.r_precision if paper else None,
        "paper_label": paper.label if paper else None,
        "paper_source": PAPERS[paper.paper] if paper else None,
    }
