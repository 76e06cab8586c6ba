"""Scores that were computed elsewhere, as a label beside others: any model can stand in the tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from relabel.core.errors import CheckError
from relabel.core.numeric.statistics import Vector
from relabel.datasets.cxc import TASKS, Split, human_scores
from relabel.datasets.judged import JudgedSet, Judgements
from relabel.datasets.judged_file import number_of, read_records, texts_of
from relabel.judge.cxc import SCHEMA
from relabel.judge.cxc_report import PairScores
from relabel.judge.cxc_sampled import pair_units
from relabel.judge.notes import EXTERNAL

Key = tuple[str, ...]


def read_cxc_scores(path: Path, split: Split, allow_missing: bool = False) -> PairScores:
    """Read scores of CxC's judged pairs by the ids of their items.

    Parameters
    ----------
    path : Path
        JSON Lines, CSV or Parquet with the columns `left` and `right` (ids as CxC's files pair them, `coco:770337`) and
        `score`. Pairs that nobody judged are ignored. A task is shown if the file has any of its pairs.
    split : "val" or "test"
    allow_missing : bool
        Accept judged pairs of a shown task that have no score, and count them.

    Returns
    -------
    PairScores
        A label with the name of the file.

    Raises
    ------
    CheckError
        If a record is not valid, two records have one pair, no pair of the split is scored, or pairs are missing. The
        message names file and line.
    """
    scores: dict[Key, float] = {}
    for where, record in read_records(path):
        left, right = record.get("left"), record.get("right")
        if not isinstance(left, str) or not isinstance(right, str):
            raise CheckError("expected `left` and `right`, ids of a pair", where=where, todo="Write coco:770337.")
        _add(scores, (left, right), number_of(record, "score", where), f"pair {left} {right}", where)
    tables = {}
    for task in TASKS:
        human = human_scores(task, split)
        values = [scores.get(pair) for pair in zip(human.left, human.right, strict=True)]
        if all(value is None for value in values):
            continue
        names = [f"{left} {right}" for left, right in zip(human.left, human.right, strict=True)]
        _check_missing(path, f"CxC's {task} pairs of {split}", names, values, allow_missing)
        # Pairs resample with the image that labels resample them with: the left one, or SITS's only one.
        cluster = pair_units(human, "left", "image")[0].astype(np.int32)
        tables[task] = pa.table(
            {
                "left": human.left,
                "right": human.right,
                "human": human.score,
                "method": pa.array(human.method).dictionary_encode(),
                "relevance": pa.array(values, pa.float64()),
                "missing": pa.array([None if v is not None else "not in the file" for v in values]).dictionary_encode(),
                "cluster": cluster,
            }
        ).cast(SCHEMA)
    if not tables:
        problem = f"no judged pair of CxC's {split} split"
        raise CheckError(problem, where=str(path), todo="Name captions and images as in `coco:770337`.")
    return PairScores(label=path.stem, params={"source": EXTERNAL, "pooling": "refs"}, split=split, tables=tables)


def read_pair_scores(path: Path, judged: JudgedSet, judgements: Judgements, allow_missing: bool = False) -> Vector:
    """Read scores of the pairs of a judged set of texts.

    Parameters
    ----------
    path : Path
        JSON Lines, CSV or Parquet with a column `score`, and either `id` (see `JudgedSet.pair_ids`) or the texts
        themselves: `references` (or `reference`) and `candidate`. Pairs that nobody judged are ignored. Where both
        orders of a pair count, either is enough, and the mean of both is taken if the file has both.
    judged : JudgedSet
    judgements : Judgements
    allow_missing : bool
        Accept judged pairs that have no score; they are left out and counted.

    Returns
    -------
    (P,) float64
        NaN where the file has no score.

    Raises
    ------
    CheckError
        If a record is not valid, two records have one pair, no pair of the set is scored, or pairs are missing. The
        message names file and line.
    """
    by_id: dict[Key, float] = {}
    by_texts: dict[Key, float] = {}
    for where, record in read_records(path):
        score, name = number_of(record, "score", where), record.get("id")
        # Parquet and CSV give every record all columns, some of them empty.
        if name not in (None, ""):
            _add(by_id, (str(name),), score, f"pair {name}", where)
        elif "candidate" in record:
            references, candidate = texts_of(record, where)
            _add(by_texts, (*references, candidate), score, "the pair of these texts", where)
        else:
            todo = f"Ids of {judged.name}: {judged.pair_ids}."
            raise CheckError("expected `id`, or `references` and `candidate`", where=where, todo=todo)
    values: list[float | None] = []
    for name, references, candidate in zip(judgements.ids, judgements.references, judgements.candidates, strict=True):
        orders = [(*references, candidate), *([(candidate, *references)] if judgements.both_orders else [])]
        chosen = by_id.get((name,))
        # A pair of two equal texts is one order.
        rated = [by_texts[key] for key in dict.fromkeys(orders) if key in by_texts]
        values.append(chosen if chosen is not None else sum(rated) / len(rated) if rated else None)
    if all(value is None for value in values):
        problem = f"no pair of {judged.name}"
        raise CheckError(problem, where=str(path), todo=f"Name pairs by their texts, or by id: {judged.pair_ids}.")
    _check_missing(path, f"pairs of {judged.name}", judgements.ids, values, allow_missing)
    return np.array([math.nan if value is None else value for value in values])


def _add(scores: dict[Key, float], key: Key, score: float, name: str, where: str) -> None:
    if key in scores:
        raise CheckError(f"{name} is there twice", where=where, todo="Keep one of them.")
    scores[key] = score


def _check_missing(
    path: Path, pairs: str, names: Sequence[str], values: Sequence[float | None], allow_missing: bool
) -> None:
    missing = [name for name, value in zip(names, values, strict=True) if value is None]
    # A correlation over fewer pairs cannot be compared with that of another label.
    if missing and not allow_missing:
        problem = f"{len(missing):,} of {len(values):,} {pairs} have no score; first: {missing[0]}"
        raise CheckError(problem, where=str(path), todo="Score all pairs, or leave these out with --allow-missing.")
