"""JSON lines: one object a line, one caption an object."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from relabel.captions import Caption
from relabel.errors import CheckError
from relabel.readers.columns import Columns
from relabel.readers.files import parse_json, read_lines


def read_jsonl(path: Path, namespace: str, columns: Columns) -> Iterator[Caption]:
    """Read a .jsonl file, plain or .gz; blank lines are skipped.

    Raises
    ------
    MissingError
        If the file is not there.
    CheckError
        If a line is not UTF-8, not a JSON object, lacks a key or has a value of the wrong type; names file and line.
    """
    names: tuple[str, ...] = ()
    for number, (where, line) in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        record = parse_json(line, str(path), number)
        if not isinstance(record, dict):
            raise CheckError(f"expected an object, found {type(record).__name__}", where=where)
        names = names or columns.find(record, where)
        try:
            values = [record[name] for name in names]
        except KeyError as error:
            raise CheckError(f"no {error.args[0]!r} here", where=where) from error
        yield columns.caption(names, values, namespace, where)
