"""Tables of all evaluation sets. Records of figures become columns, and columns become a table.

Published figures (`published.yaml`) are shown next to a label, or in rows below the labels. A note applies to all
labels of its table unless it names some.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from relabel.core.numeric.statistics import Interval
from relabel.core.parameters import parse_yaml
from relabel.core.tables import Table, csv_text
from relabel.datasets.cxc import METHODS, Task
from relabel.datasets.evaluation_sets import ALL, EvaluationSet
from relabel.judge import JudgeParams
from relabel.judge.cxc_figures import DRAWS, NON_GT, OWN, SAMPLED, subsets
from relabel.judge.eccv import DIRECTIONS
from relabel.judge.figures import ACCURACY, MEAN, TITLES, Estimate
from relabel.judge.report import BASELINE, EXTERNAL, JudgedLabel, LabelFigures, Record, Report

REPRODUCED = 0.1
"""Maximum difference from a published figure, x100, that counts as reproduced, because papers print one decimal."""
UNDEFINED = "undefined"
_UNDEFINED_NOTE = (
    f"{UNDEFINED}: a correlation is undefined if one of its variables is constant or has too few values. same_image "
    "gives all pairs of two images the same relevance."
)
_TITLES: dict[Task, str] = {
    "sits": "caption and image (SITS)",
    "sts": "caption and caption (STS)",
    "sis": "image and image (SIS)",
}
_RULES: dict[Task, str] = {
    "sits": "An image is represented by its first five captions, with the label's pooling.",
    "sts": "Single captions, without the other captions of their images; mean of both orders if a label is not "
    "symmetric.",
    "sis": "Every caption of one image against the first five of the other, with the label's pooling (mean for set); "
    "mean of both orders if a label is not symmetric.",
}
_SELF = {
    False: "The references of an image include the judged caption, as in the papers. This raises the figure over all "
    "pairs (CIDEr-D: 0.74; 0.43 without it), so compare non-GT, too.",
    True: "The references of an image do not include the judged caption. In the papers they do, so published figures "
    "are not shown.",
}
_SPREAD = "Standard deviation of the relevance between two captions of one image (used as alpha by BCLS):"
_OWN_VECTORS = (
    "an image is compared by its own vector instead of its captions. If the label does not have vectors of captions, a "
    "caption is compared by the vector of its image."
)
_TIES = {
    "pessimistic": "Ties: the query's own image or captions first, then items that are not positive.",
    "row": "Ties: in the order of the corpus.",
}


@cache
def _content() -> dict[str, Any]:
    return dict(parse_yaml(Path(__file__).with_name("published.yaml").read_bytes(), "published.yaml"))


def published_figure(label: JudgedLabel, record: Record) -> Record:
    """Return the figures that a paper reports for a record of a label, as entries to add to it.

    The papers score every pair of the test split, with the judged caption among the references.
    """
    task, subset = record["task"], record["subset"]
    # Sets of texts have no split.
    comparable = record.get("split", "test") == "test" and not record.get("missing") and not record.get("leave_one_out")
    for entry in _content()["labels"] if comparable else ():
        if subset in entry.get(task, {}) and all(_has(label, *item) for item in entry["params"].items()):
            figures = {"paper": entry[task][subset], "paper_by": entry["paper"], "paper_label": entry["name"]}
            figures["paper_source"] = _content()["papers"][entry["paper"]]["source"]
            r_precision = entry.get(f"{task}_r_precision")
            return figures | ({"paper_r_precision": r_precision[subset]} if r_precision else {})
    return dict.fromkeys(("paper", "paper_by", "paper_label", "paper_source"))


def _has(label: JudgedLabel, name: str, wanted: Any) -> bool:
    """Return True if a parameter of a label has a value. A model in a folder may be tuned, so it never matches."""
    if name not in label.params or (name == "model" and label.own_model):
        return False
    value = label.params[name]
    return fnmatchcase(value, wanted) if isinstance(value, str) and isinstance(wanted, str) else bool(value == wanted)


def published_models(evaluation_set: str) -> list[Record]:
    """Return models with published figures on a set, as records of `label`, `by`, and a figure for each column."""
    return list(_content()["models"].get(evaluation_set, ()))


def paper_notes(names: Iterable[str]) -> list[str]:
    """Return a citation of each paper, without duplicates."""
    papers = {name: _content()["papers"][name] for name in dict.fromkeys(names)}
    return [f"{name}: {paper['source']}. {paper.get('protocol', '')}".rstrip() for name, paper in papers.items()]


@dataclass(frozen=True)
class Column:
    """One figure of all labels.

    `statistic`: name of the figure, for notes.
    `estimates`: estimates by label. Labels without the figure are left out.
    """

    title: str
    estimates: Mapping[str, Estimate]
    statistic: str = ""

    @classmethod
    def of(
        cls, records: Sequence[Record], task: str, subset: str, figure: str, title: str, statistic: str = ""
    ) -> Column:
        """Select a figure of a task and subset from the records of labels."""
        chosen = [record for record in records if (record["task"], record["subset"]) == (task, subset)]
        return cls(title, {record["label"]: _estimate(record, figure) for record in chosen}, statistic)

    def best(self) -> set[str]:
        """Return the labels with the maximum figure, as printed in the table of all sets; several if they tie."""
        printed = {label: round(one.value, 3) for label, one in self.estimates.items() if one.value is not None}
        # A single label is not marked as the best.
        return {label for label in printed if printed[label] == max(printed.values())} if len(printed) > 1 else set()


def _estimate(record: Record, figure: str) -> Estimate:
    # Only rankings are in percent. CxC's records hold the interval of Pearson's r without a prefix.
    scale = 100 if record["task"] == "eccv" else 1
    low, high = (record.get(f"{figure}_{end}", record.get(end)) for end in ("low", "high"))
    interval = None if low is None or high is None else Interval(low, high)
    value = None if record[figure] is None else record[figure] / scale
    return Estimate(value, interval, record.get("sampled_deviation"))


Show = Callable[[float, Estimate], str]
"""Function of a defined value and its estimate that returns a cell."""


def lay_out(
    title: str,
    names: Mapping[str, str],
    columns: Sequence[Column],
    show: Show,
    notes: Sequence[str],
    *,
    texts: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    models: Sequence[Record] = (),
    mark_best: bool = False,
) -> Table:
    """Return a table with one line per label and published model.

    `names`: names of the labels in the table. `texts`: additional columns, each with its cells by label. `models`:
    published figures by the title of their column. `mark_best`: True to mark the best of each column with a star.
    """

    def cell(label: str, column: Column) -> str:
        estimate = column.estimates.get(label)
        if estimate is None or estimate.value is None:
            return "" if estimate is None else UNDEFINED
        return show(estimate.value, estimate) + (" *" if mark_best and label in column.best() else "")

    texts = {**texts, "by": {}} if models and "by" not in texts else texts
    titles = [column.title for column in columns] + list(texts)
    rows = [
        (name, *(cell(label, column) for column in columns), *(text.get(label, "") for text in texts.values()))
        for label, name in names.items()
    ]
    undefined = [_UNDEFINED_NOTE] if any(UNDEFINED in row for row in rows) else []
    rows += [(model["label"], *(str(model.get(title, "")) for title in titles)) for model in models]
    return Table(title, ("label", *titles), tuple(rows), (*notes, *undefined))


def records_of(labels: Sequence[LabelFigures]) -> list[Record]:
    """Return the flat records of labels, including the figures of papers."""
    return [
        {"label": one.label.label, "source": one.label.source, **record, **published_figure(one.label, record)}
        | {"uses": one.label.uses}
        for one in labels
        for record in one.records
    ]


def cxc_report(labels: Sequence[LabelFigures], params: JudgeParams, spreads: Mapping[str, float | None]) -> Report:
    """Report the agreement of labels with CxC's human scores on one split, with points for `dvc plots`.

    `spreads`: `sibling_std` by label, for a note below the first table.
    """
    records, about = records_of(labels), [one.label for one in labels]
    tables = [_task_table(task, about, records, params) for task in _TITLES if any(r["task"] == task for r in records)]
    if tables and (spread := ", ".join(f"{label} {value:.3f}" for label, value in spreads.items() if value)):
        tables[0] = replace(tables[0], notes=(*tables[0].notes, f"{_SPREAD} {spread}."))
    if any(record["task"].endswith("_sampled") for record in records):
        tables.append(_sampled_table(about, records, params))
    names = ("label", "task", "subset", "pearson", "low", "high")
    points = [{name: record[name] for name in names} for record in records if record.get("pearson") is not None]
    levels = [point for one in labels for point in one.calibration]
    return Report(
        tuple(tables), tuple(records), {"cxc.agreement.csv": csv_text(points), "cxc.calibration.csv": csv_text(levels)}
    )


def _task_table(task: Task, labels: Sequence[JudgedLabel], all_records: Sequence[Record], params: JudgeParams) -> Table:
    records = {(record["label"], record["subset"]): record for record in all_records if record["task"] == task}
    names = {one.label: one.display_name for one in labels if (one.label, ALL) in records}
    of_all = [records[label, ALL] for label in names]
    titles = dict(zip(subsets(task), (ALL, "GT", "non-GT"), strict=False))
    columns = [Column.of(list(records.values()), task, subset, "pearson", title) for subset, title in titles.items()]
    paper, by = dict[str, str](), dict[str, str]()
    for label in names:
        # Papers do not report figures of only the GT pairs.
        published = [records[label, subset] for subset in titles if subset not in OWN]
        if cited := dict.fromkeys(record["paper_by"] for record in published if record["paper_by"]):
            cells = ["-" if record["paper"] is None else f"{record['paper']:.3f}" for record in published]
            paper[label], by[label] = " / ".join(cells), ", ".join(cited)
    notes = _task_notes(task, labels, bool(of_all[0]["leave_one_out"]))
    methods = METHODS[task]
    if len(methods) > 1:
        notes.append(f"GT: pairs of one image ({methods[0]}). non-GT: of two ({methods[1]}).")
    if params.resamples:
        notes.append(
            f"In brackets: 95% interval of {params.resamples:,} bootstrap resamples of images, seed {params.seed}."
        )
    notes += [f"{r['label']}: {r['missing']:,} pairs left out: {r['first_missing']}" for r in of_all if r["missing"]]
    notes += ["paper: all / non-GT, as printed."] if by else []
    notes += paper_notes(name for cell in by.values() for name in cell.split(", "))
    # Models do not depend on the task, so only the first table has this note.
    notes += _model_notes(labels) if task == next(iter(_TITLES)) else []
    n = max(record["n"] + record["missing"] for record in of_all)
    title = f"CxC {of_all[0]['split']}, {_TITLES[task]}: Pearson's r with human scores, {n:,} pairs"
    return lay_out(title, names, columns, _r, notes, texts={"paper": paper, "by": by} if by else {})


def headline_report(report: Report, rates: Mapping[str, tuple[float, str]]) -> Report:
    """Report the agreement with people and the best label. `rates`: speed of each label, and its unit."""
    first = report.tables[0]
    kept = [i for i, title in enumerate(first.header) if title in (ALL, "non-GT", "paper")]
    rows = list[tuple[str, ...]]()
    for row in first.rows:
        # Remove the name of the word vectors.
        label = row[0].partition(" ")[0]
        rows.append((label, *(row[i] for i in kept), "{:,.0f} {}".format(*rates[label]) if label in rates else ""))
    agreement = {r["label"]: r["pearson"] for r in report.records if (r["task"], r["subset"]) == ("sits", NON_GT)}
    defined = {label: value for label, value in agreement.items() if value is not None}
    notes = []
    if defined:
        notes.append(f"{max(defined, key=defined.__getitem__)} agrees best with people: train with its lookup.")
    if all(record["source"] != "fuse" for record in report.records):
        notes.append("`relabel tune best` fits a label with better agreement, for --label fuse.")
    notes.append(
        "In brackets: 95% intervals. per second: captions encoded on this machine, including the time to load models, "
        "or judged pairs scored if a label scores pair by pair. More tables, notes and sources of published figures: "
        "see the report, or pass --full."
    )
    header = ("label", *(first.header[i] for i in kept), "per second")
    return Report((Table(first.title, header, tuple(rows), tuple(notes)),), report.records)


def _task_notes(task: Task, labels: Sequence[JudgedLabel], leave_one_out: bool) -> list[str]:
    """Describe how the pairs of a task are scored."""
    notes = []
    reading = [one for one in labels if one.source not in (BASELINE, EXTERNAL)]
    # A label with parts may compare captions in some parts and vectors of images in others.
    if not reading or any(one.label not in one.image_vectors for one in reading):
        notes.append(f"{_RULES[task]} {_SELF[leave_one_out]}" if task == "sits" else _RULES[task])
    if vectors := list(dict.fromkeys(name for one in reading for name in one.image_vectors)):
        notes.append(f"{', '.join(vectors)}: {_OWN_VECTORS}")
    external = [one.label for one in labels if one.source == EXTERNAL]
    source = "scores from a file, by the ids of the pairs, or from a function of texts"
    return notes + ([f"{', '.join(external)}: {source}."] if external else [])


def _model_notes(labels: Sequence[JudgedLabel]) -> list[str]:
    models = [f"{one.label}: {one.uses}" for one in labels if one.uses]
    return [f"Models: {'; '.join(models)}."] if models else []


def _sampled_table(labels: Sequence[JudgedLabel], records: Sequence[Record], params: JudgeParams) -> Table:
    """Return the figures by the protocol of CxC's authors, times 100, with published models for the test split."""
    split = records[0]["split"]
    figure = "sampled_spearman"
    columns = [
        Column.of(records, f"{task}_sampled", subset, figure, title) for (task, subset), title in SAMPLED.items()
    ]
    models = published_models("cxc") if split == "test" else []
    notes = [
        "Each draw takes half of the items (STS: left captions, SIS: left images, SITS: images) and one rated pair of "
        f"each. Mean and standard deviation of Spearman's rho over {DRAWS:,} draws, times 100, seed "
        f"{params.seed}. Parekh et al., EACL 2021.",
    ]
    if models:
        # The SITS figure of a paper may be over all pairs or over non-GT pairs, so it has a separate column.
        columns.append(Column("SITS as printed", {}))
        notes += paper_notes(model["by"] for model in models)
    title = f"CxC {split}: sampled Spearman with human scores, x100"
    names = {one.label: one.display_name for one in labels}
    return lay_out(title, names, columns, _x100, notes, models=models)


