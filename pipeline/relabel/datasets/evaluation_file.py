"""Human ratings from a user's file of references, candidates and ratings.

The file is JSON Lines, CSV or Parquet with one record per rated pair: `references` (a list) or `reference` (one text),
`candidate`, `human` (a number) and, optionally, `group`. Texts may be given by caption id.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from relabel.core.errors import CheckError
from relabel.core.parsing import check_regular, read_csv_records, read_json_lines, read_json_list
from relabel.datasets.download import read_texts
from relabel.datasets.evaluation_sets import ALL, EvaluationSet, Item, Statistic, judgements

JUDGEMENT_FILES = (".jsonl", ".csv", ".parquet")
"""Suffixes of supported files."""


def evaluation_file(
    path: Path, statistic: Statistic = "pearson", texts: Mapping[str, str] = MappingProxyType({})
) -> EvaluationSet:
    """Create an evaluation set from a user's file.

    `path`: JSON Lines (.jsonl), CSV (.csv, with `references` as a JSON list) or Parquet (.parquet). `statistic`:
    correlation between ratings and scores of a label, over all pairs and per group. `texts`: captions by id. References
    and candidates that are ids are replaced by their captions.
    """
    return EvaluationSet(
        name=path.name,
        title=f"{path.name}: correlation with human ratings",
        dataset=path.stem,
        # Unlike other sets, it does not need the files of a manifest.
        read=lambda _: judgements(read_items(path, texts)),
        statistics=(statistic,),
        pair_ids="number of the record, from 1",
        protocol=f"Ratings of {path.name}; an image is represented by the references of its pair.",
    )


def read_items(
    path: Path, texts: Mapping[str, str] = MappingProxyType({}), names: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Item]:
    """Yield the rated pairs of a file. `texts`: captions by id. `names`: renames columns of the file."""
    number = 0
    for number, (where, row) in enumerate(read_records(path), 1):
        record = {names.get(name, name): value for name, value in row.items()}
        references, candidate = texts_of(record, where)
        pair = str(number), [texts.get(text, text) for text in references], texts.get(candidate, candidate)
        group = record.get("group")
        # Pairs that share an image are not known, so each pair is a cluster.
        yield Item([pair], [number_of(record, "human", where)], group=ALL if group in (None, "") else str(group))
    if not number:
        raise CheckError("the file has no records", where=str(path), hint="Write one record per rated pair.")


def read_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield `file:line` and the record of every line or row of a JSON Lines, JSON, CSV or Parquet file."""
    check_regular(path, hint="Give the path of a file of judgements or scores.")
    if path.suffix == ".parquet":
        import pyarrow as pa

        try:
            table = read_texts(path)
        except (pa.ArrowInvalid, OSError) as error:
            raise CheckError(f"not Parquet: {error}", where=str(path)) from error
        yield from ((f"{path}: row {number}", record) for number, record in enumerate(table.to_pylist(), 1))
    else:
        read = {".csv": read_csv_records, ".json": read_json_list}.get(path.suffix, read_json_lines)
        yield from read(path)


def texts_of(record: Mapping[str, Any], where: str) -> tuple[list[str], str]:
    """Return the references and the candidate of a record."""
    values = record.get("references")
    # In CSV, a list is given as JSON.
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
        raise CheckError(problem, where=where, hint="Every judged pair needs references.")
    if not isinstance(candidate, str) or not candidate.strip():
        raise CheckError("expected `candidate`, a text", where=where, hint="Every judged pair needs a candidate.")
    return values, candidate


def number_of(record: Mapping[str, Any], name: str, where: str) -> float:
    """Return the finite number in a field of a record."""
    value = record.get(name)
    # `float` accepts a bool, but it is not a rating.
    with suppress(TypeError, ValueError):
        if not isinstance(value, bool) and math.isfinite(number := float(value)):  # type: ignore[arg-type]
            return number
    raise CheckError(f"expected `{name}`, a number, found {value!r}", where=where, hint="Every record needs it.")
