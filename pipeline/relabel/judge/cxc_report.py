"""Agreement of labels with CxC's human scores: one row of figures per label, task and subset, and their tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from relabel.core.numeric.statistics import Agreement, Interval, agreement
from relabel.core.runtime import SILENT, Progress
from relabel.core.tables import Table
from relabel.datasets.cxc import METHODS, TASKS, Split, Task
from relabel.judge.cxc import SHOWN, read_cxc
from relabel.judge.notes import BASELINE, checkpoint_notes, missing_notes, model_notes, task_notes
from relabel.judge.published_results import PAPERS, PublishedPearson, published_pearson
from relabel.judge.rank_bootstrap import rank_intervals
from relabel.judge.report import UNDEFINED, JudgedLabel, Report, label_fields

ALL = "all"
OWN = ("c2c_cocaption", "c2i_original")
"""Sampling methods whose pairs are of one image (GT)."""
_TITLES: dict[Task, str] = {
    "sits": "caption and image (SITS)",
    "sts": "caption and caption (STS)",
    "sis": "image and image (SIS)",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class PairScores(JudgedLabel):
    """A label's relevance for the judged pairs.

    `tables`: as `relabel.judge.cxc.SCHEMA`.
    `include_self`: whether the judged caption is among its own image's references, as in the papers. If not, no figure
        of a paper applies.
    """

    split: Split
    tables: dict[Task, pa.Table]
    include_self: bool = True

    @classmethod
    def open(cls, folder: Path, facts: Mapping[str, Any]) -> PairScores:
        """Read the files that `score_cxc` wrote; `facts` are those of their manifest."""
        cxc = facts["cxc"]
        return cls(**label_fields(facts), split=cxc["split"], tables=read_cxc(folder), include_self=cxc["include_self"])

    @cached_property
    def columns(self) -> dict[Task, Columns]:
        """The tables as arrays."""
        return {task: Columns.of(table) for task, table in self.tables.items()}


@dataclass(frozen=True, eq=False)
class Columns:
    """One task's scored pairs as arrays of length P; NaN relevance and cluster -1 where a pair was not scored."""

    human: NDArray[np.float64]
    relevance: NDArray[np.float64]
    method: NDArray[np.str_]
    cluster: NDArray[np.int32]

    @classmethod
    def of(cls, table: pa.Table) -> Columns:
        """Read a score table."""
        relevance = pc.fill_null(table["relevance"], float("nan")).to_numpy()
        cluster = pc.fill_null(table["cluster"], -1).to_numpy()
        return cls(table["human"].to_numpy(), relevance, np.array(table["method"].to_pylist()), cluster)

    def subset(self, name: str) -> NDArray[np.bool_]:
        """Return the mask of a subset's pairs: "all" or a sampling method."""
        return np.full(len(self.human), True) if name == ALL else np.asarray(self.method == name)


@dataclass(frozen=True)
class AgreementRow:
    """Agreement of one label with human scores on one subset of one task.

    `subset`: "all" or a sampling method.
    `missing`: pairs of the subset that could not be scored; they are not among the n of `figures`.
    `first_missing`: the first few of them, with the reason.
    `published`: the figure of a paper for this label under the paper's protocol, in which no pair is missing.
    `spearman_interval`, `kendall_interval`: 95% bootstrap intervals, over the resamples of Pearson's, which is in
        `figures`.
    """

    label: str
    source: str
    task: Task
    split: Split
    subset: str
    missing: int
    first_missing: tuple[str, ...]
    figures: Agreement
    published: PublishedPearson | None
    spearman_interval: Interval | None = None
    kendall_interval: Interval | None = None

    @property
    def own_image(self) -> bool | None:
        """True if all pairs are of one image (GT), False if of two, None if mixed."""
        # SIS has one sampling method, so all of its pairs are of two images.
        return None if self.subset == ALL and self.task != "sis" else self.subset in OWN


