"""Containers: files of records, in CSV and similar formats, JSON, JSON lines, Parquet and Arrow.

The content of a file decides its format; the ending is a hint. `relabel.corpus.readers.webdataset` reads tar files.
Text is UTF-8 with or without a byte order mark, or UTF-16 with one. Memory is limited by bytes, not by records.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from relabel.core.errors import CheckError
from relabel.core.parsing import LONGEST_LINE, check_regular, decoded, parse_json, parse_object, read_blocks, text_lines
from relabel.corpus.params import IngestParams

DAMAGE = (pa.ArrowException, OSError, ValueError, TypeError, KeyError, IndexError, OverflowError, MemoryError)
"""Errors that pyarrow raises for a damaged Parquet file."""
LONGEST = LONGEST_LINE
"""Maximum number of bytes of text of a batch of rows, and of a member of a tar."""
_ROWS = 1 << 14  # rows of a batch
_WHOLE = 1 << 27  # characters of a JSON file that are always allowed, even if they exceed a quarter of the memory
TOKEN = re.compile(r"(?!\w+://)[^\s,|;]+#\d+(\t|,| )")
"""First line of a Flickr token file: `IMAGE#K`, a separator, and the caption."""

Step = str | int | None
"""A step of a path into a record: a name, an index of a list, or None for all items of a list."""
Bad = Callable[[str, str], None]
"""Function that is called for each record that is left out, with the reason and the location."""
Record = tuple[int | str, Mapping[str, Any]]
"""Number or name of a record, and the record."""
Values = tuple[int | str, Sequence[Any]]
"""Number or name of a record, and its values at the requested paths."""


@dataclass(frozen=True)
class Container:
    """A file of records.

    `example`: values of the first records by name; later records may add names. None if there are no records.
    `place`: prefix that turns the number or name of a record into its location.
    `where`: location of the names of columns.
    `read`: takes paths and yields the values of each record at these paths; None for an empty path.
    `hint`: advice for the error if a column is missing.
    """

    example: Mapping[str, Any] | None
    place: str
    where: str
    read: Callable[[Sequence[Sequence[Step]]], Iterator[Values]]
    hint: str = ""


def empty(path: Path) -> Container:
    """Return a container without records."""
    return Container(None, f"{path}:", str(path), lambda _: iter(()))


def walk(value: Any, steps: Sequence[Step]) -> Any:
    """Return the value at a path into nested objects and lists, or None if it does not exist."""
    for n, step in enumerate(steps):
        if step is None:
            return [walk(one, steps[n + 1 :]) for one in value] if isinstance(value, list) else None
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value


def decode(blocks: Iterable[bytes], encoding: str | None, where: Path | str) -> Iterator[str]:
    """Decode bytes. If the encoding is wrong, the error explains how to set it."""
    try:
        for n, text in enumerate(decoded(blocks, where, encoding)):
            if n == 0 and "\0" in text[:2]:
                raise CheckError("not UTF-8: zero bytes, as in UTF-16 without a byte order mark", where=str(where))
            yield text
    except CheckError as error:
        if encoding is None and error.problem.startswith("not UTF"):
            error.hint = "Set the encoding with --set ingest.encoding=NAME, such as latin-1, gb18030 or utf-16-le."
        raise


def read_texts(path: Path, encoding: str | None) -> Iterator[str]:
    """Yield the decoded text of a file in blocks."""
    return decode(read_blocks(path), encoding, path)


def read_lines(path: Path, encoding: str | None) -> Iterator[str]:
    """Yield the lines of a file with their line ends. Byte order marks of concatenated files are removed."""
    return (line.removeprefix("\ufeff") for line in text_lines(read_texts(path, encoding), path))


def _csv_reader(source: Iterable[str], delimiter: str, quotes: bool, space: bool = False) -> Any:
    """Return a reader of the csv module. `space`: True if a space after a separator is ignored."""
    # Without `strict`, an unclosed quote would turn the rest of the file into one field.
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
    return csv.reader(source, delimiter=delimiter, strict=True, quoting=quoting, skipinitialspace=space)


def _fields_of(line: str, delimiter: str, quotes: bool) -> list[str]:
    """Split one line into fields. Returns [] if the quotes do not match."""
    try:
        return next(_csv_reader([line], delimiter, quotes), [])
    except csv.Error:
        return []


def open_csv(path: Path, params: IngestParams, usual: Callable[[Sequence[str]], int], bad: Bad) -> Container:
    """Open CSV or a similar format. `usual`: counts the roles that have a column with a common name."""
    names, delimiter, quotes = list(params.columns), params.delimiter, params.quotes
    lines = read_lines(path, params.encoding)
    start, first = next(((n, line) for n, line in enumerate(lines, start=1) if line.strip()), (0, ""))
    # Excel may write the separator in a line before the header.
    if named := re.fullmatch(r'"?sep=(.)"?\s*', first):
        delimiter, start, first = delimiter or named[1], start + 1, next(lines, "")
    if not first:
        return empty(path)
    token = TOKEN.match(first)
    if token and not names and delimiter in (None, token[1]):
        names, delimiter = ["image", "caption"], token[1]
        quotes = quotes and delimiter == ","

    columns = partial(_fields_of, first, quotes=quotes)
    # Without a header, the first line is a caption, and its commas say nothing about the separator.
    usual_one = "\t" if ".tsv" in path.suffixes and "\t" in first else "," if names else None
    separator: str = delimiter or usual_one or max(",\t;|", key=lambda one: (usual(columns(one)), len(columns(one))))
    if params.columns and usual(columns(separator)) == 2:
        raise CheckError("the first line is a header", where=f"{path}:{start}", hint="Remove --columns.")
    spaced = columns(separator)[1:]
    space = separator.strip() != "" and bool(spaced) and all(name[:1] == " " for name in spaced)
    # Programs that quote fields do not write spaces around them.
    quotes = quotes and not (space and separator == "|")
    headless = bool(names)

    quote_hint = "If quotes are part of the captions, pass --set ingest.quotes=false." if quotes else None
    escapes = " Inside a quoted field, double each quote instead of escaping it with a backslash." if quotes else ""

    hint = "" if headless else " If the first line is not a header, name the columns, as in --columns caption,url."

    def rows() -> Iterator[tuple[int, list[str]]]:
        nonlocal names
        line, source, header = start, chain([first], lines), None
        # If the separator is a space, only the first space of a line separates.
        reader = _csv_reader(source, separator, quotes, space) if separator != " " else None
        try:
            for row in reader or (line.rstrip("\r\n").split(" ", 1) for line in source):
                if row and not names:
                    header, names = row, [name.strip() for name in row]
                    if repeated := [name for name in names if names.count(name) > 1]:
                        raise CheckError(
                            f"column {repeated[0]!r} appears twice", where=f"{path}:{line}", hint=hint.strip()
                        )
                elif row == header:
                    bad("header in the middle of the file", f"{path}:{line}")
                elif row and len(row) != len(names):
                    expected = f"expected the columns {', '.join(names)} (separator {separator!r})"
                    bad("fields do not match the header", f"{path}:{line}: {expected}; found {len(row)} fields")
                elif row:
                    # Line breaks inside fields are common only in files with a header and commas or semicolons.
                    suspicious = quotes and (headless or separator not in ",;")
                    if suspicious and any("\n" in field and separator in field for field in row):
                        raise CheckError("a quoted field spans several rows", where=f"{path}:{line}", hint=quote_hint)
                    yield line, row
                line = line + 1 if reader is None else start + reader.line_num
        except csv.Error as error:
            raise CheckError(f"not CSV: {error}.{escapes}", where=f"{path}:{line}", hint=quote_hint) from error

    remaining = rows()
    if (one := next(remaining, None)) is None:
        return empty(path)
    hint += "" if params.delimiter else " Set a separator other than , ; | and tab with --set ingest.delimiter=X."

    def read(paths: Sequence[Sequence[Step]]) -> Iterator[Values]:
        index = [names.index(str(steps[0])) if steps else None for steps in paths]
        for number, row in chain([one], remaining):
            yield number, [None if n is None else row[n] for n in index]

    return Container(dict(zip(names, one[1], strict=True)), f"{path}:", f"{path}:{one[0]}", read, hint)


def of_records(place: str, rows: Iterator[Record], where: str) -> Container:
    """Return a container of objects. `place`: as in `Container`. `where`: location if there are no records."""
    head, example = list(islice(rows, 100)), dict[str, Any]()
    for _, record in head:
        for name, value in record.items():
            if name not in example or example[name] in (None, "", [], {}):
                example[name] = value

    def read(paths: Sequence[Sequence[Step]]) -> Iterator[Values]:
        for number, record in chain(head, rows):
            if not record.keys() <= example.keys():
                example.update({name: value for name, value in record.items() if name not in example})
            yield number, [walk(record, steps) if steps else None for steps in paths]

    return Container(example or None, place, f"{place}{head[0][0]}" if head else where, read)


def open_lines(path: Path, params: IngestParams, bad: Bad) -> Container:
    """Open a file of JSON lines."""

    def rows() -> Iterator[Record]:
        for number, line in enumerate(read_lines(path, params.encoding), start=1):
            if line.strip():
                try:
                    yield number, parse_object(line, f"{path}:{number}")
                except CheckError as error:
                    bad("not a JSON object", str(error))

    return of_records(f"{path}:", rows(), str(path))


def open_json(path: Path, encoding: str | None, memory: int) -> Any:
    """Read a JSON file. It must fit into a quarter of the memory, because objects take several times its size."""
    parts, limit = list[str](), max(memory // 4, _WHOLE)
    left = limit
    for text in read_texts(path, encoding):
        parts.append(text)
        if (left := left - len(text)) < 0:
            hint = "Increase --memory, or convert it to JSON lines or Parquet, which are read in batches."
            raise CheckError(f"JSON of more than {limit:,} characters", where=str(path), hint=hint)
    return parse_json("".join(parts), str(path))


def open_arrow(path: Path, form: str, memory: int) -> Container:
    """Open a Parquet file, or an Arrow IPC stream or file, such as the .arrow files of `save_to_disk`."""
    check_regular(path)
    kind = "Arrow" if form == "arrow" else "Parquet"
    try:
        schema = _open_ipc(path)[0] if form == "arrow" else pq.read_schema(path)
    except DAMAGE as error:
        raise CheckError(f"not {kind}: {error}", where=str(path)) from error

    def read(paths: Sequence[Sequence[Step]]) -> Iterator[Values]:
        start, wanted = 0, [steps for steps in paths if steps]
        try:
            names = list(dict.fromkeys(str(steps[0]) for steps in wanted))
            batches = _open_ipc(path)[1] if form == "arrow" else _of_parquet(path, wanted, memory)
            for batch in (batch.select(names) for batch in batches):
                # In a damaged file, offsets may point out of bounds, and texts may not be UTF-8.
                batch.validate(full=True)
                size = min(_ROWS, 1 + len(batch) * LONGEST // max(1, batch.nbytes))
                for part in (batch.slice(at, size) for at in range(0, len(batch), size)):
                    columns = [_values(part, steps) if steps else repeat(None, len(part)) for steps in paths]
                    yield from enumerate(zip(*columns, strict=True), start)
                    start += len(part)
        except DAMAGE as error:
            raise CheckError(f"not {kind}: {error}", where=f"{path}: from row {start}") from error

    example = {field.name: _example(field.type) for field in schema}
    return Container(example, f"{path}: row ", str(path), read)


def _open_ipc(path: Path) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Open an IPC stream or file as a memory map."""
    try:
        stream = pa.ipc.open_stream(pa.memory_map(str(path)))
    except pa.ArrowInvalid:
        file = pa.ipc.open_file(pa.memory_map(str(path)))
        return file.schema, (file.get_batch(i) for i in range(file.num_record_batches))
    return stream.schema, iter(stream)


