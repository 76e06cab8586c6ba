"""What the readers share: files as strict UTF-8, JSON, ids and the names of splits."""

from __future__ import annotations

import codecs
import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from relabel.core.errors import CheckError, MissingError
from relabel.core.user_files import check_regular

MOST_BYTES = 8 << 30
"""Most bytes that a .gz may unpack to: a thousand times the size of the file is possible."""
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
"""How the splits are called in the formats read here (Karpathy's JSON, SCAN's files, the hubs), and what they are."""


def read_bytes(path: Path) -> bytes:
    """Read a file, unpacked if its name ends in .gz, without a byte order mark.

    Raises
    ------
    MissingError
        If it is not there or cannot be opened.
    CheckError
        If it is not whole gzip, or unpacks to more than `MOST_BYTES`.
    UsageError
        If it is no regular file.
    """
    check_regular(path)
    try:
        raw = _unpack(path) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CheckError(f"not whole gzip: {error}", where=str(path), todo="Fetch it again.") from error
    except OSError as error:
        raise MissingError(f"cannot be read: {error.strerror}", where=str(path)) from error
    return raw.removeprefix(codecs.BOM_UTF8)


def _unpack(path: Path) -> bytes:
    chunks, size = [], 0
    with gzip.open(path) as file:
        while chunk := file.read(_CHUNK):
            chunks.append(chunk)
            size += len(chunk)
            if size > MOST_BYTES:
                raise CheckError(f"unpacks to more than {MOST_BYTES:,} bytes", where=str(path))
    return b"".join(chunks)


def read_text(path: Path) -> str:
    """Read a text file; raises as `read_bytes`, and CheckError naming the line that is not UTF-8."""
    raw = read_bytes(path)
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise CheckError(_not_utf8(error), where=f"{path}:{line}") from error


def read_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield `file:line` and the text of every line, its end (LF or CR LF) cut off; raises as `read_text`.

    Only LF ends a line: captions may hold any other character that Unicode counts as a line break.
    """
    text = read_text(path)
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else (), start=1):
        yield f"{path}:{number}", line.removesuffix("\r")


def read_json(path: Path) -> Any:
    """Read a JSON file; raises as `read_bytes`, and CheckError naming the byte or line that is wrong."""
    raw = read_bytes(path)
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise CheckError(_not_utf8(error), where=f"{path}: byte {error.start}") from error
    return parse_json(text, str(path))


def parse_json(text: str, path: str, line: int | None = None) -> Any:
    """Parse JSON; `line` is the line of `path` that `text` is, None if it is all of it.

    Raises
    ------
    CheckError
        Naming file, line and column.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"{path}:{line or error.lineno}"
        raise CheckError(f"not JSON: {error.msg} (column {error.colno})", where=where) from error
    except (RecursionError, ValueError) as error:
        raise CheckError(f"not JSON of captions: {error}", where=path if line is None else f"{path}:{line}") from error


def typed(record: Any, key: str, kind: type, where: str) -> Any:
    """Return ``record[key]``, which must be there and of a type.

    Raises
    ------
    CheckError
        Saying what was expected and what was found.
    """
    if not isinstance(record, dict):
        raise CheckError(f"expected an object, found {_name(record)}", where=where)
    if key not in record:
        raise CheckError(f"no {key!r} here", where=where)
    value = record[key]
    if type(value) is not kind:
        raise CheckError(f"{key!r}: expected {_NAMES[kind]}, found {_name(value)}", where=where)
    return value


def identifier(value: object, key: str, where: str) -> str:
    """Return an id that a file holds as a string or a whole number; "" if it holds none.

    Raises
    ------
    CheckError
        If it is anything else.
    """
    if value is None:
        return ""
    if type(value) not in (str, int):
        raise CheckError(f"{key!r}: expected a string or a whole number, found {_name(value)}", where=where)
    return str(value)


def namespaced(namespace: str, value: str) -> str:
    """Put the namespace before an id that has none; "" stays as it is, for the checks to find."""
    return value if not value or value.startswith(f"{namespace}:") else f"{namespace}:{value}"


def split_name(value: str) -> str:
    """Return train, val or test for any name a format has for them; any other name as it is, for the checks to find."""
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
