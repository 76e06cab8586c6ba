"""The references of images, for a whole batch at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel_train.lookup.format import Pooling


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

    def take(self, index: NDArray[np.int64]) -> Batch:
        """Select images, repeats allowed."""
        return Batch(self.places[:, index], None if self.sizes is None else self.sizes[index])

    def pool(self, scores: NDArray[Any], pooling: Pooling) -> NDArray[Any]:
        """Reduce (W, B, C) scores of references to (B, C). `scores` may be changed."""
        if len(scores) == 1:
            return np.asarray(scores[0])
        if pooling == "max":
            return np.asarray(scores.max(axis=0))
        return self.mean(scores)

    def mean(self, scores: NDArray[Any]) -> NDArray[Any]:
        """Average (W, B, C) scores of references to (B, C). `scores` may be changed."""
        if self.sizes is None:
            return np.asarray(scores.sum(axis=0) / scores.dtype.type(len(scores)))
        scores[np.arange(len(scores))[:, None] >= self.sizes] = 0
        return np.asarray(scores.sum(axis=0) / self.sizes[:, None].astype(scores.dtype))


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