def _r(value: float, estimate: Estimate) -> str:
    if estimate.interval is None:
        return f"{value:.4f}"
    # Write `.738` instead of `0.738` to keep the cell short.
    low, high = (f"{end:.3f}".replace("0.", ".", 1) for end in (estimate.interval.low, estimate.interval.high))
    return f"{value:.4f} [{low} {high}]"


def _x100(value: float, estimate: Estimate) -> str:
    interval = f" [{100 * estimate.interval.low:.1f} {100 * estimate.interval.high:.1f}]" if estimate.interval else ""
    return f"{100 * value:.1f}{interval}" + ("" if estimate.deviation is None else f" ±{100 * estimate.deviation:.1f}")


def eccv_report(labels: Sequence[LabelFigures], unranked: Sequence[str] = ()) -> Report:
    """Report labels as rankers on ECCV Caption. A note names labels that were not ranked. Empty without labels."""
    if not labels:
        return Report()
    records = records_of(labels)
    columns = [
        Column.of(records, "eccv", direction, figure, f"{direction} mAP@R" if figure == "map_at_r" else title)
        for direction in DIRECTIONS
        for figure, title in (("map_at_r", ""), ("r_precision", "R-P"), ("r_at_1", "R@1"))
    ]
    published = [record for record in records if record["paper"] is not None]
    texts: dict[str, dict[str, str]] = {f"S-NDCG {d}": {} for d in DIRECTIONS} if published else {}
    for r in published:
        texts[f"S-NDCG {r['subset']}"][r["label"]] = f"{r['paper']:.2f} / {r['paper_r_precision']:.2f}"
    gates = {record["label"]: record["gate"] for record in records if record["gate"]}
    n = {record["subset"]: record["n"] for record in records}
    notes = [
        f"{n['i2t']:,} image queries rank 25,000 captions (i2t), {n['t2i']:,} caption queries rank 5,000 images (t2i). "
        f"{_TIES[records[0]['ties']]}",
        "R@1 is not informative for labels that read an image's captions, because each query is among its own "
        "references.",
        *(f"* {label}: re-ranks the best of {gate}; the rest keeps the gate's order." for label, gate in gates.items()),
        *(["S-NDCG: mAP@R / R-P as printed."] if published else []),
        *paper_notes(record["paper_by"] for record in published),
    ]
    if unranked:
        names = ", ".join(unranked)
        notes.append(
            f"Not ranked, because they score pair by pair: {names}. `--gate sbert` re-ranks the best of sbert."
        )
    notes += _model_notes([one.label for one in labels])
    shown = {one.label.label: one.label for one in labels}
    lines = {label: f"{label} *" if label in gates else one.display_name for label, one in shown.items()}
    title = "ECCV Caption: labels as rankers, percent"
    table = lay_out(title, lines, columns, lambda value, _: f"{100 * value:.2f}", notes, texts=texts)
    return Report((table,), tuple(records))


