"""Karpathy's split of COCO's images, the standard of papers on image-text retrieval.

Karpathy and Fei-Fei, Deep Visual-Semantic Alignments, CVPR 2015: 5,000 images of COCO's val2014 are val, 5,000 test,
and the other 30,504 (`restval`) join train2014's 82,783 in train: 113,287 images.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from relabel.core.errors import CheckError
from relabel.core.parsing import check_regular, read_json, split_name, typed
from relabel_train.npy_file import map_npy

Ids = NDArray[np.int64]
Splitter = Callable[[Ids, Ids], Mapping[int, str]]
"""Function of the ids of N captions and of their N images that returns the split of each image."""


def split_by_file(path: Path) -> Splitter:
    """Return the splits of a `dataset_coco.json` (or .json.gz)."""
    split_of: dict[int, str] = {}
    for n, record in enumerate(typed(read_json(path), "images", list, str(path))):
        where = f"{path}: images[{n}]"
        image = typed(record, "cocoid", int, where)
        if image in split_of:
            raise CheckError(f"image {image} appears twice", where=where)
        split_of[image] = split_name(typed(record, "split", str, where))

    def split(_captions: Ids, images: Ids) -> Mapping[int, str]:
        wanted = np.unique(images).tolist()
        lacking = [i for i in wanted if i not in split_of]
        if lacking:
            raise CheckError(
                f"has no split for {len(lacking):,} of {len(wanted):,} images (the first is {lacking[0]})",
                where=str(path),
                todo="Give the whole dataset_coco.json, or none: the splits are then those of ECCV Caption and CxC.",
            )
        return {i: split_of[i] for i in wanted}

    return split


def split_as_published(test_captions: Path) -> Splitter:
    """Return the splits of the published lists of ids.

    `test_captions`: eccv_caption's `coco_test_ids.npy`. The val images are those of CxC.
    """
    from relabel.datasets.cxc import image_ids

    return split_by_ids(coco_test_captions(test_captions), image_ids("val"))


def split_by_ids(test_captions: Ids, val_images: Ids) -> Splitter:
    """Rebuild Karpathy's split from the ids of test captions and val images. All other images are train.

    `test_captions`: caption ids, as in eccv_caption's `coco_test_ids.npy` (25,000: the first five of each test image).
    `val_images`: image ids, as in CxC's val pairs (5,000).
    """

    def split(captions: Ids, images: Ids) -> Mapping[int, str]:
        test = np.unique(images[_positions(test_captions, captions, "test caption")])
        # Only to raise for a val image that is not in the corpus.
        _positions(val_images, images, "val image")
        both = np.intersect1d(test, val_images)
        if len(both):
            raise CheckError(f"image {both[0]} is both in test and in val", where="splits")
        return (
            dict.fromkeys(np.unique(images).tolist(), "train")
            | dict.fromkeys(test.tolist(), "test")
            | dict.fromkeys(val_images.tolist(), "val")
        )

    return split


def _positions(wanted: Ids, ids: Ids, kind: str) -> NDArray[np.intp]:
    """Return the position of each wanted id in `ids`, or raise for an absent id."""
    order = np.argsort(ids, kind="stable")
    # An id beyond the largest would point past the end; it is found to be absent below.
    ranks = np.minimum(np.searchsorted(ids, wanted, sorter=order), len(ids) - 1)
    positions = order[ranks] if len(ids) else ranks
    absent = wanted if not len(ids) else wanted[ids[positions] != wanted]
    if len(absent):
        raise CheckError(
            f"{kind} {absent[0]} is not in the annotations, nor are {len(absent) - 1:,} others of {len(wanted):,}",
            where="splits",
            todo="Give both annotation files, or a dataset_coco.json that names the splits of these images.",
        )
    return positions


def coco_test_captions(path: Path) -> Ids:
    """Read eccv_caption's `coco_test_ids.npy`: the 25,000 ids of the first five captions of each test image, int64."""
    try:
        ids = map_npy(check_regular(path))
    except ValueError as error:
        raise CheckError(f"not an array of numbers: {error}", where=str(path), todo="Fetch it again.") from error
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise CheckError(f"expected a one-dimensional array of ids, found {ids.ndim}-d {ids.dtype}", where=str(path))
    return np.array(ids, np.int64)
