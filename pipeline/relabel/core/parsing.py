"""Readers of user files: checks of paths, text in strict UTF-8, CSV, JSON and ids."""

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


def check_regular(path: Path, problem: str = "no such file", hint: str | None = None) -> Path:
    """Return `path` if it is a regular file; raise otherwise. `problem`, `hint`: message for a missing file."""
    # Files are hashed before they are read: a pipe would be empty at the second pass, and a device may never end.
    if not path.is_file():
        kind = "found a folder" if path.is_dir() else "not a regular file"
        raise MissingError(kind if path.exists() else problem, where=str(path), hint=hint)
    return path


MAX_BYTES = 8 << 30
"""Maximum size of an unpacked .gz file in bytes. gzip can expand a file by a factor of 1,000."""


GZIP = b"\x1f\x8b"
"""First bytes of every gzip file."""

LONGEST_LINE = 16 << 20
"""Maximum number of characters per line: a gzip file of a few megabytes can hold a line of gigabytes."""
_BLOCK = 1 << 20  # bytes per read


def read_blocks(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file in blocks, unpacking gzip."""
    size = 0
    with check_regular(path).open("rb") as plain:
        packed = plain.read(2) == GZIP or path.suffix == ".gz"
        plain.seek(0)
        file = gzip.GzipFile(fileobj=plain) if packed else plain
        try:
            while block := file.read(_BLOCK):
                size += len(block)
                if packed and size > MAX_BYTES:
                    raise CheckError(f"unpacks to more than {MAX_BYTES:,} bytes", where=str(path))
                yield block
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise CheckError(
                f"damaged or incomplete gzip file: {error}", where=str(path), hint="Fetch it again."
            ) from error


def decoded(blocks: Iterable[bytes], where: Path | str, encoding: str | None = None) -> Iterator[str]:
    """Decode blocks of bytes: UTF-8 with or without a byte order mark, UTF-16 with one, or the given `encoding`.

    `where`: origin of the bytes, for the error message. For a path, the message includes the line.
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
    """Split a text that arrives in chunks into lines, keeping line ends.

    Only LF ends a line, or CR in a file without LF. Other Unicode line breaks may be part of a caption.
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
    """Read a file, unpacking gzip and removing a UTF-8 byte order mark."""
    return b"".join(read_blocks(path)).removeprefix(codecs.BOM_UTF8)


def read_text(path: Path) -> str:
    """Read a text file. An error about invalid UTF-8 names the line."""
    return "".join(decoded(read_blocks(path), path))


def read_lines(path: Path) -> Iterator[tuple[str, str]]:
    r"""Yield `file:line` and the text of every line, without the line end (LF or CR LF)."""
    for number, line in enumerate(text_lines(decoded(read_blocks(path), path), path), start=1):
        yield f"{path}:{number}", line.removesuffix("\n").removesuffix("\r")


def read_csv_records(
    path: Path, delimiter: str | None = ",", quotes: bool = True, names: Sequence[str] = ()
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield, for each record that is not blank, `file:line` of its first line and its fields by column name.

    `delimiter`: None selects the one of ``,``, ``;`` and tab that splits the header into more columns than the others.
    `quotes`: whether fields may be quoted and then contain line breaks. If False, quotes are part of the fields.
    `names`: column names of a file without a header.
    """
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
    # `newline=""` keeps line breaks inside quoted fields. `strict` makes an unclosed quote an error; otherwise the
    # rest of the file would be one field.
    text = io.StringIO(read_text(path), newline="")
    header, where = list(names), f"{path}:1"
    try:
        if delimiter is None:
            first = next((line for line in text if line.strip()), "")
            text.seek(0)
            delimiter = max(",;\t", key=lambda c: len(next(csv.reader([first], delimiter=c, quoting=quoting), [])))
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
        hint = "If quotes are part of the text, set quotes to false." if quotes else None
        raise CheckError(f"not CSV: {error}", where=where, hint=hint) from error


def read_json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield `file:line` and the object of each line that is not blank."""
    for where, line in read_lines(path):
        if line.strip():
            yield where, parse_object(line, where)


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    return parse_json(read_text(path), str(path))


def read_json_list(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield `file: record N` and the object for each record of a JSON file that holds a list of objects."""
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
    """Parse JSON. `where`: its origin, for the error message."""
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        # Also raised for invalid UTF-8, deep nesting, and numbers with more digits than Python converts.
        raise CheckError(f"not JSON: {error}", where=where) from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs as a dict, and raise for duplicate keys, of which Python would keep the last."""
    body = dict(pairs)
    if len(body) < len(pairs):
        ((key, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"duplicate key {key[:100]!r} in an object")
    return body


def identifier(value: object, key: str, where: str) -> str:
    """Return an id as text. Files may hold it as a string, an integer or an integral float; null and NaN give ""."""
    if isinstance(value, float) and (value != value or value.is_integer()):
        value = None if value != value else int(value)
    if value is not None and type(value) not in (str, int):
        problem = f"{key!r}: expected a string or an integer, found {type(value).__name__}"
        raise CheckError(problem, where=where)
    return "" if value is None else str(value)


def namespaced(namespace: str, value: str) -> str:
    """Prefix an id with a namespace unless it has that prefix. "" is returned unchanged; later checks report it."""
    return value if not value or value.startswith(f"{namespace}:") else f"{namespace}:{value}"
