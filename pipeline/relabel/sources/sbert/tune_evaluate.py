"""Cosines of judged pairs by a tuned model, pooled as labels are, and their correlation with human scores."""

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
from relabel.sources.sbert.tune_data import JudgedSet

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
"""Columns of `out_of_fold.parquet`. `left` and `right` are as in HumanScores. `max`, `second` (second largest) and
`mean` pool over an image's references, which include the judged caption if the image is its own. The single cosine of
an sts pair is all three."""


def encode(
    folder: Path, judged: JudgedSet, captions: NDArray[np.int64], runtime: Runtime, bar: ProgressBar
) -> NDArray[Any]:
    """Encode some of the captions as the source `sbert` does.

    Parameters
    ----------
    folder : Path
        Folder of the model.
    judged : JudgedSet
    captions : (n,) int64
    runtime : Runtime
    bar : ProgressBar
        Progress bar that counts captions.

    Returns
    -------
    (N, D) float32
        Task vectors; NaN for captions that are not in `captions`.
    """
    from relabel.sources.models.encoder import SentenceEncoder

    encoder = SentenceEncoder(folder, None, None, "float32", runtime)
    out = np.full((len(judged.texts), encoder.width), np.nan, np.float32)
    out[captions] = encoder.encode([judged.texts[i] for i in captions], bar.advance).vectors
    return out


def cosine_table(judged: JudgedSet, vectors: NDArray[Any], fold: NDArray[np.int32], folds: list[int]) -> pa.Table:
    """Score the pairs whose two images lie in the same fold.

    Parameters
    ----------
    judged : JudgedSet
    vectors : (N, D) float32
        Vectors of at least the captions of these folds.
    fold : (M,) int32
        Fold of each image.
    folds : list of int
        Folds to score.

    Returns
    -------
    pyarrow.Table
        With SCHEMA, in the order of the human scores.
    """
    tables = []
    for task in ("sts", "sits"):
        human, pairs = human_scores(task, "val"), getattr(judged, task)
        left, right = fold[pairs.images].T
        selected = np.flatnonzero((left == right) & np.isin(left, folds))
        chosen = pairs.take(selected)
        a = vectors[chosen.left].astype(np.float64)
        references = chosen.right[:, None] if task == "sts" else judged.references[chosen.right]
        # In float64, as labels are scored; sorting gives the two largest.
        cosines = np.sort(np.einsum("pd,prd->pr", a, vectors[references].astype(np.float64)), axis=1)
        pooled = cosines[:, -1], cosines[:, max(-2, -cosines.shape[1])], cosines.mean(axis=1)
        tables.append(_table(human, selected, left[selected], dict(zip(COLUMNS, pooled, strict=True))))
    return pa.concat_tables(tables).unify_dictionaries()


def _table(human: HumanScores, selected: NDArray[np.int64], fold: NDArray[Any], pooled: dict[str, Any]) -> pa.Table:
    """Return the selected human scores with their folds and pooled cosines."""
    columns = {
        "task": pa.array([human.task] * len(selected)).dictionary_encode(),
        "left": [human.left[i] for i in selected],
        "right": [human.right[i] for i in selected],
        "human": human.score[selected],
        "method": pa.array([human.method[i] for i in selected], pa.string()).dictionary_encode(),
        "fold": fold.astype(np.int32),
    }
    return pa.table(columns | pooled, schema=SCHEMA)


def sort_pairs(table: pa.Table) -> pa.Table:
    """Sort rows into the order of the human scores, sts before sits."""
    rank = {
        (task, *pair): i
        for task in ("sts", "sits")
        for i, pair in enumerate(zip(*_ids(human_scores(task, "val")), strict=True))
    }
    keys = zip(*(table[name].to_pylist() for name in ("task", "left", "right")), strict=True)
    # All sts pairs come first: 10**9 exceeds the number of pairs of a task.
    return table.take(np.argsort([(key[0] == "sits") * 10**9 + rank[key] for key in keys], kind="stable"))


def _ids(human: HumanScores) -> tuple[list[str], list[str]]:
    """Return the ids of both sides of all pairs."""
    return human.left, human.right


def correlations(table: pa.Table) -> dict[str, dict[str, Any]]:
    """Return Pearson's r with human scores per task, for all pairs and by sampling method, and the number of pairs."""
    results: dict[str, dict[str, Any]] = {}
    task, method = (np.array(table[name].to_pylist()) for name in ("task", "method"))
    cosine, human = table["max"].to_numpy(), table["human"].to_numpy()
    for name in TASKS:
        if name in task:
            parts = {"all": task == name} | {m: (task == name) & (method == m) for m in METHODS[name]}
            results[name] = {part: _rounded(pearson(cosine[mask], human[mask])) for part, mask in parts.items()}
            results[name]["pairs"] = int(parts["all"].sum())
    return results


def _rounded(r: float | None) -> float | None:
    """Round to four digits; None stays None, and NaN becomes None."""
    return None if r is None or r != r else round(r, 4)
