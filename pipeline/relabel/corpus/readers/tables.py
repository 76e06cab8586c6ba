"""Tables of captions: JSON lines, CSV and Parquet."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.core.parsing import identifier, namespaced, parse_json, read_lines, read_text, split_name
from relabel.core.user_files import check_regular, is_folder
from relabel.corpus.build import Caption

TEXT_NAMES = ("text", "caption")
"""Names that are tried for the column of captions if none is given."""
DAMAGE = (pa.ArrowException, OSError, ValueError, TypeError, KeyError, IndexError, OverflowError, MemoryError)
"""Errors that pyarrow raises for a damaged Parquet file."""


@dataclass(frozen=True)
class Columns:
    """Names of the columns of a table, and the conversion of its records to captions.

    Attributes
    ----------
    caption_id, image_id : str
        Ids: strings or whole numbers.
    text : str, optional
        None takes the first of `TEXT_NAMES` that exists.
    split : str
        Ignored if `in_split` is given.
    in_split : "train", "val" or "test", optional
        Split of every caption, for tables without such a column.

    Examples
    --------
    >>> columns = Columns(image_id="image")
    >>> columns.find(["caption_id", "image", "caption", "split"], "my.csv")
    ('caption_id', 'image', 'caption', 'split')
    """

    caption_id: str = "caption_id"
    image_id: str = "image_id"
    text: str | None = None
    split: str = "split"
    in_split: Literal["train", "val", "test"] | None = None

    def find(self, present: Collection[str], where: str) -> tuple[str, ...]:
        """Return the names of the columns to read: caption id, image id, text and, unless `in_split` is given, split.

        Raises
        ------
        CheckError
            If a column is missing. The message names the existing ones.
        """
        text = self.text or next((name for name in TEXT_NAMES if name in present), None)
        names = (self.caption_id, self.image_id, text, *((self.split,) if self.in_split is None else ()))
        for name in names:
            if name is None or name not in present:
                wanted = " or ".join(map(repr, TEXT_NAMES)) if name is None else repr(name)
                has = ", ".join(present) or "none"
                raise CheckError(
                    f"no column {wanted}",
                    where=where,
                    todo=f"It has {has}; name the right one in the parameters of ingest.",
                )
        return tuple(name for name in names if name is not None)

    def caption(self, names: Sequence[str], values: Sequence[object], namespace: str, where: str) -> Caption:
        """Return the caption of a record, whose values are in the order of the names from `find`.

        Raises
        ------
        CheckError
            If a value has the wrong type. A null is read as "", which `Corpus.from_captions` rejects.
        """
        text = values[2]
        if text is not None and type(text) is not str:
            raise CheckError(f"{names[2]!r}: expected a string, found {type(text).__name__}", where=where)
        split = self.in_split or split_name(identifier(values[3], names[3], where))
        return Caption(
            namespaced(namespace, identifier(values[0], names[0], where)),
            namespaced(namespace, identifier(values[1], names[1], where)),
            split,
            text or "",
            where,
        )


def table_files(path: Path, *endings: str) -> list[Path]:
    """Return the file itself, or the files of a folder with one of the endings, sorted by name.

    Raises
    ------
    MissingError
        If the file or folder is missing or cannot be read.
    UsageError
        If the folder has no such file.
    """
    if not is_folder(path):
        return [check_regular(path)]
    try:
        files = sorted(p for p in path.iterdir() if p.name.endswith(endings) and not p.name.startswith("."))
    except OSError as error:
        raise MissingError(f"cannot be read: {error.strerror}", where=str(path)) from error
    if not files:
        raise UsageError(f"no {' or '.join(endings)} file in this folder", where=str(path))
    return files


def read_jsonl(path: Path, namespace: str, columns: Columns) -> Iterator[Caption]:
    """Read a .jsonl file, plain or .gz, with one object per line. Blank lines are skipped.

    Raises
    ------
    MissingError
        If the file is missing.
    CheckError
        If a line is not UTF-8, not a JSON object, lacks a key or has a value of the wrong type. The message names file
        and line.

    Examples
    --------
    >>> from pathlib import Path
    >>> _ = Path("my.jsonl").write_text('{"caption_id": 1, "image_id": 7, "text": "a dog", "split": "dev"}')
    >>> next(read_jsonl(Path("my.jsonl"), "mine", Columns()))
    Caption(caption_id='mine:1', image_id='mine:7', split='val', text='a dog', where='my.jsonl:1')
    """
    names: tuple[str, ...] = ()
    for number, (where, line) in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        record = parse_json(line, str(path), number)
        if not isinstance(record, dict):
            raise CheckError(f"expected an object, found {type(record).__name__}", where=where)
        # The first record decides the names of the columns.
        names = names or columns.find(record, where)
        try:
            values = [record[name] for name in names]
        except KeyError as error:
            raise CheckError(f"missing key {error.args[0]!r}", where=where) from error
        yield columns.caption(names, values, namespace, where)


def read_csv(path: Path, namespace: str, columns: Columns, delimiter: str = ",") -> Iterator[Caption]:
    """Read a .csv file with a header, plain or .gz, with one caption per record. Blank lines are skipped.

    A quoted field may contain line breaks.

    Raises
    ------
    MissingError
        If the file is missing.
    CheckError
        If the file is not UTF-8, a column is missing or appears twice, or a record is ragged or badly quoted. The
        message names file and line.
    """
    header: list[str] | None = None
    names: tuple[str, ...] = ()
    index: list[int] = []
    for where, fields in _records(path, delimiter):
        if header is None:
            header = fields
            if repeated := next((name for name in header if header.count(name) > 1), None):
                raise CheckError(f"column {repeated!r} appears twice", where=where)
            names = columns.find(header, where)
            index = [header.index(name) for name in names]
            continue
        if len(fields) != len(header):
            raise CheckError(f"expected {len(header)} fields, as in the header; found {len(fields)}", where=where)
        yield columns.caption(names, [fields[i] for i in index], namespace, where)


def _records(path: Path, delimiter: str) -> Iterator[tuple[str, list[str]]]:
    """Yield `file:line` of the first line, and the fields, of each record that is not blank."""
    # `newline=""` leaves line breaks inside quoted fields to the reader.
    reader = csv.reader(io.StringIO(read_text(path), newline=""), delimiter=delimiter, strict=True)
    while True:
        where = f"{path}:{reader.line_num + 1}"
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise CheckError(f"not CSV: {error}", where=where) from error
        if fields:
            yield where, fields


def read_parquet(path: Path, namespace: str, columns: Columns) -> Iterator[Caption]:
    """Read a .parquet file with one caption per row. A corpus that relabel wrote can be read back.

    Raises
    ------
    MissingError
        If the file is missing.
    CheckError
        If the file is not Parquet, a column is missing or has a wrong type, or a text is not UTF-8. The message names
        file and row (from 0).
    """
    check_regular(path)
    try:
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            names = columns.find(schema.names, str(path))
            for name in names:
                check_column(schema, name, str(path), text=name == names[2])
            start = 0
            # In batches, so that a large table is never in memory as Python objects.
            for batch in file.iter_batches(columns=list(dict.fromkeys(names))):
                values = [_column_values(batch.column(name), name, path, start) for name in names]
                for n, record in enumerate(zip(*values, strict=True), start=start):
                    yield columns.caption(names, record, namespace, f"{path}: row {n}")
                start += batch.num_rows
    except DAMAGE as error:
        raise CheckError(f"not Parquet: {first_line(error)}", where=str(path)) from error


def check_column(schema: pa.Schema, name: str, path: str, text: bool = False) -> None:
    """Raise unless a column appears once and holds strings, or also whole numbers if it is not `text`.

    Raises
    ------
    CheckError
        With the name of the column and its type.
    """
    if schema.names.count(name) > 1:
        raise CheckError(f"column {name!r} appears twice", where=path)
    # A dictionary column is judged by its values.
    kind = schema.field(name).type
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    accepted = [pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null]
    if not any(matches(value) for matches in [*accepted, *([] if text else [pa.types.is_integer])]):
        wanted = "strings" if text else "strings or whole numbers"
        raise CheckError(f"column {name!r}: expected {wanted}, found {kind}", where=path)


def first_line(error: Exception) -> str:
    """Return the first line of an Arrow error, which may quote much of the file, cut to 200 characters."""
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _column_values(column: pa.Array, name: str, path: Path, start: int) -> list[object]:
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except UnicodeDecodeError:
        # The error of the column names no row, so the rows are converted one by one.
        for n in range(len(column)):
            try:
                column[n].as_py()
            except UnicodeDecodeError as error:
                where = f"{path}: row {start + n}"
                raise CheckError(f"{name!r} is not UTF-8: {error.reason}", where=where) from error
        raise
