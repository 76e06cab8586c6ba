"""Contract of an export: a label written as the files of another tool, and the artefacts that it reads.

A format consists of a subclass of `Export`, a line in `relabel.export.EXPORTS`, and a model of its parameters in
`relabel.export.params`. The verb, the Python call, the folder, resumption and verification follow from these.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from relabel.core.errors import CheckError
from relabel.core.parameters import Parameters
from relabel.core.runtime import Runtime
from relabel.core.types import Queries
from relabel.corpus import Corpus
from relabel.sources.base import Source
from relabel.sources.relevance import Relevance
from relabel.store.manifest import Manifest
from relabel.store.workdir import Work, part_ranges

P = TypeVar("P", bound=Parameters)


@dataclass(frozen=True)
class ArtefactRef:
    """An encoding or a table of neighbours: an artefact with one table row per corpus row, or per image."""

    folder: Path
    manifest: Manifest

    @classmethod
    def of(cls, job: Any) -> ArtefactRef:
        """Return the artefact of a job (`relabel.stages.job`), which must be current."""
        return cls(job.out, job.open())

    @cached_property
    def groups(self) -> list[tuple[str, int, range]]:
        """Shard, number in the shard, and rows of every row group."""
        found, row = list[tuple[str, int, range]](), None
        for name in self.manifest.parts:
            with pq.ParquetFile(self.folder / name) as shard:
                row = shard.read_row_group(0, ["row"])["row"][0].as_py() if row is None else row
                for group in range(shard.num_row_groups):
                    stop = row + shard.metadata.row_group(group).num_rows
                    found.append((name, group, range(row, stop)))
                    row = stop
        return found

    def tables(self, rows: range, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield some rows in order, with one row group in memory.

        `rows`: corpus rows or numbers of images, all of them in the artefact.
        """
        row = rows.start
        for name, group, part in self.groups:
            start, stop = max(part.start, rows.start), min(part.stop, rows.stop)
            if start < stop:
                with pq.ParquetFile(self.folder / name) as shard:
                    table = shard.read_row_group(group, ["row", *columns]).slice(start - part.start, stop - start)
                if start == row and np.array_equal(table["row"].to_numpy(), np.arange(start, stop)):
                    yield table
                    row = stop
        if row != rows.stop:
            message = f"expected rows {rows.start} to {rows.stop - 1}, in order; there is no row {row}"
            raise CheckError(message, where=str(self.folder), todo="Delete the folder and build it again.")

    def read(self, rows: range, columns: Sequence[str]) -> pa.Table:
        """Return what `tables` yields as one table."""
        return pa.concat_tables(self.tables(rows, columns)).combine_chunks()


@dataclass(frozen=True, kw_only=True)
class ExportInputs:
    """Everything that an export may read.

    `dataset`: name of the dataset.
    `params`: parameters of the label's source.
    `split`: name of the split, or "all".
    `splits`: corpus rows of each split to write.
    `encoding`: covers all rows to write.
    `neighbours`: neighbours of the queries of `Export.neighbours_of`, which cover all rows to write.
    `open_relevance`: opens the encoding.
    `lookups`: lookups of the label, by split.
    `sections`: what a card says of the label and its captions: title to Markdown.
    """

    corpus: Corpus
    dataset: str
    label: str
    params: Mapping[str, Any]
    source: Source[Any]
    split: str
    splits: Mapping[str, range]
    encoding: ArtefactRef
    neighbours: ArtefactRef | None
    open_relevance: Callable[[], Relevance]
    runtime: Runtime
    lookups: Mapping[str, ArtefactRef] = field(default_factory=dict)
    sections: Mapping[str, str] = field(default_factory=dict)

    @property
    def rows(self) -> range:
        """All rows to write."""
        parts = list(self.splits.values())
        return range(parts[0].start, parts[-1].stop)


def shards(stem: str, rows: range, rows_per_file: int) -> Iterator[tuple[str, range]]:
    """Yield the name of each shard without its ending (`STEM-00000-of-000NN`), and its rows."""
    parts = part_ranges(rows, rows_per_file)
    for i, part in enumerate(parts):
        yield f"{stem}-{i:05d}-of-{len(parts):05d}", part


def write_tables(path: Path, tables: Iterable[pa.Table], **options: Any) -> None:
    """Write at least one table as the row groups of a Parquet file."""
    remaining = iter(tables)
    first = next(remaining)
    with pq.ParquetWriter(path, first.schema, compression="zstd", **options) as writer:
        writer.write_table(first)
        for table in remaining:
            writer.write_table(table)


class Export(ABC, Generic[P]):
    """One format of files for other tools.

    `params`: the block of the format in `relabel.export.params`.
    `neighbours_of`: queries whose neighbours the format reads if they exist; None if it reads none.
    `rows_per_file`: captions, or rows, in one of several files of a split.
    """

    neighbours_of: Queries | None = None
    rows_per_file: ClassVar[int] = 100_000

    def __init__(self, params: P) -> None:
        self.params = params

    def check(self, inputs: ExportInputs) -> None:
        """Raise if the label cannot be written in this format; called before anything is read or written."""

    @abstractmethod
    def write(self, inputs: ExportInputs, work: Work) -> None:
        """Write all files and add metadata of the format. Finished files of an earlier run are kept by `work`."""
