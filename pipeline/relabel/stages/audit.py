"""audit: equal captions and false negatives of a benchmark, and their effect on the figures of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.core.errors import UsageError
from relabel.core.tables import Table
from relabel.corpus import Corpus
from relabel.judge.audit import (
    clustered_means,
    compare_positives,
    corrected_positives,
    equal_captions,
    growth,
)
from relabel.judge.runs import Run, read_run
from relabel.stages.encode import open_label
from relabel.stages.false_negatives import FalseNegatives, find_false_negatives
from relabel.stages.session import Session
from relabel_train.metrics.scores import Ints, open_labels


@dataclass(frozen=True, eq=False)
class Audit:
    """Tables and records of an audit.

    `pairs`: false negatives. `data`: records of each table, by name.
    """

    pairs: FalseNegatives
    tables: Sequence[Table]
    data: Mapping[str, Any]


def audit(
    session: Session,
    labels: Sequence[str] = (),
    split: str | None = None,
    probability: float | None = None,
    run: str | None = None,
    shown: int = 10,
) -> Audit:
    """Count equal captions and false negatives of a split, and compute the figures of a run with and without them.

    `labels`, `split`, `probability`: those of `find_false_negatives`. `run`: a file of scores (see `read_run`), or a
    label with vectors of images. `shown`: number of queries to list.
    """
    found = find_false_negatives(session, labels, split, probability)
    corpus, rows, name = found.corpus, found.rows, next(iter(found.labels))
    images = corpus.images_of(rows)
    owner = corpus.image[rows.start : rows.stop].astype(np.int64) - images.start
    image, caption = (found.keys // len(corpus)) - images.start, (found.keys % len(corpus)) - rows.start
    # Faults of the file are reported before any work.
    scores = None if run is None else _open_run(session, run, corpus, rows, found.split)
    equal, same = equal_captions(corpus, found.split)
    described = np.isin(np.arange(len(rows)), caption)
    ends = clustered_means(100 * described[:, None].astype(np.float64), owner)[0]
    share = {"percent": round(100 * float(described.mean()), 2), "interval": [round(end, 2) for end in ends]}
    grown = growth(image, caption, owner)
    interval = f"95% interval over images: {ends.low:.1f}% to {ends.high:.1f}%"
    grades = session.command("export trec", label=name, split=found.split, queries="images")
    notes = (*found.summary()[1:], interval, f"graded judgements of all neighbours: {grades}")
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
        kept, number = np.flatnonzero(scores.kept), np.cumsum(scores.kept) - 1
        scored = scores.kept[caption]
        positives = corrected_positives(image[scored], number[caption[scored]], owner[kept])
        figures, queries, missing = compare_positives(scores, positives, owner[kept], session.runtime.threads)
        if len(kept) < len(rows):
            missing.append(f"without the {len(rows) - len(kept):,} captions after the fifth of an image, as in papers")
        for query in queries[:shown]:
            t2i, position = query["direction"] == "t2i", query["query"]
            row = rows.start + kept[position] if t2i else corpus.indptr[images[position]]
            about = corpus.caption(int(row))
            query["query"] = about.caption_id if query["direction"] == "t2i" else about.image_id
            query["text"] = " ".join(about.text.split())
        title = f"{run}: percent of queries; usual: pairs of the dataset, corrected: also false negatives"
        tables.append(_table(title, figures, missing))
        tables.append(_table("Largest differences of the rank of the best positive", queries[:shown]))
        data |= {"figures": figures, "queries": queries[:shown], "notes": missing}
    return Audit(found, tables, data)


def _open_run(session: Session, run: str, corpus: Corpus, rows: range, split: str) -> Run:
    """Read the scores of a file, or compute those of a label with image vectors."""
    if run not in session.config.sources:
        return read_run(Path(run), corpus, rows)
    spec = session.config.source(run).spec
    if spec.symmetric or not spec.image_vectors:
        hint = "Name a label of the source precomputed with `images` and `captions`, or a file of scores."
        what = "image with its own vector" if spec.image_vectors else "caption with itself"
        raise UsageError(f"{run} cannot be a run: it would compare each {what}", hint=hint)
    relevance, start = open_label(session, run, split), corpus.images_of(rows).start

    def block(images: Ints, captions: Ints) -> NDArray[np.floating[Any]]:
        return relevance.block(corpus.references(images + start), (captions + rows.start).astype(np.int32))

    return Run.complete(open_labels(block, (len(corpus.images_of(rows)), len(rows))), np.full(len(rows), True))


def _table(title: str, records: Sequence[Mapping[str, Any]], notes: Sequence[str] = ()) -> Table:
    """Return a table of records, with their keys as the header."""
    header = tuple(name.replace("_", " ") for name in (records[0] if records else ("none",)))
    return Table(title, header, tuple(tuple(map(_cell, record.values())) for record in records), tuple(notes))


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return " to ".join(f"{end:.1f}" for end in value)
    if value is None:
        return "not listed"
    return f"{value:.1f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
