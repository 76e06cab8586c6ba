"""Lines of SCAN's files, by which the loaders of VSE-infinity, SGRAF, NAAF and CHAN know a caption."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relabel_train.lookup.format import Description


def rows_of_lines(
    about: Description, arrays: Mapping[str, NDArray[Any]], index: ArrayLike, captions_per_image: int
) -> NDArray[np.int32]:
    """Return the corpus rows of lines of `SPLIT_caps.txt`, as `relabel export scan` writes them.

    Parameters
    ----------
    about : Description
    arrays : mapping of str to array
        Arrays of the lookup.
    index : (B,) int
        Numbers of lines from 0: the `index` of the loader's items.
    captions_per_image : int
        Lines per image, its first captions; 0 if all captions have a line.

    Returns
    -------
    (B,) int32

    Raises
    ------
    IndexError
        Naming the first line that the file does not have.
    ValueError
        If the lookup covers all splits, or an image has fewer captions.
    """
    lines = np.asarray(index, np.int64)
    # Lines count from the first caption of a split, and `all` has several.
    if about.split == "all":
        raise ValueError(f"{about.label}: a file of captions has one split; export a lookup of that split")
    indptr = np.asarray(arrays["indptr"])
    count = int(indptr[-1]) if captions_per_image == 0 else (len(indptr) - 1) * captions_per_image
    outside = (lines < 0) | (lines >= count)
    if outside.any():
        raise IndexError(f"no line {lines[outside].reshape(-1)[0]}; {about.split} has {count:,} lines")
    if captions_per_image == 0:
        return (lines + about.rows[0]).astype(np.int32)
    image, position = np.divmod(lines, captions_per_image)
    short = indptr[image] + position >= indptr[image + 1]
    if short.any():
        number = int(image[short].reshape(-1)[0])
        message = f"image {number} of {about.split} has fewer than {captions_per_image} captions"
        raise ValueError(f"{about.label}: {message}; pass the captions_per_image of the export")
    return (indptr[image] + position + about.rows[0]).astype(np.int32)
