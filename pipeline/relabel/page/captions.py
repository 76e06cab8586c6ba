"""The captions of a page, numbered from 0 in the order of the corpus, and the nearest ones of each under each label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.core.runtime import SILENT, Runtime
from relabel.core.types import Rows, Scores
from relabel.corpus import Corpus, References
from relabel.sources.finder import Search
from relabel.sources.relevance import Relevance
from relabel.store.workdir import Work, make_step

CAPTIONS = 30_000
"""Most captions of a page. COCO's test split has 25,010."""


@dataclass(frozen=True, eq=False)
class PageCaptions:
    """Captions of complete images.

    `rows`: (N,) int32; corpus rows, ascending. Caption n of the page is row ``rows[n]``.
    `images`: (M,) int32; corpus numbers of their images, ascending.
    `chosen_from`: corpus rows of the split.
    """

    corpus: Corpus
    rows: Rows
    images: Rows
    chosen_from: range

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def complete(self) -> bool:
        """Whether these are all captions of the split."""
        return len(self) == len(self.chosen_from)

    @cached_property
    def image(self) -> NDArray[np.int64]:
        """Position in `images` of each caption's image, (N,) int64."""
        return np.searchsorted(self.images, self.corpus.image[self.rows])

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """First caption of each image, and N, (M + 1,) int64."""
        return np.searchsorted(self.image, np.arange(len(self.images) + 1))

    def score(self, relevance: Relevance, references: NDArray[np.int64], candidates: NDArray[np.int64]) -> Scores:
        """Score pairs of captions of the page, each with one as the only reference; NaN where one has no encoding."""
        return relevance.pairs(References.single(self.rows[references]), self.rows[candidates], "paired")


def choose_captions(corpus: Corpus, rows: range, most: int = CAPTIONS, seed: int = 0) -> PageCaptions:
    """Choose the captions of a page: all of a range, or those of images drawn at random where there are too many.

    `rows`: rows of complete images, not empty. `most`: most captions. One image is always taken.
    """
    images = np.array(corpus.images_of(rows), np.int32)
    if len(rows) > most:
        drawn = np.random.default_rng(seed).permutation(images)
        sizes = np.cumsum(np.diff(corpus.indptr)[drawn])
        images = np.sort(drawn[: max(1, int(np.searchsorted(sizes, most, side="right")))])
    return PageCaptions(corpus, corpus.references(images, first=None).rows, images, rows)


def positions_in(ascending: Rows, values: Rows) -> NDArray[np.int64]:
    """Return the positions of corpus rows or images among those of the page; -1 where the page lacks one."""
    index = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    return np.where(ascending[index] == values, index, -1)


NEAREST = 10
"""Nearest captions of each caption on a page."""
RERANKED = 5
"""Nearest captions of each other label that a label re-ranks if it scores pair by pair."""
_BATCH = 1 << 14  # pairs that a label re-ranks between two advances of the bar


@dataclass(frozen=True, eq=False)
class Nearest:
    """Nearest captions under one label.

    `positions`: (N, k) int32; numbers on the page, best first; N where there is no further caption.
    `scores`: (N, k) float32; 0 where there is no caption.
    `reranked`: True if the label has only ordered the captions that other labels found.
    """

    positions: NDArray[np.int32]
    scores: NDArray[np.float32]
    reranked: bool = False


def from_rows(captions: PageCaptions, rows: NDArray[np.int32], scores: NDArray[np.floating[Any]]) -> Nearest:
    """Return neighbours given by corpus rows; a score of NaN stands for no caption.

    `rows`, `scores`: (N, w) int32 and float; the first `NEAREST` columns are taken.
    """
    rows, scores = rows[:, :NEAREST], scores[:, :NEAREST].astype(np.float32)
    positions = positions_in(captions.rows, rows)
    # A caption that could not be encoded has no neighbours: its scores are NaN.
    missing = np.isnan(scores) | (positions < 0)
    positions[missing] = len(captions)
    return Nearest(positions.astype(np.int32), np.where(missing, np.float32(0), scores))


def search(relevance: Relevance, captions: PageCaptions, label: str, runtime: Runtime, work: Work) -> Nearest:
    """Find the nearest captions exactly, among all captions of the page.

    `relevance`: with exact neighbours (`Relevance.finder`). `label`: name of the label, for the bar. `work`: a folder
    for the files of the search.
    """
    rows = captions.rows
    query = Search(References.single(rows), rows, rows, NEAREST)
    finder = relevance.finder(query, relevance.pooling, runtime)
    if step := finder.build(work):
        make_step(step, work, SILENT)
    with runtime.progress.bar(f"nearest captions ({label})", len(rows), "captions") as bar:
        return from_rows(captions, *finder.find(work, range(len(rows)), bar.advance))


def rerank(
    relevance: Relevance, captions: PageCaptions, others: Sequence[Nearest], label: str, runtime: Runtime
) -> Nearest:
    """Order the first `RERANKED` captions of each other label by a label that scores pair by pair.

    `others`: of other labels, at least one. `label`: name of the label, for the bar. Returns Nearest: by (-score, row).
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
            scores[batch] = captions.score(relevance, query[batch], candidate[batch])
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