def set_report(
    judged: EvaluationSet, labels: Sequence[LabelFigures], left_out: Mapping[str, str], params: JudgeParams
) -> Report:
    """Report the figures of labels on a set of texts, times 100. `left_out`: reasons of labels that cannot score it."""
    if not labels:
        return Report()
    records = records_of(labels)
    models = published_models(judged.name)
    notes = [judged.protocol]
    if params.resamples:
        notes.append(f"In brackets: 95% interval of {params.resamples:,} bootstrap resamples, seed {params.seed}.")
    missing = {one.label.label: max(record["missing"] for record in one.records) for one in labels}
    left = "judgements left out, because their texts could not be encoded."
    notes += [f"{label}: {count:,} {left}" for label, count in missing.items() if count]
    notes += [f"Not scored: {label} ({reason})." for label, reason in left_out.items()]
    notes += paper_notes(model["by"] for model in models)
    counts = [record["n"] + record["missing"] for record in labels[0].records]
    n = max(counts) if judged.group == ALL else sum(counts)
    title = f"{judged.title}, {n:,} judgements, x100"
    names = {one.label.label: one.label.label for one in labels}
    table = lay_out(title, names, list(_set_columns(judged, records)), _x100, notes, models=models)
    return Report((table,), tuple(records))


def _set_columns(judged: EvaluationSet, records: Sequence[Record]) -> Iterator[Column]:
    groups = list(dict.fromkeys(record["subset"] for record in records))
    # With several statistics, there is not enough space for groups, unless the set has only groups.
    if len(judged.statistics) > 1 and judged.group == ALL:
        groups = [ALL]
    for group in groups:
        for statistic in judged.statistics:
            title = f"{group} {TITLES[statistic]}" if len(groups) > 1 else TITLES[statistic]
            yield Column.of(records, judged.name, group, statistic, title)
        if not judged.statistics:
            yield Column.of(records, judged.name, group, ACCURACY, group)


