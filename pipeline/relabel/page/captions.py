"""The captions of a page, numbered from 0 in the order of the corpus; the nearest ones of each, and pairs of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.runtime import SILENT, Runtime
from relabel.core.types import Rows, Scores
from relabel.corpus import Corpus, References
from relabel.export.base import ArtefactRef
from relabel.export.neighbours import COLUMNS, matrix
from relabel.sources.finder import Search
from relabel.sources.relevance import Relevance
from relabel.store.workdir import Work, make_step

CAPTIONS = 30_000
"""Most captions of a page. COCO's test split has 25,010."""
NEAREST = 10
"""Nearest captions of each caption on a page."""
RERANKED = 5
"""Nearest captions of each other label that a label re-ranks if it scores pair by pair."""
PAIRS = 5_000
"""Pairs of each kind in a distribution of relevance."""
_LISTED = 100  # neighbours in a table among which the nearest ones of the page are looked for
_BATCH = 1 << 14  # pairs that a label re-ranks between two advances of the bar
Numbers = NDArray[np.int64]
"""Numbers of captions or images on the page."""


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

    @cached_property
    def image(self) -> Numbers:
        """Position in `images` of each caption's image, (N,) int64."""
        return np.searchsorted(self.images, self.corpus.image[self.rows])

    @cached_property
    def starts(self) -> Numbers:
        """First caption of each image, and N, (M + 1,) int64."""
        return np.searchsorted(self.image, np.arange(len(self.images) + 1))

    def score(self, relevance: Relevance, references: Numbers, candidates: Numbers) -> Scores:
        """Score pairs of captions of the page, each with one as the only reference; NaN where one has no encoding."""
        return relevance.pairs(References.single(self.rows[references]), self.rows[candidates], "first")


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


def positions_in(ascending: Rows, values: Rows) -> Numbers:
    """Return the positions of corpus rows or images among those of the page; -1 where the page lacks one."""
    # The last place holds -1, for values of -1 and those above the last one of the page.
    position = np.full(int(ascending[-1]) + 2, -1)
    position[ascending] = np.arange(len(ascending))
    return position[np.minimum(values, len(position) - 1)]


class Nearest(NamedTuple):
    """Nearest captions under one label: pairs by reference, the best candidate of each first.

    `reference`, `candidate`: (E,) int64. `score`: (E,) float64, to three decimals.
    `reranked`: True if the label has only ordered the captions that other labels found.
    """

    reference: Numbers
    candidate: Numbers
    score: Scores
    reranked: bool = False


def from_rows(captions: PageCaptions, rows: NDArray[np.int32], scores: NDArray[np.floating[Any]]) -> Nearest:
    """Return the first `NEAREST` neighbours of each caption that are on the page and have a score.

    `rows`, `scores`: (N, w); corpus rows, best first, and scores, NaN where there is none.
    """
    candidate = positions_in(captions.rows, rows)
    listed = ~np.isnan(scores) & (candidate >= 0)
    reference, rank = np.nonzero(listed & (np.cumsum(listed, axis=1) <= NEAREST))
    # Tables hold float32, and a search has to give the same three decimals.
    score = scores[reference, rank].astype(np.float32).astype(np.float64)
    return Nearest(reference, candidate[reference, rank], score.round(3))


def read_table(table: ArtefactRef, captions: PageCaptions) -> Nearest | None:
    """Read the nearest captions from a table of all captions of the split; None if a list has too few of the page."""
    parts = []
    for part in table.tables(captions.chosen_from, COLUMNS[:2]):
        shown = positions_in(captions.rows, part["row"].to_numpy()) >= 0
        parts.append([matrix(part, name)[shown, :_LISTED] for name in COLUMNS[:2]])
    rows, scores = map(np.concatenate, zip(*parts, strict=True))
    found = from_rows(captions, rows, scores)
    short = np.bincount(found.reference, minlength=len(captions)) < min(NEAREST, len(captions) - 1)
    # A list that ends with NaN has all captions with a score.
    return None if (short & ~np.isnan(scores[:, -1])).any() else found


def search(relevance: Relevance, captions: PageCaptions, label: str, runtime: Runtime, work: Work) -> Nearest:
    """Find the nearest captions exactly, among all captions of the page.

    `relevance`: with exact neighbours (`Relevance.finder`). `label`: name of the label, for the bar. `work`: a folder
    for the files of the search.
    """
    rows = captions.rows
    finder = relevance.finder(Search(References.single(rows), rows, rows, NEAREST), relevance.pooling, runtime)
    if step := finder.build(work):
        make_step(step, work, SILENT)
    with runtime.progress.bar(f"nearest captions ({label})", len(rows), "captions") as bar:
        return from_rows(captions, *finder.find(work, range(len(rows)), bar.advance))


def rerank(
    relevance: Relevance, captions: PageCaptions, others: Sequence[Nearest], label: str, runtime: Runtime
) -> Nearest:
    """Order the first `RERANKED` captions of each other label by a label that scores pair by pair, by (-score, row).

    `others`: of other labels, at least one. `label`: name of the label, for the bar.
    """
    first = [np.stack([one.reference, one.candidate])[:, _rank(one.reference) < RERANKED] for one in others]
    reference, candidate = np.unique(np.concatenate(first, axis=1), axis=1)
    score = np.empty(len(reference))
    with runtime.progress.bar(f"nearest captions ({label})", len(reference), "pairs") as bar:
        for start in range(0, len(reference), _BATCH):
            batch = slice(start, start + _BATCH)
            score[batch] = captions.score(relevance, reference[batch], candidate[batch])
            bar.advance(len(score[batch]))
    order = np.lexsort((candidate, -score, reference))
    order = order[~np.isnan(score[order])]
    order = order[_rank(reference[order]) < NEAREST]
    return Nearest(reference[order], candidate[order], np.round(score[order], 3), reranked=True)


def _rank(reference: Numbers) -> Numbers:
    """Return the rank of each pair among those of its reference, from 0."""
    return np.arange(len(reference)) - np.searchsorted(reference, reference)


def draw_scores(relevance: Relevance, captions: PageCaptions, nearest: Nearest | None) -> dict[str, Scores]:
    """Draw pairs of one image, neighbours of two images and random pairs of two, and score at most `PAIRS` of each."""
    rng, image, count = np.random.default_rng(0), captions.image, len(captions)
    # A few captions have a few pairs, and a slow label need not score them again and again.
    reference = rng.integers(0, count, 2 * min(PAIRS, count))
    first, size = captions.starts[image[reference]], np.diff(captions.starts)[image[reference]]
    scores = {}
    for kind, other in (("same_image", first + rng.integers(0, size)), ("random", rng.integers(0, count, len(size)))):
        of_kind = (reference != other) & ((image[reference] == image[other]) == (kind == "same_image"))
        chosen = np.flatnonzero(of_kind)[:PAIRS]
        scores[kind] = captions.score(relevance, reference[chosen], other[chosen])
    if nearest:
        of_two = nearest.score[image[nearest.reference] != image[nearest.candidate]]
        scores["neighbours"] = rng.permutation(of_two)[:PAIRS]
    return scores
