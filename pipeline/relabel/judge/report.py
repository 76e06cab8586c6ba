"""Judged labels and reports about them, with tables for people and records for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from relabel.core import tables
from relabel.core.tables import WIDTH, Style, Table
from relabel.sources.base import Source, SourceParams
from relabel.store.manifest import Manifest
from relabel.store.workdir import Work

Record = dict[str, Any]
"""Figures of a label on a task and subset of a set, by name. None if undefined."""
Draw = Callable[[Path], None]
"""Function that draws a picture and writes it to a path."""
BASELINE = "same_image"
"""Source that is part of every table of CxC: 1 for captions of one image, 0 otherwise."""
EXTERNAL = "scores"
"""Source of labels with scores from a file or a function. Labels of the source `scores` are described the same way."""
_FILE = "figures.json"
_HEADLINES = {("sits", "c2i_intrasim"): "pearson", ("eccv", "i2t"): "map_at_r", ("eccv", "t2i"): "map_at_r"}
"""Task, subset and figure of the metric of a label."""


@dataclass(frozen=True, eq=False, kw_only=True)
class JudgedLabel:
    """Description of a label in reports.

    `params`: the source's parameters, including `source` and `pooling`. They determine the published figures.
    `own_model`: True if the label's model was loaded from a folder and not by its name on the hub.
    `image_vectors`: labels, among this one and its parts, that compare the vector of an image
        (`SourceSpec.image_vectors`).
    `uses`: model or word vectors of the label.
    """

    label: str
    params: Mapping[str, Any]
    own_model: bool = False
    image_vectors: Sequence[str] = ()
    uses: str | None = None

    @classmethod
    def from_encoding(
        cls, label: str, params: SourceParams, sources: Mapping[str, Source[Any]], encoding: Manifest
    ) -> JudgedLabel:
        """Describe a label. `sources`: sources of the label, its parts and its gates, by label."""
        metadata, model = encoding.metadata, encoding.provenance.get("model")
        return cls(
            label=label,
            params=params.model_dump(mode="json"),
            own_model=isinstance(model, dict) and model.get("place") == "folder",
            image_vectors=[name for name, source in sources.items() if source.spec.image_vectors],
            uses=metadata["vectors"]["name"] if "vectors" in metadata else metadata.get("model"),
        )

    @property
    def source(self) -> str:
        """Name of the source."""
        return str(self.params["source"])

    @property
    def display_name(self) -> str:
        """The label with the name of its word vectors. Models (their names have a `/`) are named in a note instead."""
        return f"{self.label} ({self.uses.split()[0]})" if self.uses and "/" not in self.uses else self.label


@dataclass(frozen=True, eq=False)
class LabelFigures:
    """A label with its figures on an evaluation set and, for CxC, its `calibration_points`."""

    label: JudgedLabel
    records: Sequence[Record]
    calibration: Sequence[Record] = ()

    def write(self, work: Work) -> None:
        """Write the figures as an artefact."""
        text = json.dumps(asdict(self), indent=1)
        work.file(_FILE, lambda path: path.write_text(text, encoding="utf-8"))

    @classmethod
    def read(cls, folder: Path) -> LabelFigures:
        """Read the figures of an artefact."""
        content = json.loads((folder / _FILE).read_text(encoding="utf-8"))
        return cls(JudgedLabel(**content["label"]), content["records"], content["calibration"])


@dataclass(frozen=True)
class Report:
    """Figures as tables, records and plots.

    `tables`: tables for people.
    `records`: flat records for programs, with numbers, strings and None. Undefined figures are None.
    `points`: points of the files of `dvc plots`, by name.
    `picture`: function that draws the picture, if there is one.
    """

    tables: tuple[Table, ...] = ()
    records: tuple[Record, ...] = ()
    points: Mapping[str, str] = field(default_factory=dict)
    picture: Draw | None = field(default=None, compare=False, repr=False)

    def __add__(self, other: Report) -> Report:
        points, picture = {**self.points, **other.points}, other.picture or self.picture
        return Report(self.tables + other.tables, self.records + other.records, points, picture)

    def __str__(self) -> str:
        return self.render()

    def _repr_html_(self) -> str:
        return "".join(map(tables.html, _each_note_once(self.tables)))

    def to_pandas(self) -> Any:
        """Return the records as a pandas.DataFrame. Raises MissingError if pandas is not installed."""
        return tables.to_pandas(self.records)

    @property
    def data(self) -> dict[str, Any]:
        """All records and notes, for JSON."""
        notes = list(dict.fromkeys(note for table in self.tables for note in table.notes))
        return {"rows": list(self.records), "notes": notes}

    def render(self, style: Style = "text", width: int = WIDTH) -> str:
        """Render the tables (text, of at most `width` characters per line; md, latex) or the records (csv)."""
        if style == "csv":
            return tables.csv_text(self.records)
        # A terminal shows all tables together. Tables in other styles are copied separately, so each needs its notes.
        if style == "text":
            return "\n\n".join(tables.text(table, width) for table in _each_note_once(self.tables))
        render = tables.markdown if style == "md" else tables.latex
        return "\n\n".join(render(table) for table in self.tables)


def _each_note_once(all_tables: Sequence[Table]) -> Iterator[Table]:
    seen: set[str] = set()
    for table in all_tables:
        yield replace(table, notes=tuple(note for note in table.notes if note not in seen))
        seen.update(table.notes)


def metrics(records: Sequence[Record]) -> dict[str, float]:
    """Return one figure per label for `dvc metrics show`, rounded to 4 decimals.

    The figure is Pearson's r of the non-GT pairs of CxC's SITS, or mAP@R on ECCV Caption, averaged over both
    directions. Undefined figures are left out.
    """
    figures: dict[str, list[float]] = {}
    for record in records:
        figure = _HEADLINES.get((record["task"], record["subset"]))
        if figure and record[figure] is not None:
            figures.setdefault(record["label"], []).append(record[figure])
    return {label: round(sum(values) / len(values), 4) for label, values in figures.items()}


def write_report(name: str, report: Report, work: Work) -> None:
    """Write a report as an artefact: tables and records in all formats, points, and the picture."""
    forms = {"csv": report.render("csv"), "md": report.render("md"), "tex": report.render("latex")}
    forms["json"] = json.dumps(metrics(report.records), indent=1)
    for file, text in ({f"{name}.{form}": text for form, text in forms.items()} | {**report.points}).items():
        # Write bytes, because text mode may change line ends.
        work.file(file, partial(Path.write_bytes, data=f"{text}\n".encode()))
    if report.picture:
        work.file(f"{name}.png", report.picture)