def correlate(
    labels: Sequence[PairScores],
    resamples: int = 1000,
    seed: int = 0,
    progress: Progress = SILENT,
    threads: int = 1,
) -> list[AgreementRow]:
    """Correlate labels with human scores; rows are ordered by task, subset, label, and same_image is always there.

    The bootstrap draws the same images for every label, so the intervals of two labels can be compared.

    `labels`: of one split. `resamples`: bootstrap resamples of the 95% interval, clustered by image; 0 for no interval.
    `threads`: CPU threads of the intervals of rank correlations.
    """
    # The baseline shows how much of a correlation comes from the difference between GT and non-GT pairs alone.
    present = with_baseline(labels)
    jobs = [
        (task, subset, scored)
        for task in TASKS
        for subset in subsets(task)
        for scored in present
        if task in scored.tables
    ]
    rows = []
    with progress.bar("correlate", len(jobs), "rows") as bar:
        for task, subset, scored in jobs:
            rows.append(_row(scored, task, subset, resamples, seed, threads))
            bar.advance()
    return rows


def subsets(task: Task) -> tuple[str, ...]:
    """Return "all", then each sampling method if there is more than one."""
    return (ALL, *METHODS[task]) if len(METHODS[task]) > 1 else (ALL,)


def with_baseline(labels: Sequence[PairScores]) -> list[PairScores]:
    """Put same_image before labels that lack it."""
    present = list(labels)
    if labels and all(scored.source != BASELINE for scored in labels):
        present.insert(0, baseline(labels[0]))
    return present


def baseline(scored: PairScores) -> PairScores:
    """Return the scores of same_image for the pairs of another label, from the sampling methods alone."""
    tables = {task: _as_baseline(table) for task, table in scored.tables.items()}
    params = {"source": BASELINE, "pooling": "max"}
    return PairScores(
        label=BASELINE, params=params, split=scored.split, tables=tables, include_self=scored.include_self
    )


def _as_baseline(table: pa.Table) -> pa.Table:
    # The sampling method says if both items are of one image, so no image ids are needed.
    same_image = np.isin(np.array(table["method"].to_pylist()), OWN).astype(np.float64)
    at = table.schema.get_field_index
    table = table.set_column(at("relevance"), "relevance", pa.array(same_image))
    return table.set_column(at("missing"), "missing", pa.nulls(len(table), pa.string()))


def _row(scored: PairScores, task: Task, subset: str, resamples: int, seed: int, threads: int) -> AgreementRow:
    columns = scored.columns[task]
    in_subset = columns.subset(subset)
    scored_pairs = in_subset & ~np.isnan(columns.relevance)
    missing = np.flatnonzero(in_subset & ~scored_pairs)
    cluster = columns.cluster[scored_pairs]
    # A pair without an image of the corpus has no cluster, and a bootstrap without it would be of other pairs.
    clustered = cluster if (cluster >= 0).all() else None
    x, y = columns.relevance[scored_pairs], columns.human[scored_pairs]
    drawn = resamples if clustered is not None else 0
    ranks = rank_intervals(x, y, cluster, drawn, seed, threads)
    paper = published_pearson(scored.params, task, subset, scored.split, own_model=scored.own_model)
    return AgreementRow(
        scored.label,
        scored.source,
        task,
        scored.split,
        subset,
        len(missing),
        tuple(_named(scored.tables[task], missing[:SHOWN])),
        agreement(x, y, clustered, resamples, seed),
        # The papers score every pair, with the judged caption among the references. Their figures apply to no other
        # protocol.
        paper if scored.include_self and not len(missing) else None,
        ranks.spearman,
        ranks.tau_b,
    )


def _named(table: pa.Table, index: Iterable[int]) -> Iterable[str]:
    for i in index:
        left, right, reason = (table[name][int(i)].as_py() for name in ("left", "right", "missing"))
        yield f"{left} {right}: {reason}"


