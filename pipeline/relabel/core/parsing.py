"""Files that a user names: checks of the path, strict UTF-8, JSON and ids."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from relabel.core.errors import CheckError, MissingError


def check_regular(path: Path, problem: str = "no such file", todo: str | None = None) -> Path:
    """Return the path if it is a regular file, else raise. `problem`, `todo`: message for a missing file."""
    # Files are hashed before they are read: a pipe would be empty at the second pass, and a device may never end.
    if not path.is_file():
        there = "found a folder" if path.is_dir() else "not a regular file"
        raise MissingError(there if path.exists() else problem, where=str(path), todo=todo)
    return path


MAX_BYTES = 8 << 30
"""Maximum size of an unpacked .gz file in bytes. gzip can expand a file a thousandfold."""


LONGEST_LINE = 16 << 20
"""Maximum number of characters of a line: gzip can pack a line of gigabytes into a few megabytes."""
_BLOCK = 1 << 20  # bytes that are read at once


def read_blocks(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file, unpacked if they are gzip."""
    size = 0
    with check_regular(path).open("rb") as plain:
        packed = plain.read(2) == b"\x1f\x8b" or path.suffix == ".gz"
        plain.seek(0)
        file = gzip.GzipFile(fileobj=plain) if packed else plain
        try:
            while block := file.read(_BLOCK):
                size += len(block)
                if packed and size > MAX_BYTES:
                    raise CheckError(f"unpacks to more than {MAX_BYTES:,} bytes", where=str(path))
                yield block
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise CheckError(f"not complete gzip: {error}", where=str(path), todo="Fetch it again.") from error


def decoded(blocks: Iterable[bytes], where: Path | str, encoding: str | None = None) -> Iterator[str]:
    """Yield the text of bytes: UTF-8 with or without a byte order mark, UTF-16 with one, or what `encoding` names.

    `where`: for the error of bytes that are no such text; of a file, the error names the line.
    """
    rest, line = iter(blocks), 1
    first = next(rest, b"")
    utf16 = first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    name = encoding or ("utf-16" if utf16 else "utf-8")
    try:
        decoder = codecs.getincrementaldecoder("utf-8-sig" if name.lower() in ("utf-8", "utf8") else name)()
        for block in chain([first], rest):
            yield (text := decoder.decode(block))
            line += text.count("\n")
        yield decoder.decode(b"", True)
    except (UnicodeDecodeError, LookupError) as error:
        line += error.object.count(b"\n", 0, error.start) if isinstance(error, UnicodeDecodeError) else 0
        problem = f"not {name.upper()}: {getattr(error, 'reason', error)}"
        raise CheckError(problem, where=f"{where}:{line}" if isinstance(where, Path) else where) from error


def text_lines(texts: Iterable[str], path: Path) -> Iterator[str]:
    """Yield the lines of a text, which comes in pieces, with their ends.

    Only LF ends a line, or CR in a file without LF: a caption may hold any other line break of Unicode.
    """
    rest, count, end = "", 1, ""
    for text in texts:
        end = end or ("\r" if "\r" in text and "\n" not in text else "\n")
        *lines, rest = (rest + text).split(end)
        yield from (f"{line}{end}" for line in lines)
        count += len(lines)
        if len(rest) > LONGEST_LINE:
            raise CheckError(f"a line of more than {LONGEST_LINE:,} characters", where=f"{path}:{count}")
    if rest:
        yield rest


def read_bytes(path: Path) -> bytes:
    """Read a file without its byte order mark, unpacked if it is gzip."""
    return b"".join(read_blocks(path)).removeprefix(codecs.BOM_UTF8)


def read_text(path: Path) -> str:
    """Read a text file; the error of bytes that are not UTF-8 names their line."""
    return "".join(decoded(read_blocks(path), path))


def read_lines(path: Path) -> Iterator[tuple[str, str]]:
    r"""Yield `file:line` and the text of every line without its end (LF or CR LF)."""
    for number, line in enumerate(text_lines(decoded(read_blocks(path), path), path), start=1):
        yield f"{path}:{number}", line.removesuffix("\n").removesuffix("\r")