def _of_parquet(path: Path, paths: Sequence[Sequence[Step]], memory: int) -> Iterator[pa.RecordBatch]:
    plain = pq.ParquetFile(path)
    chosen = {str(steps[0]): steps for steps in paths}
    # Read only the path of an image, not its bytes.
    leaves = [".".join(map(str, s)) if _is_struct(plain.schema_arrow, s) else name for name, s in chosen.items()]
    wanted = [n for n, one in enumerate(plain.schema) if one.path.startswith(tuple(leaves))]
    coded = pq.ParquetFile(path, read_dictionary=[plain.schema.column(n).path for n in wanted])
    for group in range(plain.num_row_groups):
        size = sum(plain.metadata.row_group(group).column(n).total_uncompressed_size for n in wanted)
        if size > memory // 2:
            hint = "Increase --memory, or write the file with smaller row groups."
            raise CheckError(f"row group {group} unpacks to {size:,} bytes", where=str(path), hint=hint)
        # A dictionary of a few kilobytes may decode to gigabytes of text, so its longest entry is checked first.
        head = next(coded.iter_batches(1, row_groups=[group], columns=leaves), None)
        large = head is not None and any(_longest(array) * _ROWS > 4 * LONGEST for array in head.columns)
        yield from (coded if large else plain).iter_batches(_ROWS, row_groups=[group], columns=leaves)


