"""Captions of a page, numbered from 0 in the order of the corpus, with their nearest captions and samples of pairs."""

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
"""Maximum number of captions of a page. COCO's test split has 25,010."""
NEAREST = 10
"""Number of nearest captions per caption of a page."""
RERANKED = 5
"""Number of nearest captions of every other label to re-rank, for labels that score pair by pair."""
PAIRS = 5_000
"""Maximum number of pairs of each kind in a distribution of relevance."""
_LISTED = 100  # maximum number of neighbours to read per row of a neighbour table
_BATCH = 1 << 14  # pairs to re-rank per update of the progress bar
Numbers = NDArray[np.int64]
"""Numbers of captions or images on the page."""


@dataclass(frozen=True, eq=False)
class PageCaptions:
    """Captions of complete images.

    `rows`: (N,) int32; ascending corpus rows. Caption n of the page is row ``rows[n]``.
    `images`: (M,) int32; ascending corpus numbers of their images.
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
        """First caption of each image, followed by N, (M + 1,) int64."""
        return np.searchsorted(self.image, np.arange(len(self.images) + 1))

    def score(self, relevance: Relevance, references: Numbers, candidates: Numbers) -> Scores:
        """Score pairs of captions, with the first as the only reference; NaN if one of them has no encoding."""
        return relevance.pairs(References.single(self.rows[references]), self.rows[candidates], "first")


def choose_captions(corpus: Corpus, rows: range, maximum: int = CAPTIONS, seed: int = 0) -> PageCaptions:
    """Select the captions of a page: all captions of a range, or those of randomly drawn images if there are too many.

    `rows`: rows of complete images, not empty. `maximum`: maximum number of captions; at least one image is taken.
    """
    images = np.array(corpus.images_of(rows), np.int32)
    if len(rows) > maximum:
        drawn = np.random.default_rng(seed).permutation(images)
        sizes = np.cumsum(np.diff(corpus.indptr)[drawn])
        images = np.sort(drawn[: max(1, int(np.searchsorted(sizes, maximum, side="right")))])
    return PageCaptions(corpus, corpus.references(images, first=None).rows, images, rows)


def positions_in(ascending: Rows, values: Rows) -> Numbers:
    """Return the positions of corpus rows or images in those of the page, or -1 for those that are not on the page."""
    # The additional last entry is -1, for values of -1 and values above the last one of the page.
    position = np.full(int(ascending[-1]) + 2, -1)
    position[ascending] = np.arange(len(ascending))
    return position[np.minimum(values, len(position) - 1)]


class Nearest(NamedTuple):
    """Nearest captions by one label, as pairs sorted by reference and then by descending score.

    `reference`, `candidate`: (E,) int64. `score`: (E,) float64, rounded to three decimals.
    `reranked`: True if the label only re-ranked captions that other labels found.
    """

    reference: Numbers
    candidate: Numbers
    score: Scores
    reranked: bool = False


def from_rows(captions: PageCaptions, rows: NDArray[np.int32], scores: NDArray[np.floating[Any]]) -> Nearest:
    """Return the first `NEAREST` neighbours of each caption that are on the page and have a score.

    `rows`, `scores`: (N, w); corpus rows, best first, and their scores, or NaN.
    """
    candidate = positions_in(captions.rows, rows)
    listed = ~np.isnan(scores) & (candidate >= 0)
    reference, rank = np.nonzero(listed & (np.cumsum(listed, axis=1) <= NEAREST))
    # Rounded to float32 as in tables, so a search gives the same three decimals.
    score = scores[reference, rank].astype(np.float32).astype(np.float64)
    return Nearest(reference, candidate[reference, rank], score.round(3))


def read_table(table: ArtefactRef, captions: PageCaptions) -> Nearest | None:
    """Read the nearest captions from a neighbour table of the split; None if a list has too few page captions."""
    columns = []
    for group in table.tables(captions.chosen_from, COLUMNS[:2]):
        shown = positions_in(captions.rows, group["row"].to_numpy()) >= 0
        columns.append([matrix(group, name)[shown, :_LISTED] for name in COLUMNS[:2]])
    rows, scores = map(np.concatenate, zip(*columns, strict=True))
    nearest = from_rows(captions, rows, scores)
    short = np.bincount(nearest.reference, minlength=len(captions)) < min(NEAREST, len(captions) - 1)
    # A short list that ends with NaN is complete: no other caption has a score.
    return None if (short & ~np.isnan(scores[:, -1])).any() else nearest


def search(relevance: Relevance, captions: PageCaptions, label: str, runtime: Runtime, work: Work) -> Nearest:
    """Find the nearest captions with an exact search among all captions of the page.

    `relevance`: supports exact neighbours (`Relevance.finder`). `label`: name of the label, for the progress bar.
    `work`: work folder of the search.
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
    """Re-rank the first `RERANKED` captions of all other labels with a label that scores pair by pair.

    `others`: nearest captions of at least one other label. `label`: name of the label, for the progress bar.
    """
    first = [np.stack([n.reference, n.candidate])[:, _rank(n.reference) < RERANKED] for n in others]
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
    """Return the rank of each pair among the pairs of its reference, from 0. `reference`: sorted."""
    return np.arange(len(reference)) - np.searchsorted(reference, reference)


def draw_scores(relevance: Relevance, captions: PageCaptions, nearest: Nearest | None) -> dict[str, Scores]:
    """Score at most `PAIRS` pairs of one image, random pairs of two images, and neighbours of two images."""
    rng, image, count = np.random.default_rng(0), captions.image, len(captions)
    # Fewer draws for few captions, because a slow label would score the same pairs many times.
    reference = rng.integers(0, count, 2 * min(PAIRS, count))
    first, size = captions.starts[image[reference]], np.diff(captions.starts)[image[reference]]
    scores = {}
    for kind, other in (("same_image", first + rng.integers(0, size)), ("random", rng.integers(0, count, len(size)))):
        of_kind = (reference != other) & ((image[reference] == image[other]) == (kind == "same_image"))
        index = np.flatnonzero(of_kind)[:PAIRS]
        scores[kind] = captions.score(relevance, reference[index], other[index])
    if nearest:
        of_two = nearest.score[image[nearest.reference] != image[nearest.candidate]]
        scores["neighbours"] = rng.permutation(of_two)[:PAIRS]
    return scores
