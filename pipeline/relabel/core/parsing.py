"""Files that a user names: checks of the path, strict UTF-8, JSON, ids and names of splits."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from relabel.core.errors import CheckError, MissingError, UsageError


def check_regular(path: Path, problem: str = "no such file", todo: str | None = None) -> Path:
    """Return the path if it is a regular file, else raise.

    Files are hashed before they are read. A pipe would be empty at the second pass, and a device may never end.

    `problem`, `todo`: message for a missing file.
    """
    if not path.exists():
        raise MissingError(problem, where=str(path), todo=todo)
    if path.is_dir():
        raise MissingError("expected a file, found a folder", where=str(path))
    if not path.is_file():
        raise UsageError("not a regular file", where=str(path), todo="Give a file; pipes and devices are not read.")
    return path


MAX_BYTES = 8 << 30
"""Maximum size of an unpacked .gz file in bytes. gzip can expand a file a thousandfold."""
_CHUNK = 1 << 22

SPLIT_NAMES = {
    "train": "train",
    "restval": "train",
    "val": "val",
    "dev": "val",
    "validation": "val",
    "test": "test",
    "testall": "test",
}
"""Names of splits in the supported formats (Karpathy's JSON, SCAN's files, dataset hubs), and the split they mean."""


def read_bytes(path: Path) -> bytes:
    """Read a file without its byte order mark, unpacked if its name ends in .gz."""
    check_regular(path)
    try:
        raw = _unpack(path) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CheckError(f"not complete gzip: {error}", where=str(path), todo="Fetch it again.") from error
    return raw.removeprefix(codecs.BOM_UTF8)


def _unpack(path: Path) -> bytes:
    # Counted while it is unpacked, so that a small file of terabytes stops before memory is full.
    chunks, size = [], 0
    with gzip.open(path) as file:
        while chunk := file.read(_CHUNK):
            chunks.append(chunk)
            size += len(chunk)
            if size > MAX_BYTES:
                raise CheckError(f"unpacks to more than {MAX_BYTES:,} bytes", where=str(path))
    return b"".join(chunks)


def read_text(path: Path) -> str:
    """Read a text file. Raises like `read_bytes`, and CheckError with the number of a line that is not UTF-8."""
    raw = read_bytes(path)
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise CheckError(_not_utf8(error), where=f"{path}:{line}") from error


def read_lines(path: Path) -> Iterator[tuple[str, str]]:
    r"""Yield `file:line` and the text of every line without its end (LF or CR LF). Raises like `read_text`."""
    text = read_text(path)
    # Only LF ends a line: a caption may hold any other character that Unicode counts as a line break.
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else (), start=1):
        yield f"{path}:{number}", line.removesuffix("\r")


def read_csv(path: Path, delimiter: str = ",", quotes: bool = True) -> Iterator[tuple[str, list[str]]]:
    """Yield `file:line` of the first line, and the fields, of each record that is not blank. Raises like `read_text`.

    `quotes`: whether a field may be quoted, and hold line breaks then. Without, quotes are part of the fields.
    """
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
    # `newline=""` leaves line breaks inside quoted fields to the reader. `strict` makes an unclosed quote an error;
    # without it, the rest of the file is one field.
    text = io.StringIO(read_text(path), newline="")
    reader = csv.reader(text, delimiter=delimiter, strict=True, quoting=quoting)
    while True:
        where = f"{path}:{reader.line_num + 1}"
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            todo = "If quotes are part of the text, set quotes to false." if quotes else None
            raise CheckError(f"not CSV: {error}", where=where, todo=todo) from error
        if fields:
            yield where, fields


def read_csv_records(
    path: Path, delimiter: str = ",", quotes: bool = True, names: Sequence[str] = ()
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield `file:line` and the fields by column of each record of a CSV file. Raises like `read_csv`.

    `names`: columns of a file without a header.
    """
    header = list(names)
    for where, fields in read_csv(path, delimiter, quotes):
        if not header:
            header = fields
            if repeated := [name for name in header if header.count(name) > 1]:
                raise CheckError(f"column {repeated[0]!r} appears twice", where=where)
        elif len(fields) != len(header):
            raise CheckError(f"expected {len(header)} fields, as in the header; found {len(fields)}", where=where)
        else:
            yield where, dict(zip(header, fields, strict=True))


def read_json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield `file:line` and the object of each line that is not blank. Raises like `read_text` and `parse_json`."""
    for number, (where, line) in enumerate(read_lines(path), start=1):
        if line.strip():
            record = parse_json(line, str(path), number)
            if not isinstance(record, dict):
                raise CheckError(f"expected an object, found {type(record).__name__}", where=where)
            yield where, record


def read_json(path: Path) -> Any:
    """Read a JSON file. Raises like `read_bytes`, and CheckError with the position of invalid bytes or syntax."""
    raw = read_bytes(path)
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise CheckError(_not_utf8(error), where=f"{path}: byte {error.start}") from error
    return parse_json(text, str(path))


def parse_json(text: str, path: str, line: int | None = None) -> Any:
    """Parse JSON.

    `path`: file of the text, for messages. `line`: line of the file that `text` is; None if `text` is the complete
    file.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"{path}:{line or error.lineno}"
        raise CheckError(f"not JSON: {error.msg} (column {error.colno})", where=where) from error
    except (RecursionError, ValueError) as error:
        # Nested too deeply, or a number with more digits than Python converts.
        raise CheckError(f"not JSON of captions: {error}", where=path if line is None else f"{path}:{line}") from error


def typed(record: Any, key: str, kind: type, where: str) -> Any:
    """Return ``record[key]``, which must exist and have exactly the type `kind`."""
    if not isinstance(record, dict):
        raise CheckError(f"expected an object, found {_name(record)}", where=where)
    if key not in record:
        raise CheckError(f"missing key {key!r}", where=where)
    value = record[key]
    # Not `isinstance`: a bool is an int in Python, and true is not a valid id.
    if type(value) is not kind:
        raise CheckError(f"{key!r}: expected {_NAMES[kind]}, found {_name(value)}", where=where)
    return value


def identifier(value: object, key: str, where: str) -> str:
    """Return an id that a file holds as a string or a whole number; "" for null."""
    if value is None:
        return ""
    if type(value) not in (str, int):
        raise CheckError(f"{key!r}: expected a string or a whole number, found {_name(value)}", where=where)
    return str(value)


def namespaced(namespace: str, value: str) -> str:
    """Prefix an id with a namespace unless it has that prefix. "" is returned unchanged, for the checks to report."""
    return value if not value or value.startswith(f"{namespace}:") else f"{namespace}:{value}"


def split_name(value: str) -> str:
    """Return train, val or test for a format's name of a split. Other names are returned unchanged, for the checks."""
    return SPLIT_NAMES.get(value, value)


_NAMES: dict[type, str] = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
    type(None): "null",
}


def _name(value: object) -> str:
    return _NAMES.get(type(value), type(value).__name__)


def _not_utf8(error: UnicodeDecodeError) -> str:
    return f"not UTF-8: {error.reason} (0x{error.object[error.start]:02x})"
