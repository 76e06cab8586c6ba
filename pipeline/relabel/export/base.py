"""Contract of an export: a label written as the files of another tool.

A format consists of a subclass of `Export`, a line in `relabel.export.EXPORTS`, and a model of its parameters in
`relabel.export.params`. The verb, the Python call, the folder, resumption and verification follow from these.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from relabel.core.errors import CheckError, UsageError
from relabel.core.parameters import Parameters
from relabel.core.runtime import SILENT, Device, Progress
from relabel.core.types import Of
from relabel.corpus import Corpus
from relabel.sources.base import Source
from relabel.sources.relevance import Relevance
from relabel.store.manifest import Manifest
from relabel.store.workdir import Work, part_ranges

P = TypeVar("P", bound=Parameters)


@dataclass(frozen=True)
class ArtefactRef:
    """An artefact that an export is made from: its folder and its manifest."""

    folder: Path
    manifest: Manifest

    @classmethod
    def of(cls, job: Any) -> ArtefactRef:
        """Return the artefact of a job (`relabel.stages.job`), which must be current."""
        return cls(job.out, job.open())

    def read_rows(self, rows: range, columns: Sequence[str], first: int | None = None) -> pa.Table:
        """Read some rows of an artefact with one table row per corpus row, or per image.

        Only the shards that hold them are read.

        `rows`: corpus rows or numbers of images, all of them in the artefact. `first`: the first number in the
        artefact, if it is not that of a corpus row.
        """
        first, tables = int(self.manifest.facts["rows"][0]) if first is None else first, []
        for name in self.manifest.parts:
            count = pq.read_metadata(self.folder / name).num_rows
            start, stop = max(first, rows.start), min(first + count, rows.stop)
            if start < stop:
                table = pq.read_table(self.folder / name, columns=["row", *columns])
                tables.append(table.slice(start - first, stop - start))
            first += count
        table = pa.concat_tables(tables).combine_chunks() if tables else None
        if table is None or not np.array_equal(table["row"].to_numpy(), np.arange(rows.start, rows.stop)):
            message = f"expected rows {rows.start} to {rows.stop - 1}, in order"
            raise CheckError(message, where=str(self.folder), todo="Delete the folder and build it again.")
        return table.select(list(columns))


@dataclass(frozen=True, kw_only=True)
class ExportInputs:
    """Everything that an export may read.

    `dataset`: name of the dataset.
    `licence`: licence of the captions, for a format with that parameter; None if it is not known.
    `params`: parameters of the label's source.
    `split`: name of the split, or "all".
    `splits`: corpus rows of each split to write.
    `encoding`: covers all rows to write.
    `neighbours`: neighbours of the queries of `Export.neighbours_of`, which cover all rows to write.
    `open_relevance`: opens the encoding.
    """

    corpus: Corpus
    dataset: str
    licence: str | None
    label: str
    params: Mapping[str, Any]
    source: Source[Any]
    split: str
    splits: Mapping[str, range]
    encoding: ArtefactRef
    neighbours: ArtefactRef | None
    open_relevance: Callable[[], Relevance]
    progress: Progress = field(default=SILENT)
    device: Device = "auto"

    @property
    def rows(self) -> range:
        """All rows to write."""
        parts = list(self.splits.values())
        return range(parts[0].start, parts[-1].stop)


def shards(stem: str, rows: range, rows_per_shard: int) -> Iterator[tuple[str, range]]:
    """Yield the name of each shard without its ending (`STEM-00000-of-000NN`), and its rows."""
    parts = part_ranges(rows, rows_per_shard)
    for i, part in enumerate(parts):
        yield f"{stem}-{i:05d}-of-{len(parts):05d}", part


def require_vectors(inputs: ExportInputs) -> None:
    """Raise if the label is not one of vectors."""
    if inputs.source.spec.kind != "vectors":
        todo = f"Use `relabel export lookup --label {inputs.label}`, which holds labels of any kind."
        raise UsageError(f"{inputs.label} ({inputs.source.spec.name}) has no vectors", todo=todo)


class Export(ABC, Generic[P]):
    """One format of files for other tools, with the parameters of its block in `relabel.export.params`."""

    def __init__(self, params: P) -> None:
        self.params = params

    def neighbours_of(self) -> Of | None:
        """Return the queries whose neighbours the format reads if they exist; None if it reads none."""
        return None

    def fingerprint_params(self) -> dict[str, Any]:
        """Return the parameters that can change the files."""
        return self.params.model_dump(mode="json")

    def check(self, inputs: ExportInputs) -> None:
        """Raise if the label cannot be written in this format; called before anything is read or written."""

    @abstractmethod
    def write(self, inputs: ExportInputs, work: Work) -> None:
        """Write all files and add facts of the format. Finished files of an earlier run are kept by `work`."""
