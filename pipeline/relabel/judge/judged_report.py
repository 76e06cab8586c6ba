"""Report of labels on one human-judged set of texts, beside published figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from relabel.core.tables import Table
from relabel.datasets.judged import ALL, JudgedSet
from relabel.judge.judged_figures import TITLES, Figure
from relabel.judge.report import UNDEFINED, Report


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

    Examples
    --------
    >>> from relabel.datasets.judged import judged_set
    >>> from relabel.judge.judged_figures import Figure
    >>> from relabel.judge.judged_report import set_report
    >>> report = set_report(judged_set("vsts"), {"sbert": [Figure("pearson", "all", 2677, 0, 0.857, None)]})
    >>> report.tables[0].header, report.tables[0].rows
    (('label', 'Pearson'), (('sbert', '85.7'),))
    """
    if not figures:
        return Report((), ())
    # All labels have the same figures, since a label that scores nothing has undefined ones.
    columns = _columns(judged, next(iter(figures.values())))
    papers = bool(judged.published)
    lines = []
    for label, values in figures.items():
        figure_of = {(f.statistic, f.group): f for f in values}
        lines.append((label, *(_cell(figure_of.get(key)) for key, _ in columns), *([""] if papers else [])))
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
    n = max(_judgements(judged, values) for values in figures.values())
    header = ("label", *(title for _, title in columns), *(["by"] if papers else []))
    table = Table(f"{judged.title}, {n:,} judgements, x100", header, tuple(lines), tuple(notes))
    records = [record for label, values in figures.items() for record in _records(judged, label, values)]
    return Report((table,), tuple(records))


def _judgements(judged: JudgedSet, figures: Sequence[Figure]) -> int:
    """Return the number of judgements of a set: those of its largest group, or of all groups that are not pooled."""
    counts = [f.n + f.missing for f in figures if not judged.statistics or f.statistic == judged.statistics[0]]
    return max(counts) if judged.group == ALL else sum(counts)


def _columns(judged: JudgedSet, figures: Sequence[Figure]) -> list[tuple[tuple[str, str], str]]:
    """Return statistic and group of each column, with its title."""
    if not judged.statistics:
        return [((f.statistic, f.group), f.group) for f in figures]
    # Several statistics leave no room for groups, unless groups are all there is.
    pooled = len(judged.statistics) > 1 and judged.group == ALL
    shown = [f for f in figures if f.group == ALL] if pooled else list(figures)
    several = len({f.group for f in shown}) > 1
    return [
        ((f.statistic, f.group), f"{f.group} {TITLES[f.statistic]}" if several else TITLES[f.statistic]) for f in shown
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
