"""The captions of a page, numbered from 0 in the order of the corpus, and the nearest ones of each under each label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.core.runtime import SILENT, Runtime
from relabel.core.types import Rows
from relabel.corpus import Corpus, References
from relabel.sources.finder import Search
from relabel.sources.relevance import Relevance
from relabel.store.tasks import make_step
from relabel.store.workdir import Work

CAPTIONS = 30_000
"""Most captions of a page. COCO's test split has 25,010."""


@dataclass(frozen=True, eq=False)
class PageCaptions:
    """Captions of complete images.

    `rows`: (N,) int32; corpus rows, ascending. Caption n of the page is row ``rows[n]``.
    `images`: (M,) int32; corpus numbers of their images, ascending.
    """

    corpus: Corpus
    rows: Rows
    images: Rows

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def image(self) -> NDArray[np.int64]:
        """Position in `images` of each caption's image, (N,) int64."""
        return np.searchsorted(self.images, self.corpus.image[self.rows])

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """First caption of each image, and N, (M + 1,) int64."""
        return np.searchsorted(self.image, np.arange(len(self.images) + 1))

    def positions(self, rows: Rows) -> NDArray[np.int64]:
        """Return the numbers of corpus rows on the page; -1 where the page lacks a row."""
        return _positions(self.rows, rows)

    def image_positions(self, images: Rows) -> NDArray[np.int64]:
        """Return the positions of image numbers in `images`; -1 where the page lacks an image."""
        return _positions(self.images, images)


def choose_captions(corpus: Corpus, rows: range, most: int = CAPTIONS, seed: int = 0) -> PageCaptions:
    """Choose the captions of a page: all of a range, or those of images drawn at random where there are too many.

    `rows`: rows of complete images, not empty. `most`: most captions. One image is always taken.
    """
    images = np.array(corpus.images_of(rows), np.int32)
    if len(rows) > most:
        drawn = np.random.default_rng(seed).permutation(images)
        sizes = np.cumsum(np.diff(corpus.indptr)[drawn])
        images = np.sort(drawn[: max(1, int(np.searchsorted(sizes, most, side="right")))])
    return PageCaptions(corpus, corpus.references(images, first=None).rows, images)


def _positions(ascending: Rows, values: Rows) -> NDArray[np.int64]:
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
    positions = captions.positions(rows)
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
