"""audit: what a benchmark's positives lack, and what that means for the figures of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from relabel.core.errors import CheckError, MissingError, UsageError
from relabel.core.tables import Table
from relabel.judge.audit import (
    clustered_means,
    compare_positives,
    corrected_positives,
    equal_captions,
    growth,
)
from relabel.stages.false_negatives import FalseNegatives, find_false_negatives
from relabel.stages.session import Session
from relabel_train.metrics import open_scores
from relabel_train.metrics.scores import Scores

_GRADES = "graded judgements of all neighbours: `relabel export trec --label {} --split {} --queries images`"


@dataclass(frozen=True, eq=False)
class Audit:
    """Tables and records of an audit.

    `pairs`: the false negatives. `data`: records of each table, by name.
    """

    pairs: FalseNegatives
    tables: Sequence[Table]
    data: Mapping[str, Any]


def audit(
    session: Session,
    labels: Sequence[str] = (),
    split: str | None = None,
    probability: float | None = None,
    run: Path | None = None,
    shown: int = 10,
) -> Audit:
    """Count equal captions and false negatives of a split, and compute the figures of a run with both as positives.

    `labels`, `split`, `probability`: those of `find_false_negatives`. `run`: a .npy file of scores, (images, captions)
    of the split in corpus order. `shown`: number of queries to list.
    """
    found = find_false_negatives(session, labels, split, probability)
    corpus, rows, name = found.corpus, found.rows, next(iter(found.labels))
    images = corpus.images_of(rows)
    owner = corpus.image[rows.start : rows.stop].astype(np.int64) - images.start
    image, caption = (found.keys // len(corpus)) - images.start, (found.keys % len(corpus)) - rows.start
    # The file is checked before anything is computed.
    scores = None if run is None else _open_run(run, len(images), len(rows))
    equal, same = equal_captions(corpus, found.split)
    described = np.isin(np.arange(len(rows)), caption)
    ends = clustered_means(100 * described[:, None].astype(np.float64), owner)[0]
    share = {"percent": round(100 * float(described.mean()), 2), "interval": [round(end, 2) for end in ends]}
    grown = growth(image, caption, owner)
    interval = f"95% interval over images: {ends.low:.1f}% to {ends.high:.1f}%"
    notes = (*found.summary()[1:], interval, _GRADES.format(name, found.split))
    tables = [
        _table(
            f"{found.split}: captions that another image has, too", equal, (f"images with equal captions: {same:,}",)
        ),
        _table(f"{found.summary()[0]}. In subsets of the images:", grown, notes),
    ]
    limits = {"threshold": found.threshold, "probability": found.probability}
    data: dict[str, Any] = {"split": found.split, "label": name, **limits, "pairs": len(found.scores)}
    data |= {"captions_with_pair": share, "growth": grown}
    data |= {"equal_captions": equal, "images_with_equal_captions": same}
    if scores is not None:
        positives = corrected_positives(image, caption, owner)
        figures, queries = compare_positives(scores, positives, owner, session.runtime.threads)
        for query in queries[:shown]:
            row = rows.start + query["query"] if query["direction"] == "t2i" else corpus.indptr[images[query["query"]]]
            about = corpus.caption(int(row))
            query["query"] = about.caption_id if query["direction"] == "t2i" else about.image_id
            query["text"] = " ".join(about.text.split())
        title = f"{run}: percent of queries, with the pairs of the dataset and with false negatives as positives"
        tables.append(_table(title, figures))
        tables.append(_table("Largest differences of the rank of the best positive", queries[:shown]))
        data |= {"figures": figures, "queries": queries[:shown]}
    return Audit(found, tables, data)


def _open_run(path: Path, images: int, captions: int) -> Scores:
    """Return the scores of a run; CheckError if it is no matrix of the split's images and captions."""
    try:
        scores = np.load(path, allow_pickle=False)
    except FileNotFoundError as error:
        raise MissingError("no such file", where=str(path)) from error
    except (ValueError, EOFError) as error:
        raise CheckError(f"not a .npy file of numbers ({error})", where=str(path)) from error
    if (shape := getattr(scores, "shape", None)) != (images, captions):
        hint = "Rows are images and columns are captions, in the order of the corpus."
        problem = f"expected an array of shape ({images}, {captions}) for this split, found {shape}"
        raise UsageError(problem, where=str(path), hint=hint)
    try:
        return open_scores(scores)
    except ValueError as error:
        raise CheckError(str(error), where=str(path)) from error


def _table(title: str, records: Sequence[Mapping[str, Any]], notes: Sequence[str] = ()) -> Table:
    """Return records as a table with their keys as its header."""
    header = tuple(name.replace("_", " ") for name in (records[0] if records else ("none",)))
    return Table(title, header, tuple(tuple(map(_cell, record.values())) for record in records), tuple(notes))


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return " to ".join(f"{end:.1f}" for end in value)
    return f"{value:.1f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
