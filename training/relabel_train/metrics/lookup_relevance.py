"""Labels of a score matrix, out of a lookup."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

Places = NDArray[np.int64]


class Lookup(Protocol):
    """The part of `relabel_train.lookup.Lookup` that is used here."""

    def block(self, rows: ArrayLike, columns: ArrayLike | None, pooling: Any, /) -> NDArray[np.floating[Any]]:
        """Give r(image of rows[i], caption columns[j])."""
        ...


class LookupRelevance:
    """Exact labels of rows and columns of a score matrix, (images, captions) -> (m, n) float32.

    Parameters
    ----------
    lookup : Lookup
        What `open_lookup` gives.
    image_rows : (M,) int
        For each row of the scores, the corpus row of one caption of its image; see ``Lookup.rows_of_images``.
    caption_rows : (N,) int
        For each column, the corpus row of its caption; see ``Lookup.rows_of``.
    pooling : "paired", "max", "mean" or "refs", optional
        The label's own where not given. "paired" takes image_rows[i] itself: labels of captions against captions, as
        Ladder's CS@K.
    """

    def __init__(self, lookup: Lookup, image_rows: ArrayLike, caption_rows: ArrayLike, pooling: Any = None) -> None:
        self.lookup, self.pooling = lookup, pooling
        self.image_rows, self.caption_rows = np.asarray(image_rows), np.asarray(caption_rows)

    @property
    def shape(self) -> tuple[int, int]:
        """(M, N)."""
        return len(self.image_rows), len(self.caption_rows)

    def __call__(self, images: Places, captions: Places) -> NDArray[np.floating[Any]]:
        """Give the labels of some rows and columns."""
        return self.lookup.block(self.image_rows[images], self.caption_rows[captions], self.pooling)
