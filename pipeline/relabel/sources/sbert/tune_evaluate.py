"""Cosines of judged pairs by a tuned model, pooled as the judge pools, and how well they agree with people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from relabel.core.numeric.statistics import pearson
from relabel.core.progress import ProgressBar
from relabel.core.runtime import Runtime
from relabel.datasets.cxc import METHODS, TASKS, HumanScores, human_scores
from relabel.sources.sbert.tune_data import Judged

COLUMNS = ("max", "second", "mean")
SCHEMA = pa.schema(
    [
        pa.field("task", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("left", pa.string(), nullable=False),
        pa.field("right", pa.string(), nullable=False),
        pa.field("human", pa.float64(), nullable=False),
        pa.field("method", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("fold", pa.int32(), nullable=False),
        *(pa.field(name, pa.float64(), nullable=False) for name in COLUMNS),
    ]
)
"""`left` and `right` as in HumanScores; `max`, `second` (largest but one) and `mean` over an image's references, the
judged caption among those of its own image; an sts pair has one cosine, which is all three."""


def encode(
    folder: Path, judged: Judged, captions: NDArray[np.int64], runtime: Runtime, bar: ProgressBar
) -> NDArray[Any]:
    """Encode some of the captions as the source `sbert` does.

    Returns
    -------
    (N, D) float32
        Unit vectors; NaN where a caption is not among `captions`.
    """
    from relabel.sources.models.encoder import SentenceEncoder

    encoder = SentenceEncoder(folder, None, None, "float32", runtime)
    out = np.full((len(judged.texts), encoder.width), np.nan, np.float32)
    out[captions] = encoder.encode([judged.texts[i] for i in captions], bar.advance).vectors
    return out


def cosine_table(judged: Judged, vectors: NDArray[Any], fold: NDArray[np.int32], folds: list[int]) -> pa.Table:
    """Score the pairs both of whose images lie in one fold.

    Parameters
    ----------
    judged : Judged
    vectors : (N, D) float32
        Of at least the captions of these folds.
    fold : (M,) int32
        Fold of each image.
    folds : list of int

    Returns
    -------
    pyarrow.Table with SCHEMA, in the order of the human scores.
    """
    tables = []
    for task in ("sts", "sits"):
        human, pairs = human_scores(task, "val"), getattr(judged, task)
        left, right = fold[pairs.images].T
        which = np.flatnonzero((left == right) & np.isin(left, folds))
        chosen = pairs.take(which)
        a = vectors[chosen.left].astype(np.float64)
        others = chosen.right[:, None] if task == "sts" else judged.references[chosen.right]
        cosines = np.sort(np.einsum("pd,prd->pr", a, vectors[others].astype(np.float64)), axis=1)
        pooled = cosines[:, -1], cosines[:, max(-2, -cosines.shape[1])], cosines.mean(axis=1)
        tables.append(_table(human, which, left[which], dict(zip(COLUMNS, pooled, strict=True))))
    return pa.concat_tables(tables).unify_dictionaries()


def _table(human: HumanScores, which: NDArray[np.int64], fold: NDArray[Any], pooled: dict[str, Any]) -> pa.Table:
    columns = {
        "task": pa.array([human.task] * len(which)).dictionary_encode(),
        "left": [human.left[i] for i in which],
        "right": [human.right[i] for i in which],
        "human": human.score[which],
        "method": pa.array([human.method[i] for i in which], pa.string()).dictionary_encode(),
        "fold": fold.astype(np.int32),
    }
    return pa.table(columns | pooled, schema=SCHEMA)


def in_order(table: pa.Table) -> pa.Table:
    """Sort rows into the order of the human scores, sts before sits."""
    place = {
        (task, *pair): i
        for task in ("sts", "sits")
        for i, pair in enumerate(zip(*_ids(human_scores(task, "val")), strict=True))
    }
    keys = zip(*(table[name].to_pylist() for name in ("task", "left", "right")), strict=True)
    return table.take(np.argsort([(key[0] == "sits") * 10**9 + place[key] for key in keys], kind="stable"))


def _ids(human: HumanScores) -> tuple[list[str], list[str]]:
    return human.left, human.right


def figures(table: pa.Table) -> dict[str, dict[str, Any]]:
    """Pearson's r with people: each task's pairs all together, and by how they were sampled."""
    found: dict[str, dict[str, Any]] = {}
    task, method = (np.array(table[name].to_pylist()) for name in ("task", "method"))
    cosine, human = table["max"].to_numpy(), table["human"].to_numpy()
    for name in TASKS:
        if name in task:
            parts = {"all": task == name} | {m: (task == name) & (method == m) for m in METHODS[name]}
            found[name] = {part: _rounded(pearson(cosine[of], human[of])) for part, of in parts.items()}
            found[name]["pairs"] = int(parts["all"].sum())
    return found


def _rounded(r: float | None) -> float | None:
    return None if r is None or r != r else round(r, 4)
