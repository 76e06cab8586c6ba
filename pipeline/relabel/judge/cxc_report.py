"""Agreement of labels with CxC's human scores: one record per label, task and subset, and their tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from relabel.core.numeric.statistics import round_relative
from relabel.core.runtime import SILENT, Progress
from relabel.core.tables import Table
from relabel.datasets.cxc import METHODS, TASKS, Split, Task
from relabel.datasets.judged import Statistic
from relabel.judge.cxc import SHOWN, read_cxc
from relabel.judge.judged_figures import estimate
from relabel.judge.notes import BASELINE, checkpoint_notes, missing_notes, model_notes, task_notes
from relabel.judge.published_results import PAPERS, Published, published
from relabel.judge.report import UNDEFINED, JudgedLabel, Report, label_fields

FIGURES = "figures.json"
"""File of an artefact of figures."""
ALL = "all"
OWN = ("c2c_cocaption", "c2i_original")
"""Sampling methods whose pairs are of one image (GT)."""
_NAMES: dict[Statistic, tuple[str, str]] = {
    "pearson": ("pearson", ""),
    "spearman": ("spearman", "spearman_"),
    "tau_b": ("kendall", "kendall_"),
}
"""Statistic to the name of its figure in records, and what the names of the ends of its interval begin with."""
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


@dataclass(frozen=True, eq=False, kw_only=True)
class CxcFigures(JudgedLabel):
    """A label's agreement with human scores.

    `include_self`: as in `PairScores`.
    `agreement`: as `agreement` returns it.
    `sampled`: as `relabel.judge.cxc_sampled.sampled_agreement` returns it.
    `calibration`: as `relabel.judge.calibration.calibration_points` returns it.
    """

    split: Split
    include_self: bool
    agreement: Sequence[dict[str, Any]]
    sampled: Sequence[dict[str, Any]]
    calibration: Sequence[dict[str, Any]]

    @classmethod
    def open(cls, folder: Path, facts: Mapping[str, Any]) -> CxcFigures:
        """Read an artefact of figures; `facts` are those of its manifest."""
        fields = {name: facts[name] for name in ("split", "include_self")}
        return cls(**label_fields(facts), **fields, **json.loads((folder / FIGURES).read_text(encoding="utf-8")))


def agreement(
    scored: PairScores, resamples: int = 1000, seed: int = 0, progress: Progress = SILENT, threads: int = 1
) -> list[dict[str, Any]]:
    """Correlate a label's relevance with human scores: one record per task and subset.

    A subset is "all" or a sampling method. `missing` counts the pairs of the subset that could not be scored, which
    are not among its `n`; `first_missing` names a few of them with the reason. The bootstrap draws the same images for
    every label, so that intervals of two labels can be compared.

    `resamples`: bootstrap resamples of the 95% intervals, clustered by image; 0 for no interval. `threads`: CPU threads
    of the intervals of rank correlations.
    """
    records = []
    jobs = [(task, subset) for task in TASKS if task in scored.tables for subset in subsets(task)]
    with progress.bar(f"correlate {scored.label}", len(jobs), "rows") as bar:
        for task, subset in jobs:
            records.append(_agreement(scored, task, subset, resamples, seed, threads))
            bar.advance()
    return records


def _agreement(scored: PairScores, task: Task, subset: str, resamples: int, seed: int, threads: int) -> dict[str, Any]:
    columns = scored.columns[task]
    in_subset = columns.subset(subset)
    scored_pairs = in_subset & ~np.isnan(columns.relevance)
    missing = np.flatnonzero(in_subset & ~scored_pairs)
    cluster = columns.cluster[scored_pairs]
    # A pair without an image of the corpus has no cluster, and a bootstrap without it would be of other pairs.
    if not (cluster >= 0).all():
        resamples = 0
    x, y = round_relative(columns.relevance[scored_pairs]), columns.human[scored_pairs]
    record = {
        "task": task,
        "subset": subset,
        "n": len(x),
        "missing": len(missing),
        "first_missing": list(_named(scored.tables[task], missing[:SHOWN])),
    }
    for name, found in estimate(tuple(_NAMES), x, y, cluster, resamples, seed, threads).items():
        figure, prefix = _NAMES[name]
        ends = found.interval
        record |= {figure: found.value, f"{prefix}low": ends and ends.low, f"{prefix}high": ends and ends.high}
    return record


def subsets(task: Task) -> tuple[str, ...]:
    """Return "all", then each sampling method if there is more than one."""
    return (ALL, *METHODS[task]) if len(METHODS[task]) > 1 else (ALL,)


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


def _named(table: pa.Table, index: Iterable[int]) -> Iterable[str]:
    for i in index:
        left, right, reason = (table[name][int(i)].as_py() for name in ("left", "right", "missing"))
        yield f"{left} {right}: {reason}"


class _Row(NamedTuple):
    """Figures of one label on one subset of one task, beside the figure of a paper under the paper's protocol."""

    scored: CxcFigures
    figures: dict[str, Any]
    published: Published | None