def read_csv_records(
    path: Path, delimiter: str | None = ",", quotes: bool = True, names: Sequence[str] = ()
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield `file:line` of the first line, and the fields by column, of each record that is not blank.

    `delimiter`: None takes the one of ``,``, ``;`` and tab that splits the header into most columns.
    `quotes`: whether a field may be quoted, and hold line breaks then. Without, quotes are part of the fields.
    `names`: columns of a file without a header.
    """
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
    # `newline=""` leaves line breaks inside quoted fields to the reader. `strict` makes an unclosed quote an error;
    # without it, the rest of the file is one field.
    text = io.StringIO(read_text(path), newline="")
    header, where = list(names), f"{path}:1"
    try:
        if delimiter is None:
            first = next((line for line in text if line.strip()), "")
            text.seek(0)
            delimiter = max(",;\t", key=lambda one: len(next(csv.reader([first], delimiter=one, quoting=quoting), [])))
        reader = csv.reader(text, delimiter=delimiter, strict=True, quoting=quoting)
        for fields in reader:
            if fields and not header:
                header = fields
                if repeated := [name for name in header if header.count(name) > 1]:
                    raise CheckError(f"column {repeated[0]!r} appears twice", where=where)
            elif fields and len(fields) != len(header):
                columns = f"{', '.join(header)} (separator {delimiter!r})"
                problem = f"expected the columns {columns}; found {len(fields)} fields"
                raise CheckError(problem, where=where)
            elif fields:
                yield where, dict(zip(header, fields, strict=True))
            where = f"{path}:{reader.line_num + 1}"
    except csv.Error as error:
        todo = "If quotes are part of the text, set quotes to false." if quotes else None
        raise CheckError(f"not CSV: {error}", where=where, todo=todo) from error


def read_json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield `file:line` and the object of each line that is not blank."""
    for where, line in read_lines(path):
        if line.strip():
            yield where, parse_object(line, where)


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    return parse_json(read_text(path), str(path))


def read_json_list(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield `file: record N` and each object of a JSON file that is a list of objects."""
    body = read_json(path)
    if not isinstance(body, list):
        raise CheckError(f"expected a list of objects, found {type(body).__name__}", where=str(path))
    for n, record in enumerate(body):
        where = f"{path}: record {n}"
        yield where, _object(record, where)


def parse_object(text: str | bytes, where: str) -> dict[str, Any]:
    """Parse a JSON object."""
    return _object(parse_json(text, where), where)


def _object(record: Any, where: str) -> dict[str, Any]:
    if not isinstance(record, dict):
        raise CheckError(f"expected an object, found {type(record).__name__}", where=where)
    return record


def parse_json(text: str | bytes, where: str) -> Any:
    """Parse JSON; `where`: its place, for the error."""
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        # Besides faulty syntax: no UTF-8, deep nesting, or a number of more digits than Python converts.
        raise CheckError(f"not JSON: {error}", where=where) from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; Python would keep the last one of two values with equal keys."""
    found = dict(pairs)
    if len(found) < len(pairs):
        ((key, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"an object has two values {key[:100]!r}")
    return found


def identifier(value: object, key: str, where: str) -> str:
    """Return an id that a file holds as a string or a whole number, also as a float; "" for null and NaN."""
    if isinstance(value, float) and (value != value or value.is_integer()):
        value = None if value != value else int(value)
    if value is not None and type(value) not in (str, int):
        problem = f"{key!r}: expected a string or a whole number, found {type(value).__name__}"
        raise CheckError(problem, where=where)
    return "" if value is None else str(value)


def namespaced(namespace: str, value: str) -> str:
    """Prefix an id with a namespace unless it has that prefix. "" is returned unchanged, for the checks to report."""
    return value if not value or value.startswith(f"{namespace}:") else f"{namespace}:{value}"