def cxc_report(
    labels: Sequence[PairScores],
    resamples: int = 1000,
    seed: int = 0,
    progress: Progress = SILENT,
    threads: int = 1,
) -> Report:
    """Report the agreement of labels with CxC's human scores; parameters as for `correlate`."""
    rows = correlate(labels, resamples, seed, progress, threads)
    interval = (
        f"In brackets: 95% interval of {resamples:,} bootstrap resamples of images, seed {seed}." if resamples else ""
    )
    include_self = all(scored.include_self for scored in labels)
    tables = [
        _table(task, labels, [r for r in rows if r.task == task], include_self, interval)
        for task in _TITLES
        if any(r.task == task for r in rows)
    ]
    # Models do not depend on the task, so one note below the first table names them.
    if tables:
        tables[0] = replace(tables[0], notes=(*tables[0].notes, *model_notes(labels)))
    uses = {scored.label: scored.uses for scored in labels}
    records = (_record(row, include_self) | {"uses": uses.get(row.label)} for row in rows)
    return Report(tuple(tables), tuple(records))


def _table(
    task: Task, labels: Sequence[PairScores], rows: list[AgreementRow], include_self: bool, interval: str
) -> Table:
    row_of = {(r.label, r.subset): r for r in rows}
    names = {scored.label: scored.display_name for scored in labels}
    methods = METHODS[task] if len(METHODS[task]) > 1 else ()
    papers = list(dict.fromkeys(r.published.paper for r in rows if r.published))
    header = ["label", "all", *(("GT", "non-GT") if methods else ()), *(("paper", "by") if papers else ())]
    lines = []
    for label in dict.fromkeys(r.label for r in rows):
        subset_rows = [row_of[label, s] for s in (ALL, *methods)]
        line = [names.get(label, label), *(_pearson(r.figures) for r in subset_rows)]
        if papers:
            # No paper reports the GT pairs by themselves.
            published = [r.published for r in subset_rows if r.own_image is not True]
            cells = [f"{p.value:.3f}" if p else "-" for p in published]
            cited = dict.fromkeys(p.paper for p in published if p)
            line += [" / ".join(cells) if cited else "", ", ".join(cited)]
        lines.append(tuple(line))
    notes = task_notes(task, labels, include_self)
    if methods:
        notes.append(f"GT: pairs of one image ({methods[0]}). non-GT: of two ({methods[1]}).")
    else:
        notes.append(f"All pairs are of two images ({METHODS[task][0]}).")
    notes += [interval] if interval else []
    notes += missing_notes((r.label, r.missing, r.first_missing) for r in rows if r.subset == ALL)
    # The first citation explains the column; the others need their names alone.
    notes += [f"paper: {'all / non-GT, ' if methods else ''}as printed. {name}: {PAPERS[name]}." for name in papers[:1]]
    notes += [f"{name}: {PAPERS[name]}." for name in papers[1:]]
    notes += checkpoint_notes((r.label, r.published) for r in rows)
    split, n = rows[0].split, max(r.figures.n + r.missing for r in rows if r.subset == ALL)
    title = f"CxC {split}, {_TITLES[task]}: Pearson's r with human scores, {n:,} pairs"
    return Table(title, tuple(header), tuple(lines), tuple(notes))


def _pearson(figures: Agreement) -> str:
    if figures.pearson is None:
        return UNDEFINED
    interval = figures.interval
    return f"{figures.pearson:.4f}" + (f" [{_short(interval.low)} {_short(interval.high)}]" if interval else "")


def _short(r: float) -> str:
    # `.738` rather than `0.738`: both ends of an interval stand beside their figure in one cell.
    return f"{r:.3f}".replace("0.", ".", 1)


def _record(row: AgreementRow, include_self: bool) -> dict[str, Any]:
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
        **_ends("spearman", row.spearman_interval),
        "kendall": figures.kendall,
        **_ends("kendall", row.kendall_interval),
        "include_self": include_self if row.task == "sits" else None,
        "paper": paper.value if paper else None,
        "paper_label": paper.label if paper else None,
        "paper_source": PAPERS[paper.paper] if paper else None,
    }


def _ends(name: str, interval: Interval | None) -> dict[str, float | None]:
    return {f"{name}_low": interval.low if interval else None, f"{name}_high": interval.high if interval else None}