def cxc_report(labels: Sequence[CxcFigures], resamples: int = 1000, seed: int = 0) -> Report:
    """Report the agreement of labels with CxC's human scores, by task, subset and label.

    `labels`: of one split. `resamples`, `seed`: of the intervals, for the notes.
    """
    interval = (
        f"In brackets: 95% interval of {resamples:,} bootstrap resamples of images, seed {seed}." if resamples else ""
    )
    include_self = all(scored.include_self for scored in labels)
    rows = {task: [row for subset in subsets(task) for row in _rows(labels, task, subset)] for task in TASKS}
    tables = [_table(task, labels, rows[task], include_self, interval) for task in _TITLES if rows[task]]
    # Models do not depend on the task, so one note below the first table names them.
    if tables:
        tables[0] = replace(tables[0], notes=(*tables[0].notes, *model_notes(labels)))
    return Report(tuple(tables), tuple(_record(row, include_self) for task in TASKS for row in rows[task]))


def _rows(labels: Sequence[CxcFigures], task: Task, subset: str) -> Iterator[_Row]:
    for scored in labels:
        for figures in scored.agreement:
            if (figures["task"], figures["subset"]) == (task, subset):
                # The papers score every pair, with the judged caption among the references. Their figures apply to no
                # other protocol.
                as_in_papers = scored.include_self and not figures["missing"]
                paper = published(scored.params, task, subset, scored.split, own_model=scored.own_model)
                yield _Row(scored, figures, paper if as_in_papers else None)


def _table(task: Task, labels: Sequence[CxcFigures], rows: list[_Row], include_self: bool, interval: str) -> Table:
    row_of = {(row.scored.label, row.figures["subset"]): row for row in rows}
    methods = METHODS[task] if len(METHODS[task]) > 1 else ()
    papers = list(dict.fromkeys(row.published.paper for row in rows if row.published))
    header = ["label", "all", *(("GT", "non-GT") if methods else ()), *(("paper", "by") if papers else ())]
    lines = []
    for scored in dict.fromkeys(row.scored for row in rows):
        of_label = [row_of[scored.label, subset] for subset in (ALL, *methods)]
        line = [scored.display_name, *(_pearson(row.figures) for row in of_label)]
        if papers:
            # No paper reports the GT pairs by themselves.
            published = [row.published for row in of_label if row.figures["subset"] not in OWN]
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
    of_all = [(row.scored.label, row.figures) for row in rows if row.figures["subset"] == ALL]
    notes += missing_notes((label, figures["missing"], figures["first_missing"]) for label, figures in of_all)
    # The first citation explains the column; the others need their names alone.
    notes += [f"paper: {'all / non-GT, ' if methods else ''}as printed. {name}: {PAPERS[name]}." for name in papers[:1]]
    notes += [f"{name}: {PAPERS[name]}." for name in papers[1:]]
    notes += checkpoint_notes((row.scored.label, row.published) for row in rows)
    n = max(figures["n"] + figures["missing"] for _, figures in of_all)
    title = f"CxC {rows[0].scored.split}, {_TITLES[task]}: Pearson's r with human scores, {n:,} pairs"
    return Table(title, tuple(header), tuple(lines), tuple(notes))


def _pearson(figures: Mapping[str, Any]) -> str:
    if figures["pearson"] is None:
        return UNDEFINED
    interval = "" if figures["low"] is None else f" [{_short(figures['low'])} {_short(figures['high'])}]"
    return f"{figures['pearson']:.4f}{interval}"


def _short(r: float) -> str:
    # `.738` rather than `0.738`: both ends of an interval stand beside their figure in one cell.
    return f"{r:.3f}".replace("0.", ".", 1)


def _record(row: _Row, include_self: bool) -> dict[str, Any]:
    scored, figures, paper = row.scored, {**row.figures}, row.published
    del figures["first_missing"]
    return {
        "label": scored.label,
        "source": scored.source,
        "task": figures["task"],
        "split": scored.split,
        **figures,
        "include_self": include_self if figures["task"] == "sits" else None,
        "paper": paper.value if paper else None,
        "paper_label": paper.label if paper else None,
        "paper_source": PAPERS[paper.paper] if paper else None,
        "uses": scored.uses,
    }
