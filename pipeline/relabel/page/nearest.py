"""The nearest captions of every caption of a page, for each label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.core.progress import ignore_progress
from relabel.core.runtime import Runtime
from relabel.corpus import References
from relabel.page.captions import PageCaptions
from relabel.sources.finder import Search
from relabel.sources.relevance import Relevance
from relabel.store.workdir import Work

NEAREST = 10
"""Nearest captions of each caption on a page."""
RERANKED = 5
"""Nearest captions of each other label that a label re-ranks if it scores pair by pair."""
_BATCH = 1 << 14  # pairs that a label re-ranks between two advances of the bar


@dataclass(frozen=True, eq=False)
class Nearest:
    """Nearest captions under one label.

    Attributes
    ----------
    positions : (N, k) int32
        Numbers on the page, best first; N where there is no further caption.
    scores : (N, k) float32
        0 where there is no caption.
    reranked : bool
        True if the label has only ordered the captions that other labels found.
    """

    positions: NDArray[np.int32]
    scores: NDArray[np.float32]
    reranked: bool = False


def from_rows(captions: PageCaptions, rows: NDArray[np.int32], scores: NDArray[np.floating[Any]]) -> Nearest:
    """Return neighbours given by corpus rows; a score of NaN stands for no caption.

    Parameters
    ----------
    captions : PageCaptions
    rows, scores : (N, w) int32 and float
        The first `NEAREST` columns are taken.
    """
    rows, scores = rows[:, :NEAREST], scores[:, :NEAREST].astype(np.float32)
    positions = captions.positions(rows)
    # A caption that could not be encoded has no neighbours: its scores are NaN.
    missing = np.isnan(scores) | (positions < 0)
    positions[missing] = len(captions)
    return Nearest(positions.astype(np.int32), np.where(missing, np.float32(0), scores))


def search(relevance: Relevance, captions: PageCaptions, label: str, runtime: Runtime, work: Work) -> Nearest:
    """Find the nearest captions exactly, among all captions of the page.

    Parameters
    ----------
    relevance : Relevance
        With exact neighbours (`Relevance.finder`).
    captions : PageCaptions
    label : str
        Name of the label, for the bar.
    runtime : Runtime
    work : Work
        A folder for the files of the search.
    """
    rows = captions.rows
    query = Search(References.single(rows), rows, rows, NEAREST)
    finder = relevance.finder(query, relevance.pooling, runtime)
    group = finder.preliminary(work)
    for task in group.tasks if group is not None else ():
        if not work.done(task.file):
            finder.prepare(work, task, ignore_progress)
    with runtime.progress.bar(f"nearest captions ({label})", len(rows), "captions") as bar:
        return from_rows(captions, *finder.find(work, range(len(rows)), bar.advance))


def rerank(
    relevance: Relevance, captions: PageCaptions, others: Sequence[Nearest], label: str, runtime: Runtime
) -> Nearest:
    """Order the first `RERANKED` captions of each other label by a label that scores pair by pair.

    Parameters
    ----------
    relevance : Relevance
    captions : PageCaptions
    others : sequence of Nearest
        Of other labels, at least one.
    label : str
        Name of the label, for the bar.
    runtime : Runtime

    Returns
    -------
    Nearest
        By (-score, row).
    """
    count = len(captions)
    candidates = np.sort(np.concatenate([nearest.positions[:, :RERANKED] for nearest in others], axis=1), axis=1)
    repeated = np.zeros(candidates.shape, np.bool_)
    repeated[:, 1:] = candidates[:, 1:] == candidates[:, :-1]
    query, column = np.nonzero(~repeated & (candidates < count))
    candidate = candidates[query, column]
    scores = np.empty(len(query))
    with runtime.progress.bar(f"nearest captions ({label})", len(query), "pairs") as bar:
        for start in range(0, len(query), _BATCH):
            batch = slice(start, start + _BATCH)
            references = References.single(captions.rows[query[batch]])
            scores[batch] = relevance.pairs(references, captions.rows[candidate[batch]], "paired")
            bar.advance(len(query[batch]))
    scored = np.flatnonzero(~np.isnan(scores))
    order = scored[np.lexsort((candidate[scored], -scores[scored], query[scored]))]
    # The rank of a candidate is its distance from the first candidate of its query.
    rank = np.arange(len(order)) - np.searchsorted(query[order], query[order])
    best, rank = order[rank < NEAREST], rank[rank < NEAREST]
    positions = np.full((count, NEAREST), count, np.int32)
    values = np.zeros((count, NEAREST), np.float32)
    positions[query[best], rank], values[query[best], rank] = candidate[best], scores[best]
    return Nearest(positions, values, reranked=True)
