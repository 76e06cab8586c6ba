"""COCO 1K: the gallery cut into folds, each with its own captions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relabel_train.metrics.scores import Scores

Fold = tuple[Scores, NDArray[np.int64]]
"""Scores of a fold's images and captions, and the image of each of its captions, counted within the fold."""


def cut(scores: Scores, image_of_caption: NDArray[np.int64], folds: int | ArrayLike) -> Iterator[Fold]:
    """Cut scores into folds; a caption goes with its image, a caption of no image is left out.

    Parameters
    ----------
    scores : Scores
        (M, N).
    image_of_caption : (N,) int64
    folds : int or (M,) int
        A number: consecutive parts of one size, as COCO's five times 1,000 images in the order of Karpathy's file. Or
        the fold of each image.

    Raises
    ------
    ValueError
        If M is no multiple of the number, or there is not one fold an image.
    """
    images = scores.shape[0]
    if isinstance(folds, int | np.integer):
        if folds < 1 or images % folds:
            raise ValueError(f"{images} images can not be cut into {folds} folds of one size; give each image's fold")
        fold = np.arange(images) // max(1, images // int(folds))
    else:
        fold = np.asarray(folds)
        if fold.shape != (images,):
            raise ValueError(f"folds are {fold.shape}; one an image is needed, ({images},)")
    of_caption = np.where(image_of_caption >= 0, fold[image_of_caption], fold.min(initial=0) - 1)
    for name in np.unique(fold):
        rows, columns = np.flatnonzero(fold == name), np.flatnonzero(of_caption == name)
        place = np.full(images, -1, np.int64)
        place[rows] = np.arange(len(rows))
        yield scores.part(rows, columns), place[image_of_caption[columns]]
