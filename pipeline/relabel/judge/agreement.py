"""From scored pairs to figures: one row a label, task and subset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from relabel.judge.cxc import SHOWN, read_cxc
from relabel.judge.human import METHODS, TASKS, Split, Task
from relabel.judge.published import Published, published_pearson
from relabel.judge.statistics import Agreement, agreement
from relabel.progress import SILENT, Progress

ALL = "all"
BASELINE = "same_image"
OWN = ("c2c_cocaption", "c2i_original")
"""Sampling methods whose pairs are of one image (GT)."""


@dataclass(frozen=True, eq=False)
class Scored:
    """A label's relevance for the judged pairs.

    Attributes
    ----------
    label : str
    params : mapping
        The source's parameters, `source` and `pooling` among them; they pick the paper's figure.
    split : "val" or "test"
    tables : dict of Task to pyarrow.Table
        As `relabel.judge.cxc.SCHEMA`.
    include_self : bool
        False takes no paper's figure: the papers keep the judged caption among its references.
    """

    label: str
    params: Mapping[str, Any]
    split: Split
    tables: dict[Task, pa.Table]
    include_self: bool = True

    @classmethod
    def open(cls, folder: Path, facts: Mapping[str, Any]) -> Scored:
        """Read what `score_cxc` wrote; `facts` are its manifest's, `label` and `params` among them.

        Raises
        ------
        MissingError
            If there are no scores.
        """
        return cls(
            facts["label"], facts["params"], facts["cxc"]["split"], read_cxc(folder), facts["cxc"]["include_self"]
        )

    @property
    def source(self) -> str:
        """The source's name."""
        return str(self.params["source"])

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
        """Say which pairs are of a subset: "all" or a sampling method."""
        return np.full(len(self.human), True) if name == ALL else np.asarray(self.method == name)


@dataclass(frozen=True)
class AgreementRow:
    """How one label agrees with human scores on one subset of one task.

    Attributes
    ----------
    subset : str
        "all" or a sampling method.
    missing : int
        Pairs of the subset that could not be scored; they are not among the n of `figures`.
    why : tuple of str
        The first few of them, with the reason.
    figures : Agreement
    published : Published or None
        What a paper reports for this label.
    """

    label: str
    source: str
    task: Task
    split: Split
    subset: str
    missing: int
    why: tuple[str, ...]
    figures: Agreement
    published: Published | None

    @property
    def own_image(self) -> bool | None:
        """True if all pairs are of one image (GT), False if of two, None if mixed."""
        return None if self.subset == ALL and self.task != "sis" else self.subset in OWN


def correlate(
    labels: Sequence[Scored], resamples: int = 1000, seed: int = 0, progress: Progress = SILENT
) -> list[AgreementRow]:
    """Make rows of all labels, ordered by task, subset, label; same_image is always among them.

    The bootstrap draws the same images for every label, so the intervals of two labels can be compared.

    Parameters
    ----------
    labels : sequence of Scored
        Of one split.
    resamples : int
        Of the 95% interval, clustered by image; 0 for none.
    seed : int
    progress : Progress
    """
    present = list(labels)
    if labels and all(scored.source != BASELINE for scored in labels):
        present.insert(0, baseline(labels[0]))
    jobs = [
        (task, subset, scored)
        for task in TASKS
        for subset in subsets(task)
        for scored in present
        if task in scored.tables
    ]
    rows = []
    with progress.task("correlate", len(jobs), "rows") as bar:
        for task, subset, scored in jobs:
            rows.append(_row(scored, task, subset, resamples, seed))
            bar.advance()
    return rows


def subsets(task: Task) -> tuple[str, ...]:
    """Name "all", then each sampling method where there is more than one."""
    return (ALL, *METHODS[task]) if len(METHODS[task]) > 1 else (ALL,)


def baseline(scored: Scored) -> Scored:
    """same_image from the sampling methods alone, for the pairs of another label: what every binary loss assumes."""
    tables = {task: _as_baseline(table) for task, table in scored.tables.items()}
    return Scored(BASELINE, {"source": BASELINE, "pooling": "max"}, scored.split, tables, scored.include_self)


def _as_baseline(table: pa.Table) -> pa.Table:
    own = np.isin(np.array(table["method"].to_pylist()), OWN).astype(np.float64)
    at = table.schema.get_field_index
    table = table.set_column(at("relevance"), "relevance", pa.array(own))
    return table.set_column(at("missing"), "missing", pa.nulls(len(table), pa.string()))


def _row(scored: Scored, task: Task, subset: str, resamples: int, seed: int) -> AgreementRow:
    columns = scored.columns[task]
    inside = columns.subset(subset)
    known = inside & ~np.isnan(columns.relevance)
    gone = np.flatnonzero(inside & ~known)
    cluster = columns.cluster[known]
    clustered = cluster if (cluster >= 0).all() else None
    paper = published_pearson(scored.params, task, subset, scored.split)
    return AgreementRow(
        scored.label,
        scored.source,
        task,
        scored.split,
        subset,
        len(gone),
        tuple(_named(scored.tables[task], gone[:SHOWN])),
        agreement(columns.relevance[known], columns.human[known], clustered, resamples, seed),
        paper if scored.include_self else None,
    )


def _named(table: pa.Table, index: Iterable[int]) -> Iterable[str]:
    for i in index:
        left, right, why = (table[name][int(i)].as_py() for name in ("left", "right", "missing"))
        yield f"{left} {right}: {why}"
