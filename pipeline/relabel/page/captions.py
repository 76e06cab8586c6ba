"""The captions of a page, numbered from 0 in the order of the corpus."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from relabel.core.types import Rows
from relabel.corpus import Corpus

CAPTIONS = 30_000
"""Most captions of a page. COCO's test split has 25,010."""


@dataclass(frozen=True, eq=False)
class PageCaptions:
    """Captions of complete images.

    Attributes
    ----------
    corpus : Corpus
    rows : (N,) int32
        Corpus rows, ascending. Caption n of the page is row ``rows[n]``.
    images : (M,) int32
        Corpus numbers of their images, ascending.
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

    Parameters
    ----------
    corpus : Corpus
    rows : range
        Rows of complete images, not empty.
    most : int
        Most captions. One image is always taken.
    seed : int

    Examples
    --------
    >>> from relabel.corpus.table import Caption, Corpus
    >>> from relabel.page.captions import choose_captions
    >>> corpus = Corpus.from_captions([Caption(f"c:{i}", f"i:{i // 2}", "test", "a dog") for i in range(6)])
    >>> choose_captions(corpus, range(6)).starts.tolist()
    [0, 2, 4, 6]
    >>> len(choose_captions(corpus, range(6), most=5))
    4
    """
    images = np.arange(corpus.image[rows.start], corpus.image[rows.stop - 1] + 1, dtype=np.int32)
    if len(rows) > most:
        drawn = np.random.default_rng(seed).permutation(images)
        sizes = np.cumsum(np.diff(corpus.indptr)[drawn])
        images = np.sort(drawn[: max(1, int(np.searchsorted(sizes, most, side="right")))])
    return PageCaptions(corpus, corpus.references(images, first=None).rows, images)


def _positions(ascending: Rows, values: Rows) -> NDArray[np.int64]:
    index = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    return np.where(ascending[index] == values, index, -1)
