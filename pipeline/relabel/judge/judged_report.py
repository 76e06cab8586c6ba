"""Reports of labels on human-judged sets of texts: one set beside published figures, and all sets with their costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from relabel.core.numeric.statistics import Interval
from relabel.core.tables import Table
from relabel.datasets.judged import ALL, JudgedSet
from relabel.judge.judged_figures import MEAN, TITLES, Estimate, Figure
from relabel.judge.report import UNDEFINED, Report


def set_report(
    judged: JudgedSet,
    figures: Mapping[str, Sequence[Figure]],
    left_out: Mapping[str, str] = MappingProxyType({}),
    resamples: int = 0,
    seed: int = 0,
) -> Report:
    """Report the figures of labels on one set, times 100, beside the published ones.

    `figures`: by label, as `set_figures` returns them. `left_out`: labels that cannot score the set, with the reason.
    `resamples`, `seed`: of the intervals, for the notes.
    """
    if not figures:
        return Report()
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


@dataclass(frozen=True)
class Column:
    """One column of the table: the headline figure of a judged set.

    `statistic`: name of the figure, for the notes.
    `estimates`: by label; labels that cannot score the set are left out.
    """

    title: str
    statistic: str
    estimates: Mapping[str, Estimate]

    def best(self) -> set[str]:
        """Return the labels with the largest printed figure; several if they tie."""
        # Compared as printed, so that equal figures of the table are marked alike.
        printed = {label: round(one.value, 3) for label, one in self.estimates.items() if one.value is not None}
        # With one label, nothing is the best.
        return (
            {label for label, value in printed.items() if value == max(printed.values())} if len(printed) > 1 else set()
        )


@dataclass(frozen=True)
class Cost:
    """Cost of a label: captions encoded and scored per second, and bytes of encoding per caption."""

    captions_per_second: float
    bytes_per_caption: float

    @classmethod
    def of(cls, costs: Sequence[Mapping[str, Any]]) -> Cost:
        """Sum the costs of several sets, each with its `captions`, `seconds` and `bytes`."""
        captions, seconds, size = (sum(cost[name] for cost in costs) for name in ("captions", "seconds", "bytes"))
        return cls(captions / seconds, size / captions)


_ENCODED_COLUMNS = (
    ("sits", ALL, "pearson", "SITS", "Pearson (CxC)"),
    ("sits", "c2i_intrasim", "pearson", "SITS non-GT", "Pearson (CxC)"),
    ("sts_sampled", ALL, "sampled_spearman", "STS", "sampled Spearman (CxC)"),
    ("eccv", "i2t", "map_at_r", "ECCV i2t", "mAP@R"),
    ("eccv", "t2i", "map_at_r", "ECCV t2i", "mAP@R"),
)
"""Task, subset and figure of a record of CxC or ECCV Caption, and title and statistic of its column."""


def judged_columns(records: Sequence[Mapping[str, Any]], sets: Sequence[JudgedSet]) -> list[Column]:
    """Return a column for each headline figure that the reports of CxC, ECCV Caption and sets of texts have.

    `records`: of their reports.
    """
    columns = []
    for task, subset, figure, title, statistic in (*_ENCODED_COLUMNS, *map(_headline, sets)):
        chosen = [record for record in records if (record["task"], record.get("subset")) == (task, subset)]
        # Rankings are in percent, all others are not.
        scale = 100 if task == "eccv" else 1
        estimates = {
            record["label"]: Estimate(
                None if record[figure] is None else record[figure] / scale, _interval(record, figure)
            )
            for record in chosen
        }
        if estimates:
            columns.append(Column(title, statistic, estimates))
    return columns


def _headline(judged: JudgedSet) -> tuple[str, str, str, str, str]:
    """Return the entry of a set of texts that corresponds to `_ENCODED_COLUMNS`."""
    figure, group = (judged.statistics[0], judged.group) if judged.statistics else ("accuracy", MEAN)
    statistic = TITLES.get(figure, figure)
    return judged.name, group, figure, judged.name, statistic if group == ALL else f"{group} {statistic}"


def _interval(record: Mapping[str, Any], figure: str) -> Interval | None:
    # CxC's records have the interval of Pearson's r without its name.
    low, high = (record.get(f"{figure}_{end}", record.get(end)) for end in ("low", "high"))
    return None if low is None or high is None else Interval(low, high)


def summary_report(columns: Sequence[Column], costs: Mapping[str, Cost], absent: Sequence[str] = ()) -> Report:
    """Lay out one table of all labels and sets.

    `costs`: by label, on the sets of texts. `absent`: notes about the sets that are not in the table.
    """
    best = {column.title: column.best() for column in columns}
    lines, records = [], []
    for label in labels_of(columns):
        cells = [_summary_cell(column.estimates.get(label), label in best[column.title]) for column in columns]
        cost = costs.get(label)
        rates = [_rate(cost.captions_per_second), f"{cost.bytes_per_caption:,.0f}"] if cost else ["", ""]
        lines.append((label, *cells, *rates))
        record: dict[str, Any] = {"label": label, "task": "summary", "subset": ALL}
        record |= {c.title: c.estimates[label].value if label in c.estimates else None for c in columns}
        rate, size = (cost.captions_per_second, cost.bytes_per_caption) if cost else (None, None)
        records.append(record | {"captions_per_second": rate, "bytes_per_caption": size})
    header = ("label", *(column.title for column in columns), "captions/s", "bytes/caption")
    notes = [f"{'; '.join(f'{column.title}: {column.statistic}' for column in columns)}. *: the best of a column."]
    if costs:
        notes.append(
            "captions/s: captions of the sets of texts encoded and scored per second on this machine, with the loading "
            "of models. bytes/caption: their encodings, with those of the parts of a label."
        )
    notes += absent
    return Report((Table("Labels on all judged sets, x100", header, tuple(lines), tuple(notes)),), tuple(records))


def _rate(rate: float) -> str:
    # Five captions and the loading of a model take longer than a second per caption.
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"


def labels_of(columns: Sequence[Column]) -> list[str]:
    """Return the labels of all columns, in the order in which they first occur."""
    return list(dict.fromkeys(label for column in columns for label in column.estimates))


def _summary_cell(estimate: Estimate | None, best: bool) -> str:
    if estimate is None:
        return ""
    if estimate.value is None:
        return UNDEFINED
    return f"{100 * estimate.value:.1f}{' *' if best else ''}"
