"""Reports of judgements: their tables and records in every form, and the folder of their files.

The folder is an artefact, so that it is written completely or not at all, and a changed byte in it is found. Each kind
of report (`cxc`, `eccv`) is written by itself; the files of the other kinds, named `KIND.*`, are kept.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from relabel.core import tables
from relabel.core.errors import CheckError, MissingError
from relabel.core.runtime import Progress
from relabel.core.tables import WIDTH, Style, Table
from relabel.store.artefact import WORK, Recipe, build, current_manifest, exclusive
from relabel.store.manifest import Manifest, Spec, open_artefact
from relabel.store.workdir import Work

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
    image_vectors: tuple[str, ...] = ()
    uses: str | None = None

    @property
    def source(self) -> str:
        """Name of the source."""
        return str(self.params["source"])

    @property
    def display_name(self) -> str:
        """The label with the name of its word vectors. Models, whose names have a `/`, are named in a note instead."""
        return f"{self.label} ({self.uses.split()[0]})" if self.uses and "/" not in self.uses else self.label


def label_fields(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `JudgedLabel` from the facts of a judgement's manifest."""
    return {
        "label": facts["label"],
        "params": facts["params"],
        "own_model": facts.get("own_model", False),
        "image_vectors": tuple(facts.get("image_vectors", ())),
        "uses": facts.get("uses"),
    }


@dataclass(frozen=True)
class Report:
    """Figures in every form.

    `tables`: for people.
    `records`: for programs: one flat record per figure row, of numbers, strings and None. Undefined figures are None.
    """

    tables: tuple[Table, ...]
    records: tuple[dict[str, Any], ...]

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


@dataclass(frozen=True)
class ReportFiles:
    """Files of one kind of report.

    `texts`: by file name, which starts with the kind and a dot.
    `pictures`: by file name; each draws into the path it is given, and shows the figures of the texts.
    """

    texts: dict[str, str] = field(default_factory=dict)
    pictures: dict[str, Callable[[Path], None]] = field(default_factory=dict)


def write_report(out: Path, kind: str, files: ReportFiles, judged: Mapping[str, Manifest], progress: Progress) -> None:
    """Write the files of one kind beside those of the others.

    `out`: the folder, `report/SPLIT`. `judged`: the reported judgements, by label.
    """
    # A report that is there needs no lock, so that it is found in a read-only folder.
    if current_manifest(out, _spec(out, kind, files, judged)[0]) is not None:
        return
    # Kinds of report share a folder: of two processes, each would copy the other's files as they were.
    with exclusive(out.with_name(f"{out.name}.files"), out.parent / WORK, progress):
        spec, copied = _spec(out, kind, files, judged)
        fill = partial(_fill, out, copied, files)
        build(out, Recipe("report", out.name, lambda: spec.semantic, spec.inputs, fill), progress)


def _spec(out: Path, kind: str, files: ReportFiles, judged: Mapping[str, Manifest]) -> tuple[Spec, list[str]]:
    """Return the spec of a report and the names of the files it copies from the present folder."""
    try:
        present = open_artefact(out, "report")
        texts = {name: sha256 for name, sha256 in present.semantic["files"].items() if not name.startswith(f"{kind}.")}
        inputs = {name: value for name, value in present.inputs.items() if not name.startswith(f"{kind}/")}
        copied = [name for name in present.files if not name.startswith(f"{kind}.")]
    except (MissingError, CheckError):
        # Without a valid report there is nothing to keep.
        texts, inputs, copied = {}, {}, []
    texts |= {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.texts.items()}
    inputs |= {f"{kind}/{label}": manifest.fingerprint for label, manifest in judged.items()}
    return Spec("report", out.name, {"files": texts}, inputs), copied


def _fill(out: Path, copied: list[str], files: ReportFiles, work: Work) -> None:
    for name in copied:
        work.file(name, lambda path, name=name: shutil.copyfile(out / name, path))  # type: ignore[misc]
    for name, text in files.texts.items():
        # Bytes, since text mode may change line ends, and with them the sha256 in the spec.
        work.file(name, lambda path, text=text: path.write_bytes(text.encode()))  # type: ignore[misc]
    for name, draw in files.pictures.items():
        work.file(name, draw)