@dataclass(frozen=True)
class Cost:
    """Cost of a label: captions encoded and scored per second, and bytes of its encoding per caption."""

    captions_per_second: float
    bytes_per_caption: float

    @classmethod
    def of(cls, costs: Sequence[Mapping[str, Any]]) -> Cost:
        """Combine the costs of several sets, each with its `captions`, `seconds` and `bytes`."""
        captions, seconds, size = (sum(cost[name] for cost in costs) for name in ("captions", "seconds", "bytes"))
        return cls(captions / seconds, size / captions)


def headline_columns(records: Sequence[Record], sets: Sequence[EvaluationSet]) -> list[Column]:
    """Return a column for each headline figure in the records of CxC, ECCV Caption and sets of texts."""
    columns = [
        Column.of(records, "sits", ALL, "pearson", "SITS", "Pearson (CxC)"),
        Column.of(records, "sits", NON_GT, "pearson", "SITS non-GT", "Pearson (CxC)"),
        Column.of(records, "sts_sampled", ALL, "sampled_spearman", "STS", "sampled Spearman (CxC)"),
        *(Column.of(records, "eccv", direction, "map_at_r", f"ECCV {direction}", "mAP@R") for direction in DIRECTIONS),
    ]
    for one in sets:
        figure, group = (one.statistics[0], one.group) if one.statistics else (ACCURACY, MEAN)
        statistic = TITLES.get(figure, figure)
        note = statistic if group == ALL else f"{group} {statistic}"
        columns.append(Column.of(records, one.name, group, figure, one.name, note))
    return [column for column in columns if column.estimates]


