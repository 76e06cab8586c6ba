"""Base classes of exports, which write a label in the file format of another tool, and their inputs.

To add a format, write a subclass of `Export`, a line in `relabel.export.EXPORTS`, and a parameter model in
`relabel.export.params`. The command, the Python function, the folder, resumption and verification follow from these.
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
    """An encoding or a neighbour table: an artefact with one table row per corpus row or image."""

    folder: Path
    manifest: Manifest

    @classmethod
    def of(cls, job: Any) -> ArtefactRef:
        """Return the artefact of a job (`relabel.stages.job`). It must be up to date."""
        return cls(job.out, job.open())

    @cached_property
    def groups(self) -> list[tuple[str, int, range]]:
        """Shard, index in the shard, and rows of every row group."""
        groups, row = list[tuple[str, int, range]](), None
        for name in self.manifest.parts:
            with pq.ParquetFile(self.folder / name) as shard:
                row = shard.read_row_group(0, ["row"])["row"][0].as_py() if row is None else row
                for group in range(shard.num_row_groups):
                    stop = row + shard.metadata.row_group(group).num_rows
                    groups.append((name, group, range(row, stop)))
                    row = stop
        return groups

    def tables(self, rows: range, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield a range of rows in order, with one row group in memory.

        `rows`: corpus rows or image numbers. All of them must be in the artefact.
        """
        row = rows.start
        for name, group, span in self.groups:
            start, stop = max(span.start, rows.start), min(span.stop, rows.stop)
            if start < stop:
                with pq.ParquetFile(self.folder / name) as shard:
                    table = shard.read_row_group(group, ["row", *columns]).slice(start - span.start, stop - start)
                if start == row and np.array_equal(table["row"].to_numpy(), np.arange(start, stop)):
                    yield table
                    row = stop
        if row != rows.stop:
            message = f"expected rows {rows.start} to {rows.stop - 1} in order, but row {row} is missing"
            raise CheckError(message, where=str(self.folder), hint="Delete the folder and build it again.")

    def read(self, rows: range, columns: Sequence[str]) -> pa.Table:
        """Read a range of rows as one table; see `tables`."""
        return pa.concat_tables(self.tables(rows, columns)).combine_chunks()


@dataclass(frozen=True, kw_only=True)
class ExportInputs:
    """Inputs of an export.

    `dataset`: name of the dataset.
    `params`: parameters of the label's source.
    `split`: name of the split, or "all".
    `splits`: corpus rows of each split to write.
    `encoding`: encoding that covers all rows to write.
    `neighbours`: neighbour table for the queries of `Export.neighbours_of` that covers all rows to write.
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
        ranges = list(self.splits.values())
        return range(ranges[0].start, ranges[-1].stop)


def shards(stem: str, rows: range, rows_per_file: int) -> Iterator[tuple[str, range]]:
    """Yield the name of each shard without its suffix (`STEM-00000-of-000NN`), and its rows."""
    parts = part_ranges(rows, rows_per_file)
    for i, part in enumerate(parts):
        yield f"{stem}-{i:05d}-of-{len(parts):05d}", part


def write_tables(path: Path, tables: Iterable[pa.Table], **options: Any) -> None:
    """Write tables, at least one, as the row groups of a Parquet file."""
    remaining = iter(tables)
    first = next(remaining)
    with pq.ParquetWriter(path, first.schema, compression="zstd", **options) as writer:
        writer.write_table(first)
        for table in remaining:
            writer.write_table(table)


class Export(ABC, Generic[P]):
    """A file format for other tools.

    `params`: the format's parameter model of `relabel.export.params`.
    `neighbours_of`: kind of queries of the neighbour table that the format reads if it exists; None for no table.
    `rows_per_file`: captions or rows per file of a split.
    """

    neighbours_of: Queries | None = None
    rows_per_file: ClassVar[int] = 100_000

    def __init__(self, params: P) -> None:
        self.params = params

    def check(self, inputs: ExportInputs) -> None:
        """Raise if the label cannot be written in this format. Called before files are read or written."""

    @abstractmethod
    def write(self, inputs: ExportInputs, work: Work) -> None:
        """Write all files and add the format's metadata. `work` keeps finished files of an earlier run."""
