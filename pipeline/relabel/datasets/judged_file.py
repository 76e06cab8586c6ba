"""Judgements of the user: a file of references, candidates and human ratings.

One record per rated pair, as JSON Lines, CSV or Parquet: `references` (a list) or `reference` (one text), `candidate`,
`human` (a number) and, optionally, `group`. A text may be given by its caption id.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from relabel.core.errors import CheckError
from relabel.core.parsing import check_regular, parse_json, read_lines, read_text
from relabel.datasets.judged import JudgedSet, Judgements, Statistic

JUDGEMENT_FILES = (".jsonl", ".csv", ".parquet")
"""Endings of the files that are read."""
_NAMES = {
    "pearson": "Pearson's r",
    "spearman": "Spearman's rho",
    "tau_b": "Kendall's tau-b",
    "tau_c": "Kendall's tau-c",
}


class _Rating(NamedTuple):
    references: list[str]
    candidate: str
    human: float
    group: str


def judged_file(
    path: Path, statistic: Statistic = "pearson", texts: Mapping[str, str] = MappingProxyType({})
) -> JudgedSet:
    """Make a judged set of a file.

    `path`: JSON Lines (.jsonl), CSV (.csv, `references` as a JSON list) or Parquet (.parquet). `statistic`: compares
    the ratings with the scores of a label, over all pairs and in each group. `texts`: captions by id: a reference or
    candidate that is an id stands for its caption.
    """
    return JudgedSet(
        name=path.name,
        title=f"{path.name}: {_NAMES[statistic]} with human ratings",
        dataset=path.stem,
        # A set reads files of its manifest; this one reads the user's file.
        read=lambda _: _read(path, texts),
        statistics=(statistic,),
        pair_ids="number of the record, from 1",
        protocol=f"Ratings of {path.name}; the references of a pair stand for its image.",
    )


def _read(path: Path, texts: Mapping[str, str]) -> Judgements:
    ratings = [_rating(record, where, texts) for where, record in read_records(path)]
    if not ratings:
        raise CheckError("no judgements", where=str(path), todo="Write one record per rated pair.")
    return Judgements(
        ids=[str(number) for number in range(1, len(ratings) + 1)],
        references=[rating.references for rating in ratings],
        candidates=[rating.candidate for rating in ratings],
        ratings=np.array([[rating.human] for rating in ratings]),
        groups=[rating.group for rating in ratings],
        # The file does not say which pairs share an image, so each pair is a cluster.
        clusters=[str(number) for number in range(len(ratings))],
    )


def read_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    r"""Yield `file:line` and the record of every line or row of a JSON Lines, CSV or Parquet file."""
    check_regular(path, todo="Name a file of judgements or scores.")
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            table = pq.read_table(path)
        except (pa.ArrowInvalid, OSError) as error:
            raise CheckError(f"not Parquet: {error}", where=str(path)) from error
        yield from ((f"{path}: row {number}", record) for number, record in enumerate(table.to_pylist(), 1))
    elif path.suffix == ".csv":
        # `strict` makes an unclosed quote an error; without it, the rest of the file is one cell.
        reader = csv.DictReader(io.StringIO(read_text(path), newline=""), strict=True)
        try:
            yield from ((f"{path}:{reader.line_num}", record) for record in reader)
        except csv.Error as error:
            raise CheckError(f"not CSV: {error}", where=f"{path}:{reader.line_num}") from error
    else:
        for number, (where, line) in enumerate(read_lines(path), 1):
            if line.strip():
                record = parse_json(line, str(path), number)
                if not isinstance(record, dict):
                    raise CheckError("expected a JSON object", where=where, todo='Write {"references": [...], ...}.')
                yield where, record


def _rating(record: Mapping[str, Any], where: str, texts: Mapping[str, str]) -> _Rating:
    references, candidate = texts_of(record, where)
    group = record.get("group")
    return _Rating(
        [texts.get(value, value) for value in references],
        texts.get(candidate, candidate),
        number_of(record, "human", where),
        "all" if group in (None, "") else str(group),
    )


def texts_of(record: Mapping[str, Any], where: str) -> tuple[list[str], str]:
    """Return the references and the candidate of a record."""
    values = record.get("references")
    # CSV has no lists: a cell holds one as JSON.
    if isinstance(values, str):
        try:
            values = json.loads(values)
        except ValueError:
            values = None
    if values is None and record.get("reference"):
        values = [record["reference"]]
    candidate = record.get("candidate")
    if not isinstance(values, list) or not values or not all(isinstance(v, str) and v.strip() for v in values):
        problem = "expected `references`, a list of texts, or `reference`, a text"
        raise CheckError(problem, where=where, todo="Give each judged pair its references.")
    if not isinstance(candidate, str) or not candidate.strip():
        raise CheckError("expected `candidate`, a text", where=where, todo="Give each judged pair its candidate.")
    return values, candidate


def number_of(record: Mapping[str, Any], name: str, where: str) -> float:
    """Return a finite number of a record."""
    value = record.get(name)
    try:
        # A bool is a number for `float`, but no rating. NaN is refused below, as infinity is.
        number = math.nan if isinstance(value, bool) or value is None else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise CheckError(f"expected `{name}`, a number, found {value!r}", where=where, todo="Give every record one.")
    return number
