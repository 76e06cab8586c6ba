"""Contract: every COCO image gets Karpathy's split, from the ids of ECCV Caption and CxC. An unknown id is refused,
never dropped.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from relabel.core.errors import CheckError, MissingError
from relabel.corpus.splits import coco_test_captions, split_by_ids
from relabel.datasets.cxc import image_ids


def ids(*values: int) -> NDArray[np.int64]:
    return np.array(values, np.int64)


CAPTIONS, IMAGES = ids(10, 11, 12, 13, 14), ids(5, 3, 5, 4, 9)


def test_test_follows_captions_val_follows_images_train_is_the_rest() -> None:
    split = split_by_ids(CAPTIONS, IMAGES, ids(12, 10), ids(9))
    assert dict(split) == {3: "train", 4: "train", 5: "test", 9: "val"}


@pytest.mark.parametrize(
    ("test", "val", "message"),
    [
        (ids(12, 99), ids(9), "test caption 99 is not in the annotations, nor are 0 others of 2"),
        (ids(12), ids(2, 9, 77), "val image 2 is not in the annotations, nor are 1 others of 3"),
    ],
)
def test_mismatched_ids_are_refused(test: NDArray[np.int64], val: NDArray[np.int64], message: str) -> None:
    with pytest.raises(CheckError, match=re.escape(message)):
        split_by_ids(CAPTIONS, IMAGES, test, val)


def test_ids_of_installed_packages(coco_test_ids: NDArray[np.int64], tmp_path: Path) -> None:
    np.save(tmp_path / "ids.npy", coco_test_ids)
    assert np.array_equal(coco_test_captions(tmp_path / "ids.npy"), coco_test_ids)
    val = image_ids("val")
    assert (val.shape, val.dtype) == ((5_000,), np.int64)
    assert (np.diff(val) > 0).all()


def test_bad_ids_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "ids.npy"
    with pytest.raises(MissingError, match=re.escape(str(path))):
        coco_test_captions(path)
    path.write_bytes(b"\x80\x04K\x01.")
    with pytest.raises(CheckError, match="not an array of ids"):
        coco_test_captions(path)
    np.save(path, np.array(["x"], object), allow_pickle=True)
    with pytest.raises(CheckError, match="not an array of ids"):
        coco_test_captions(path)
