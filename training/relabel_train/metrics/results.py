"""Settings and result of a retrieval report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from relabel_train.metrics.ranking import Ties


@dataclass(frozen=True)
class ReportSettings:
    """Depths, tie rule and optional parts of a report.

    Attributes
    ----------
    ties : "pessimistic" or "row"
        Among equal scores the less relevant item comes first, or the lower row or column.
    recall_ks, ncs_ks : tuple of int
        K of R@K and NCS, three each; RSUM and Nsum are their sums.
    cs_ks : tuple of int
        K of CS@K.
    ndcg_ks : tuple of int or None
        K of nDCG; None is the complete list.
    distance_ks : tuple of int
        K of the mean label distance.
    semantic_ms : tuple of int
        Captions (images) that Semantic Recall adds to the relevant ones; empty omits it.
    label_top : float
        Maximum of the label, 1 for cosines: label distance is `label_top` - r.
    label_low : float, optional
        Minimum of the label. If given, nDCG's labels are (r - low) / (top - low): -1 turns cosines into S-NDCG's (1 +
        cosine) / 2. By default it is 0 and nDCG's labels are r.
    kendall_tau : bool
        Kendall's tau over complete lists, the only figure that takes seconds on 5,000 x 25,000.
    tau_queries : int, optional
        Number of queries per direction for Kendall's tau, drawn with `seed`; all by default. Others count as skipped.
    seed : int
        Seed of the drawn queries.
    recall_only : tuple of str
        Sets of positives for which only R@K is computed, as in CxC's paper.
    one_caption : bool
        CS@K as Ladder computes it: gallery and queries hold only the first caption of each image.
    threads : int, optional
        All available cores by default; no figure depends on it.

    Raises
    ------
    ValueError
        If a setting is invalid. The message names the first one.

    Examples
    --------
    >>> ReportSettings(label_top=10.0, kendall_tau=False).recall_ks  # for labels of CIDEr-D, 0..10
    (1, 5, 10)
    >>> ReportSettings(cs_ks=(0,))
    Traceback (most recent call last):
    ValueError: cs_ks is (0,); whole numbers of 1 or more are needed
    """

    ties: Ties = "pessimistic"
    recall_ks: tuple[int, ...] = (1, 5, 10)
    ncs_ks: tuple[int, ...] = (1, 5, 10)
    cs_ks: tuple[int, ...] = (100,)
    ndcg_ks: tuple[int | None, ...] = (None,)
    distance_ks: tuple[int, ...] = (1, 10)
    semantic_ms: tuple[int, ...] = (1,)
    label_top: float = 1.0
    label_low: float | None = None
    kendall_tau: bool = True
    tau_queries: int | None = None
    seed: int = 0
    recall_only: tuple[str, ...] = ("cxc",)
    one_caption: bool = False
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.ties not in ("pessimistic", "row"):
            raise ValueError(f"ties is {self.ties!r}, not 'pessimistic' or 'row'")
        for name in ("recall_ks", "ncs_ks", "cs_ks", "ndcg_ks", "distance_ks", "semantic_ms"):
            values: tuple[int | None, ...] = getattr(self, name)
            depths = [k for k in values if not (k is None and name == "ndcg_ks")]
            if not all(isinstance(k, int) and k >= 1 for k in depths):
                raise ValueError(f"{name} is {values}; whole numbers of 1 or more are needed")
        for name in ("threads", "tau_queries"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise ValueError(f"{name} is {number}, not 1 or more")


@dataclass(frozen=True)
class Figure:
    """One metric under one protocol.

    Attributes
    ----------
    protocol : str
        `all`, `folds`, `labels`, `one_caption`, or the name of a set of positives (`eccv`, `cxc`).
    name : str
        Ends in `_percent` for values in 0..100. All other values are fractions, correlations, ranks counted from 1 or
        distances.
    i2t, t2i : float, optional
        Image queries over captions, caption queries over images.
    both : float, optional
        The value of both directions together, for RSUM and Nsum.
    queries : tuple of int
        Number of queries in the means, i2t and t2i.
    skipped : tuple of int
        Number of queries for which the metric is not defined.
    """

    protocol: str
    name: str
    i2t: float | None = None
    t2i: float | None = None
    both: float | None = None
    queries: tuple[int, int] = (0, 0)
    skipped: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class RetrievalReport:
    """Metrics by protocol, with both directions side by side.

    Attributes
    ----------
    images, captions : int
    ties : str
    figures : tuple of Figure

    Examples
    --------
    >>> import numpy as np
    >>> from relabel_train.metrics import retrieval_report
    >>> report = retrieval_report(np.eye(2), [0, 1], settings=ReportSettings(recall_ks=(1,)))
    >>> print(report.table())
    | protocol | metric | image to text | text to image | both | queries | left out |
    |---|---|---|---|---|---|---|
    | all | r1_percent | 100.00 | 100.00 |  | 2 / 2 |  |
    | all | rsum_percent |  |  | 200.00 | 2 / 2 |  |
    | all | median_rank | 1.00 | 1.00 |  | 2 / 2 |  |
    | all | mean_rank | 1.00 | 1.00 |  | 2 / 2 |  |
    | all | ir_recall1_percent | 100.00 | 100.00 |  | 2 / 2 |  |
    >>> report.to_json()["figures"]["all"]["rsum_percent"]["both"]
    200.0
    """

    images: int
    captions: int
    ties: str
    figures: tuple[Figure, ...] = ()

    def __iter__(self) -> Iterator[Figure]:
        return iter(self.figures)

    def __getitem__(self, name: str) -> Figure:
        """Return the figure `protocol.name`, as `all.r1_percent`; KeyError names the figures of the report."""
        for figure in self.figures:
            if f"{figure.protocol}.{figure.name}" == name:
                return figure
        names = ", ".join(f"{f.protocol}.{f.name}" for f in self.figures)
        raise KeyError(f"no figure {name!r}; there are {names}")

    def to_json(self) -> dict[str, Any]:
        """Return plain values: {"figures": {"all": {"r1_percent": {"i2t": ..., "t2i": ..., ...}}}, ...}."""
        figures: dict[str, dict[str, Any]] = {}
        for f in self.figures:
            values: dict[str, Any] = {"i2t": f.i2t, "t2i": f.t2i} if f.both is None else {"both": f.both}
            values |= {"queries": list(f.queries), "skipped": list(f.skipped)}
            figures.setdefault(f.protocol, {})[f.name] = values
        head = {"images": self.images, "captions": self.captions, "ties": self.ties}
        return head | {"figures": figures}

    def cells(self) -> list[tuple[str, ...]]:
        """Return the figures as text: a header, then one row each."""
        rows: list[tuple[str, ...]] = [
            ("protocol", "metric", "image to text", "text to image", "both", "queries", "left out")
        ]
        for f in self.figures:
            values = [_number(f, value) for value in (f.i2t, f.t2i, f.both)]
            skipped = "{:,} / {:,}".format(*f.skipped) if any(f.skipped) else ""
            rows.append((f.protocol, f.name, *values, "{:,} / {:,}".format(*f.queries), skipped))
        return rows

    def table(self) -> str:
        """Return the figures as a Markdown table, one row each."""
        header, *rows = (f"| {' | '.join(row)} |" for row in self.cells())
        return "\n".join([header, "|" + "---|" * 7, *rows])


def _number(figure: Figure, value: float | None) -> str:
    """Format a value: two decimals for percentages and ranks, four for other metrics."""
    if value is None:
        return ""
    return f"{value:.2f}" if figure.name.endswith(("_percent", "_rank")) else f"{value:.4f}"