def reproduction_report(records: Sequence[Record], sets: Sequence[EvaluationSet]) -> Report:
    """Report the figures of labels next to published figures of the same labels. Empty without any."""
    figures = {"sits": "pearson", "eccv": "map_at_r"} | {one.name: one.statistics[0] for one in sets if one.statistics}
    published = [(r, _estimate(r, figures[r["task"]]).value) for r in records if r.get("paper") is not None]
    rows = []
    for record, value in published:
        if value is not None:
            ours, paper = 100 * value, record["paper"] * (100 if record["task"] == "sits" else 1)
            difference = round(ours - paper, 1) + 0.0  # no -0.0
            name = record["task"] if record["subset"] == ALL else f"{record['task']} {record['subset']}"
            tick = "✓" if abs(difference) <= REPRODUCED else ""
            cells = (f"{ours:.1f}", f"{paper:.1f}", f"{difference:+.1f}", tick)
            rows.append((record["label"], name, *cells, record["paper_by"]))
    header = ("label", "on", "ours", "published", "difference", "reproduced", "by")
    notes = (f"✓: within {REPRODUCED} of the published figure.", *paper_notes(row[-1] for row in rows))
    return Report((Table("Published figures, x100", header, tuple(rows), notes),) if rows else ())


def summary_report(columns: Sequence[Column], costs: Mapping[str, Cost], absent: Sequence[str] = ()) -> Report:
    """Report all labels on all sets in one table. `absent`: notes about sets that are missing in it."""
    names = {label: label for column in columns for label in column.estimates}
    rates = {label: _rate(cost.captions_per_second) for label, cost in costs.items()}
    sizes = {label: f"{cost.bytes_per_caption:,.0f}" for label, cost in costs.items()}
    notes = [f"{'; '.join(f'{column.title}: {column.statistic}' for column in columns)}. *: the best of a column."]
    if costs:
        notes.append(
            "captions/s: captions of the sets of texts encoded and scored per second on this machine, including the "
            "time to load models. bytes/caption: size of their encodings, including those of the parts of a label."
        )
    title, texts = "Labels on all evaluation sets, x100", {"captions/s": rates, "bytes/caption": sizes}
    shown = [*notes, *absent]
    table = lay_out(title, names, columns, lambda value, _: f"{100 * value:.1f}", shown, texts=texts, mark_best=True)
    unknown, records = dict.fromkeys(Cost.__dataclass_fields__), list[Record]()
    for label in names:
        figures = {column.title: column.estimates.get(label, Estimate(None)).value for column in columns}
        cost = asdict(costs[label]) if label in costs else unknown
        records.append({"label": label, "task": "summary", "subset": ALL, **figures, **cost})
    return Report((table,), tuple(records))


def _rate(rate: float) -> str:
    # With only a few captions, loading a model can take more than a second per caption.
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"
