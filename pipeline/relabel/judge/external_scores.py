"""Scores that were computed elsewhere, as a label beside others: any model can stand in the tables of CxC."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from relabel.core.errors import CheckError
from relabel.datasets.cxc import TASKS, Split, human_scores
from relabel.datasets.judged_file import number_of, read_records
from relabel.judge.cxc import SCHEMA
from relabel.judge.cxc_report import PairScores
from relabel.judge.cxc_sampled import pair_units
from relabel.judge.notes import EXTERNAL


def read_scores(path: Path, split: Split) -> PairScores:
    """Read scores of CxC's judged pairs by the ids of their items.

    Parameters
    ----------
    path : Path
        JSON Lines, CSV or Parquet with the columns `left` and `right` (ids as CxC's files pair them, `coco:770337`) and
        `score`. Pairs that nobody judged are ignored; judged pairs that the file lacks count as missing. A task is
        shown if the file has any of its pairs.
    split : "val" or "test"

    Returns
    -------
    PairScores
        A label with the name of the file.

    Raises
    ------
    CheckError
        If a record is not valid, two records have one pair, or no pair of the split is scored. The message names file
        and line.
    """
    scores: dict[tuple[str, str], float] = {}
    for where, record in read_records(path):
        left, right = record.get("left"), record.get("right")
        if not isinstance(left, str) or not isinstance(right, str):
            raise CheckError("expected `left` and `right`, ids of a pair", where=where, todo="Write coco:770337.")
        if (left, right) in scores:
            raise CheckError(f"pair {left} {right} is there twice", where=where, todo="Keep one of them.")
        scores[left, right] = number_of(record, "score", where)
    tables = {}
    for task in TASKS:
        human = human_scores(task, split)
        values = [scores.get(pair) for pair in zip(human.left, human.right, strict=True)]
        if all(value is None for value in values):
            continue
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
        what = f"no judged pair of CxC's {split} split"
        raise CheckError(what, where=str(path), todo="Name captions and images as in `coco:770337`.")
    return PairScores(label=path.stem, params={"source": EXTERNAL, "pooling": "refs"}, split=split, tables=tables)
