"""The references of images, for a whole batch at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Batch:
    """References of B images, position by position: all first references, then all second ones.

    Attributes
    ----------
    places : (W, B) int64
        An image with fewer than W references repeats its last one.
    sizes : (B,) int64 or None
        References of each image; None where all have W.
    """

    places: NDArray[np.int64]
    sizes: NDArray[np.int64] | None

    @property
    def padding(self) -> NDArray[np.bool_]:
        """(W, B): which of `places` are repeats."""
        width = len(self.places)
        sizes = np.full(self.places.shape[1], width) if self.sizes is None else self.sizes
        return np.asarray(np.arange(width)[:, None] >= sizes)

    def mean(self, scores: NDArray[Any]) -> NDArray[Any]:
        """Average (W, B, C) scores of references to (B, C)."""
        if self.sizes is None:
            return np.asarray(scores.sum(axis=0) / len(scores))
        scores[self.padding] = 0
        return np.asarray(scores.sum(axis=0) / self.sizes[:, None])


def references(
    image: NDArray[np.int32], indptr: NDArray[np.int64], places: NDArray[np.int64], most: int, paired: bool
) -> Batch:
    """List the references that stand for the images of some captions.

    Parameters
    ----------
    image, indptr
        See format.CAPTIONS.
    places : (B,) int64
        One caption of each image.
    most : int
        An image's first so many captions are its references.
    paired : bool
        The caption itself is the only reference.
    """
    if paired:
        return Batch(places[None], None)
    owner = image[places]
    first = indptr[owner]
    sizes = np.minimum(indptr[owner + 1] - first, most)
    width = int(sizes.max(initial=1))
    steps = np.arange(width)[:, None]
    if (sizes == width).all():
        return Batch(first + steps, None)
    return Batch(first + np.minimum(steps, sizes - 1), sizes)