def _is_struct(schema: pa.Schema, steps: Sequence[Step]) -> bool:
    return bool(pa.types.is_struct(schema.field(str(steps[0])).type)) and all(isinstance(step, str) for step in steps)


def _longest(array: pa.Array) -> int:
    """Return the number of bytes of the longest entry of a dictionary, or 0 for any other array."""
    array = array.values if _is_list(array.type) else array
    return (pc.max(pc.binary_length(array.dictionary)).as_py() or 0) if pa.types.is_dictionary(array.type) else 0


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _values(batch: pa.RecordBatch, steps: Sequence[Step]) -> list[Any]:
    array, rest = batch.column(str(steps[0])), steps[1:]
    while rest and isinstance(rest[0], str) and pa.types.is_struct(array.type):
        array, rest = pc.struct_field(array, rest[0]), rest[1:]
    values = _objects(array)
    return [walk(value, rest) for value in values] if rest else values


def _objects(array: pa.Array) -> list[Any]:
    """Convert an array to Python values. Rows with the same dictionary entry share one object."""
    if _is_list(array.type):
        items = iter(_objects(array.flatten()))
        return [None if n is None else list(islice(items, n)) for n in pc.list_value_length(array).to_pylist()]
    if pa.types.is_dictionary(array.type):
        used = array.indices.unique()
        entries = dict(zip(used.to_pylist(), array.dictionary.take(used).to_pylist(), strict=True))
        return [entries[n] for n in array.indices.to_pylist()]
    return array.to_pylist()  # type: ignore[no-any-return]


def _example(kind: pa.DataType) -> Any:
    """Return an example value of a type, for the detection of columns."""
    if pa.types.is_dictionary(kind):
        return _example(kind.value_type)
    if pa.types.is_struct(kind):
        return {field.name: _example(field.type) for field in kind}
    if _is_list(kind) or pa.types.is_fixed_size_list(kind):
        return [_example(kind.value_type)]
    return "" if _is_text(kind) or pa.types.is_null(kind) or pa.types.is_string_view(kind) else 0
