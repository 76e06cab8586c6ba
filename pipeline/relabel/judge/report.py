"""Reports of judgements: their tables and records in every form."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from relabel.core import tables
from relabel.core.tables import WIDTH, Style, Table

UNDEFINED = "undefined"
_HEADLINES: dict[str, tuple[str | None, str]] = {"sits": ("c2i_intrasim", "pearson"), "eccv": (None, "map_at_r")}
"""Subset (None: all of them) and figure of the metric of a task."""
_UNDEFINED_NOTE = (
    f"{UNDEFINED}: a coefficient compares the order of two series, and here one of the two is constant or has too few "
    "values. same_image gives all pairs of two images the same relevance."
)


@dataclass(frozen=True, eq=False, kw_only=True)
class JudgedLabel:
    """A label as reports name it.

    `params`: the source's parameters, `source` and `pooling` among them; they decide which published figure applies.
    `own_model`: True if the label's model was found in a folder rather than by its name on the hub.
    `image_vectors`: labels, among this one and its parts, that compare an image's own vector
        (`SourceSpec.image_vectors`).
    `uses`: model or word vectors of the label.
    """

    label: str
    params: Mapping[str, Any]
    own_model: bool = False
    image_vectors: Sequence[str] = ()
    uses: str | None = None

    @property
    def source(self) -> str:
        """Name of the source."""
        return str(self.params["source"])

    @property
    def display_name(self) -> str:
        """The label with the name of its word vectors. Models, whose names have a `/`, are named in a note instead."""
        return f"{self.label} ({self.uses.split()[0]})" if self.uses and "/" not in self.uses else self.label


def label_fields(described: Mapping[str, Any] | JudgedLabel) -> dict[str, Any]:
    """Return the fields of `JudgedLabel` of a label, or from the facts of a manifest about it."""
    facts = described if isinstance(described, Mapping) else vars(described)
    return {field.name: facts[field.name] for field in fields(JudgedLabel) if field.name in facts}


@dataclass(frozen=True)
class Report:
    """Figures in every form.

    `tables`: for people.
    `records`: for programs: one flat record per figure row, of numbers, strings and None. Undefined figures are None.
    """

    tables: tuple[Table, ...] = ()
    records: tuple[dict[str, Any], ...] = ()

    def __post_init__(self) -> None:
        # The dataclass is frozen for its users; the instance is still under construction.
        object.__setattr__(self, "tables", tuple(_explain_undefined(table) for table in self.tables))

    def __add__(self, other: Report) -> Report:
        return Report(self.tables + other.tables, self.records + other.records)

    def __str__(self) -> str:
        return self.render()

    @property
    def data(self) -> dict[str, Any]:
        """All records and notes, for JSON."""
        notes = list(dict.fromkeys(note for table in self.tables for note in table.notes))
        return {"rows": list(self.records), "notes": notes}

    def render(self, style: Style = "text", width: int = WIDTH) -> str:
        """Render the tables (text, of at most `width` characters per line; md, latex) or the records (csv)."""
        if style == "csv":
            return tables.csv_text(self.records)
        # In a terminal all tables are read together; tables of other styles are pasted one by one, each with its notes.
        if style == "text":
            return "\n\n".join(tables.text(table, width) for table in _each_note_once(self.tables))
        render = tables.markdown if style == "md" else tables.latex
        return "\n\n".join(render(table) for table in self.tables)


def _explain_undefined(table: Table) -> Table:
    """Return the table with a note on undefined figures, if it has any."""
    has_undefined = any(UNDEFINED in cell for row in table.rows for cell in row)
    if not has_undefined or _UNDEFINED_NOTE in table.notes:
        return table
    return replace(table, notes=(*table.notes, _UNDEFINED_NOTE))


def _each_note_once(all_tables: Sequence[Table]) -> Iterator[Table]:
    seen: set[str] = set()
    for table in all_tables:
        yield replace(table, notes=tuple(note for note in table.notes if note not in seen))
        seen.update(table.notes)


def metrics(records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return one figure per label, which `dvc metrics show` prints in one column, rounded to 4 decimals.

    The figure is Pearson's r of the non-GT pairs of CxC's SITS, or the mAP@R on ECCV Caption, averaged over both
    directions. Undefined figures are left out.
    """
    figures: dict[str, list[float]] = {}
    for record in records:
        if record["task"] not in _HEADLINES:
            continue
        subset, figure = _HEADLINES[record["task"]]
        if subset in (None, record["subset"]) and record.get(figure) is not None:
            figures.setdefault(record["label"], []).append(record[figure])
    return {label: round(sum(values) / len(values), 4) for label, values in figures.items()}


def report_texts(name: str, report: Report) -> dict[str, str]:
    """Return the files of a report by name: its tables and records in every form."""
    forms = {"csv": report.render("csv"), "md": report.render("md"), "tex": report.render("latex")}
    forms["json"] = json.dumps(metrics(report.records), indent=1)
    return {f"{name}.{form}": f"{text}\n" for form, text in forms.items()}
