"""Agreement of labels with human-judged sets of texts, and the table that compares labels over all sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.core.errors import CheckError
from relabel.core.numeric.statistics import (
    Interval,
    Vector,
    bootstrap,
    cluster_counts,
    kendall,
    pearson,
    round_relative,
    spearman,
)
from relabel.core.runtime import Runtime
from relabel.core.tables import Table
from relabel.datasets.judged import JudgedSet, Judgements, Statistic
from relabel.judge.rank_bootstrap import rank_intervals
from relabel.judge.report import UNDEFINED, Report
from relabel.sources.base import Source
from relabel.sources.texts import TextScores, score_both_orders, score_texts

TITLES: dict[str, str] = {"pearson": "Pearson", "spearman": "Spearman", "tau_b": "tau-b", "tau_c": "tau-c"}
ALL = "all"
MEAN = "mean"
"""Name of the mean accuracy over kinds."""
ScoreFunction = Callable[[list[list[str]], list[str]], Any]
"""Takes P reference sets and P candidates, and returns P scores."""


@dataclass(frozen=True)
class Figure:
    """One figure of a label on a set.

    Attributes
    ----------
    statistic : str
        A `Statistic`, or "accuracy".
    group : str
        "all", a group of the set, or "mean" (accuracy over the kinds).
    n, missing : int
        Judgements that count, and those without a score.
    value : float or None
        -1..1, accuracies 0..1; None where it is undefined.
    interval : Interval or None
        95% bootstrap interval over the set's clusters.
    """

    statistic: str
    group: str
    n: int
    missing: int
    value: float | None
    interval: Interval | None


def score_judgements(
    judgements: Judgements,
    source: Source[Any],
    runtime: Runtime,
    parts: Mapping[str, Source[Any]] = MappingProxyType({}),
    folder: Path | None = None,
) -> TextScores:
    """Score the pairs of a set with a source; parameters and errors as `relabel.sources.texts.score_texts`."""
    if not judgements.both_orders:
        return score_texts(source, judgements.references, judgements.candidates, runtime, parts, folder=folder)
    first = [texts[0] for texts in judgements.references]
    return score_both_orders(source, first, judgements.candidates, runtime, parts, folder=folder)


def score_with_function(judgements: Judgements, function: ScoreFunction) -> Vector:
    """Score the pairs of a set with a function of texts.

    Parameters
    ----------
    judgements : Judgements
    function : callable
        Called once with all reference sets and candidates; twice, with the two texts exchanged, where both orders
        count.

    Returns
    -------
    (P,) float64

    Raises
    ------
    CheckError
        If the function does not return one number per pair.

    Examples
    --------
    >>> import numpy as np
    >>> from relabel.datasets.judged import Judgements
    >>> from relabel.judge.judged_sets import score_with_function
    >>> pairs = Judgements(references=[["a cat"], ["a dog"]], candidates=["a cat", "cats"], groups=["all"] * 2,
    ...                    ratings=np.array([[5.0], [1.0]]), clusters=["0", "1"])
    >>> score_with_function(pairs, lambda references, candidates: [c in r for r, c in zip(references, candidates)])
    array([1., 0.])
    """
    scores = _call(function, judgements.references, judgements.candidates)
    if judgements.both_orders:
        swapped = _call(function, [[text] for text in judgements.candidates], [r[0] for r in judgements.references])
        scores = (scores + swapped) / 2
    return scores


def _call(function: ScoreFunction, references: list[list[str]], candidates: list[str]) -> Vector:
    try:
        scores = np.asarray(function(references, candidates), np.float64)
    except (TypeError, ValueError) as error:
        raise CheckError(f"the function returned no numbers: {error}", todo="Return one number per pair.") from error
    if scores.shape != (len(candidates),):
        what = f"the function returned shape {scores.shape} for {len(candidates):,} pairs"
        raise CheckError(what, todo="Return one number per pair.")
    return scores


def set_figures(
    judged: JudgedSet,
    judgements: Judgements,
    scores: Vector,
    resamples: int = 1000,
    seed: int = 0,
    threads: int = 1,
) -> list[Figure]:
    """Compare scores with the judgements of a set by its protocol.

    Parameters
    ----------
    judged : JudgedSet
    judgements : Judgements
    scores : (P,) float64
        NaN where a pair has no score.
    resamples : int
        Bootstrap resamples of the intervals, clustered as the set says; 0 for none.
    seed, threads : int

    Returns
    -------
    list of Figure
        Ratings: each statistic over all pairs, then over each group if there are several. Choices: the accuracy of
        each kind, then their mean.
    """
    scores = round_relative_finite(scores)
    clusters = np.unique(np.array(judgements.clusters), return_inverse=True)[1]
    if judgements.choices is not None:
        return _accuracies(judged, judgements, judgements.choices, scores, clusters, resamples, seed)
    assert judgements.ratings is not None, "a set has ratings or choices"
    names = list(dict.fromkeys(judgements.groups))
    groups = np.array(judgements.groups)
    figures = []
    for group in (ALL, *(names if len(names) > 1 else [])):
        inside = np.full(len(scores), True) if group == ALL else groups == group
        known = inside & ~np.isnan(scores)
        ratings = judgements.ratings[known]
        # Every rating of a pair is a judgement by itself.
        x, y = np.repeat(scores[known], ratings.shape[1]), ratings.ravel()
        cluster = np.repeat(clusters[known], ratings.shape[1])
        missing = int(inside.sum() - known.sum()) * ratings.shape[1]
        ranks = rank_intervals(x, y, cluster, resamples, seed, threads) if len(x) else rank_intervals(x, y, cluster, 0)
        for statistic in judged.statistics:
            value = coefficient(statistic, x, y)
            if statistic == "pearson":
                interval = bootstrap(x, y, cluster, resamples, seed) if resamples and len(x) else None
            else:
                interval = getattr(ranks, statistic)
            figures.append(Figure(statistic, group, len(x), missing, value, interval))
    return figures


def coefficient(statistic: Statistic, x: Vector, y: Vector) -> float | None:
    """Return a correlation coefficient of two (P,) float64, -1..1; None where it is undefined.

    Examples
    --------
    >>> import numpy as np
    >>> from relabel.judge.judged_sets import coefficient
    >>> x = np.array([1.0, 2.0, 3.0, 4.0])
    >>> [round(coefficient(s, x, np.array([1.0, 1.0, 2.0, 2.0])), 3) for s in ("spearman", "tau_b", "tau_c")]
    [0.894, 0.816, 1.0]
    """
    if statistic == "pearson":
        return pearson(x, y)
    if statistic == "spearman":
        return spearman(x, y) if len(x) > 1 else None
    # Tau-b decides if a coefficient is defined: both kinds need two different values on each side.
    tau = kendall(x, y)
    if statistic == "tau_b" or tau is None:
        return tau
    from scipy.stats import kendalltau

    return float(kendalltau(x, y, variant="c", method="asymptotic").statistic)


def round_relative_finite(scores: Vector) -> Vector:
    """Round finite scores as `round_relative` does; NaN stays."""
    out = np.array(scores, np.float64)
    known = ~np.isnan(out)
    out[known] = round_relative(out[known])
    return out


def _accuracies(
    judged: JudgedSet,
    judgements: Judgements,
    choices: NDArray[np.int64],
    scores: Vector,
    clusters: NDArray[np.integer],
    resamples: int,
    seed: int,
) -> list[Figure]:
    better, worse = scores[choices[..., 0]], scores[choices[..., 1]]
    # An item is as right as the worst of its comparisons. NaN in any of them leaves the item out.
    worth = np.where(better > worse, 1.0, np.where(better == worse, judged.ties, 0.0)).min(axis=1)
    known = ~(np.isnan(better) | np.isnan(worse)).any(axis=1)
    names, groups = list(dict.fromkeys(judgements.groups)), np.array(judgements.groups)
    count = int(clusters.max()) + 1
    draws = cluster_counts(count, resamples, seed) if resamples else None
    figures, resampled = [], []
    for name in names:
        inside = (groups == name) & known
        value = float(worth[inside].mean()) if inside.any() else None
        interval = None
        if draws is not None:
            # Sums per cluster are all that a resample needs.
            right, n = (np.bincount(clusters[inside], w, count) for w in (worth[inside], np.ones(int(inside.sum()))))
            with np.errstate(divide="ignore", invalid="ignore"):
                resampled.append((draws @ right) / (draws @ n))
            interval = _percentiles(resampled[-1])
        missing = int((groups == name).sum() - inside.sum())
        figures.append(Figure("accuracy", name, int(inside.sum()), missing, value, interval))
    values = [figure.value for figure in figures]
    mean = None if None in values else float(np.mean([v for v in values if v is not None]))
    total, missing = sum(f.n for f in figures), sum(f.missing for f in figures)
    interval = _percentiles(np.mean(resampled, axis=0)) if resampled else None
    return [*figures, Figure("accuracy", MEAN, total, missing, mean, interval)]


def _percentiles(values: Vector) -> Interval | None:
    values = values[np.isfinite(values)]
    return Interval(*map(float, np.quantile(values, [0.025, 0.975]))) if len(values) else None


def column_title(statistic: str) -> str:
    """Return the name of a statistic as tables print it.

    Examples
    --------
    >>> from relabel.judge.judged_sets import column_title
    >>> column_title("tau_c"), column_title("accuracy")
    ('tau-c', 'accuracy')
    """
    return TITLES.get(statistic, statistic)


def headline(judged: JudgedSet, figures: Sequence[Figure]) -> Figure:
    """Return the figure that stands for a set in the table of all sets."""
    group = MEAN if not judged.statistics else ALL
    return next(figure for figure in figures if figure.group == group)


def set_report(
    judged: JudgedSet,
    figures: Mapping[str, Sequence[Figure]],
    left_out: Mapping[str, str] = MappingProxyType({}),
    resamples: int = 0,
    seed: int = 0,
) -> Report:
    """Report the figures of labels on one set, times 100, beside the published ones.

    Parameters
    ----------
    judged : JudgedSet
    figures : mapping of str to sequence of Figure
        By label, as `set_figures` returns them.
    left_out : mapping of str to str
        Labels that cannot score the set, with the reason.
    resamples, seed : int
        Of the intervals, for the notes.
    """
    if not figures:
        return Report((), ())
    columns = _columns(judged, next(iter(figures.values())))
    papers = bool(judged.published)
    lines = []
    for label, values in figures.items():
        by = {(f.statistic, f.group): f for f in values}
        lines.append((label, *(_cell(by.get(key)) for key, _ in columns), *([""] if papers else [])))
    for row in judged.published:
        # Published correlations are over all pairs, accuracies are by kind.
        cells = [
            row.figures.get(group if not judged.statistics else statistic if group == ALL else "")
            for (statistic, group), _ in columns
        ]
        lines.append((row.model, *("" if cell is None else f"{cell:.1f}" for cell in cells), row.paper))
    notes = [judged.protocol]
    if resamples:
        notes.append(f"In brackets: 95% interval of {resamples:,} bootstrap resamples, seed {seed}.")
    notes += [f"{label}: {missing:,} judgements left out, whose texts could not be encoded."
              for label, missing in ((label, max(f.missing for f in values)) for label, values in figures.items())
              if missing]  # fmt: skip
    notes += [f"Not scored: {label} ({reason})." for label, reason in left_out.items()]
    notes += [f"{name}: {citation}." for name, citation in judged.papers.items()]
    n = max(f.n + f.missing for values in figures.values() for f in values)
    header = ("label", *(title for _, title in columns), *(["by"] if papers else []))
    table = Table(f"{judged.title}, {n:,} judgements, x100", header, tuple(lines), tuple(notes))
    records = [record for label, values in figures.items() for record in _records(judged, label, values)]
    return Report((table,), tuple(records))


def _columns(judged: JudgedSet, figures: Sequence[Figure]) -> list[tuple[tuple[str, str], str]]:
    """Return statistic and group of each column, with its title."""
    if not judged.statistics:
        return [((f.statistic, f.group), f.group) for f in figures]
    shown = [f for f in figures if f.group == ALL]
    # One statistic leaves room for the groups of a set.
    if len(judged.statistics) == 1:
        shown = list(figures)
    several = len({f.group for f in shown}) > 1
    return [
        ((f.statistic, f.group), f"{TITLES[f.statistic]} {f.group}" if several else TITLES[f.statistic]) for f in shown
    ]


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return ""
    if figure.value is None:
        return UNDEFINED
    ends = figure.interval
    return f"{100 * figure.value:.1f}" + (f" [{100 * ends.low:.1f} {100 * ends.high:.1f}]" if ends else "")


def _records(judged: JudgedSet, label: str, figures: Sequence[Figure]) -> list[dict[str, Any]]:
    """Return one flat record per group."""
    records: dict[str, dict[str, Any]] = {}
    for f in figures:
        record = records.setdefault(
            f.group, {"label": label, "task": judged.name, "subset": f.group, "n": f.n, "missing": f.missing}
        )
        record[f.statistic] = f.value
        record[f"{f.statistic}_low"] = f.interval.low if f.interval else None
        record[f"{f.statistic}_high"] = f.interval.high if f.interval else None
    return list(records.values())


@dataclass(frozen=True)
class Cost:
    """Cost of a label: captions encoded and scored per second, and bytes of encoding per caption."""

    captions_per_second: float
    bytes_per_caption: float

    @classmethod
    def of(cls, scores: Sequence[TextScores]) -> Cost:
        """Sum the cost of several sets."""
        captions = sum(s.captions for s in scores)
        return cls(captions / sum(s.seconds for s in scores), sum(s.bytes for s in scores) / captions)


def summary_report(columns: Mapping[str, Mapping[str, float | None]], costs: Mapping[str, Cost]) -> Report:
    """Lay out one table of all labels and sets, for the choice of a label.

    Parameters
    ----------
    columns : mapping of str to (mapping of str to float)
        By title of a column, the figure of each label, -1..1.
    costs : mapping of str to Cost
        By label.

    Examples
    --------
    >>> from relabel.judge.judged_sets import Cost, summary_report
    >>> report = summary_report({"vsts Pearson": {"sbert": 0.857, "cider": 0.5}}, {"sbert": Cost(500.0, 1536.0)})
    >>> report.tables[0].rows
    (('sbert', '85.7', '500', '1,536'), ('cider', '50.0', '', ''))
    """
    labels = list(dict.fromkeys(label for figures in columns.values() for label in figures))
    lines, records = [], []
    for label in labels:
        values = [figures.get(label) for figures in columns.values()]
        cost = costs.get(label)
        cells = ["" if value is None else f"{100 * value:.1f}" for value in values]
        rates = [f"{cost.captions_per_second:,.0f}", f"{cost.bytes_per_caption:,.0f}"] if cost else ["", ""]
        lines.append((label, *cells, *rates))
        rate, size = (cost.captions_per_second, cost.bytes_per_caption) if cost else (None, None)
        record = {"label": label, "task": "summary", "subset": ALL, **dict(zip(columns, values, strict=True))}
        records.append(record | {"captions_per_second": rate, "bytes_per_caption": size})
    header = ("label", *columns, "captions/s", "bytes/caption")
    notes = (
        "Captions per second of encoding and scoring the judged sets of texts on this machine, with the loading of "
        "models; bytes of the encoding with those of its parts.",
    )
    return Report((Table("Labels on all judged sets, x100", header, tuple(lines), notes),), tuple(records))
