"""Contract: features are read by image id, with unchanged values, from all shapes of SCAN's files and from proxy
features. Invalid files are named.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from relabel_train.features import Features, open_features
from relabel_train.files import LookupFileError

RNG = np.random.default_rng(0)


def scan(folder: Path, split: str, array: NDArray[Any], ids: Sequence[str] | None = None) -> None:
    np.save(folder / f"{split}_ims.npy", array)
    if ids is not None:
        (folder / f"{split}_ids.txt").write_text("\n".join(ids) + "\n", encoding="utf-8")


def regions(images: int, width: int = 4) -> NDArray[np.float32]:
    return RNG.normal(size=(images, 3, width)).astype(np.float32)


def test_images_of_all_files_by_id(tmp_path: Path) -> None:
    """Check an id per image, and an id per caption for a row per caption and for a row per image."""
    train, dev, test = regions(4), regions(2), regions(2).astype(np.float16)
    scan(tmp_path, "train", train, ["7", "9", "1", "5"])
    scan(tmp_path, "dev", np.repeat(dev, 5, axis=0), ["30"] * 5 + ["20"] * 5)
    scan(tmp_path, "test", test, ["a"] * 5 + ["b"] * 5)
    features = open_features(tmp_path, namespace="coco")
    assert (len(features.image_ids), features.width, features.proxy) == (8, 4, None)
    vectors, lengths = features.take(features.rows_of(["coco:20", "coco:9", "coco:5", "coco:b", "coco:20"]))
    np.testing.assert_array_equal(vectors, np.stack([dev[1], train[1], train[3], test[1], dev[1]]))
    assert vectors.dtype == np.float32
    assert lengths.tolist() == [3] * 5
    assert ["coco:1" in features, "1" in features] == [True, False]
    with pytest.raises(LookupFileError, match=r"2 of 3 images.*coco:8"):
        features.rows_of(["coco:8", "coco:7", "x"])


def test_ids_of_positions_and_testall_precedes_test(tmp_path: Path) -> None:
    for split, images in (("testall", 3), ("test", 1)):
        scan(tmp_path, split, regions(images))
    assert open_features(tmp_path, position=True).image_ids == ["testall-0", "testall-1", "testall-2"]


@pytest.mark.parametrize(
    ("array", "ids", "said"),
    [
        (np.zeros((2, 3)), "ab", r"train_ims.*found float64 \(2, 3\)"),
        (np.zeros((2, 3, 4), np.int64), "ab", "train_ims.*found int64"),
        (np.full((2, 3, 4), np.nan, np.float32), "ab", "train_ims.*image 0"),
        (np.zeros((4, 3, 4)), "abc", "train_ids.*3 ids of 3 images.* 4 rows"),
        (np.zeros((4, 3, 4)), "abab", "train_ids.*comes back"),
        (np.zeros((2, 3, 4)), ["a", ""], "train_ids.*line 2"),
        (np.zeros((2, 3, 4)), None, "train_ids.*not found"),
        (np.zeros((2, 3, 5)), "ab", "differ"),
        (np.zeros((2, 3, 4)), "az", "image z occurs twice"),
    ],
)
def test_invalid_files_are_named(tmp_path: Path, array: NDArray[Any], ids: Sequence[str] | None, said: str) -> None:
    scan(tmp_path, "train", array, ids)
    scan(tmp_path, "dev", regions(1), ["z"])
    with pytest.raises((LookupFileError, FileNotFoundError), match=said):
        open_features(tmp_path)


def test_a_folder_without_features_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"features\.json"):
        open_features(tmp_path)


def proxy(folder: Path, **changed: object) -> Features:
    for i, images in enumerate((2, 1)):
        np.save(folder / f"f{i}.npy", regions(images).astype(np.float16))
    np.save(folder / "lengths.npy", np.array([3, 1, 2]))
    body = {"format": 1, "proxy": "no image was seen", "vectors": 3, "width": 4, "files": ["f0.npy", "f1.npy"]}
    body |= {"image_ids": ["a", "b", "c"], "held_out": ["x", "y", "z"], **changed}
    (folder / "features.json").write_text(json.dumps(body), encoding="utf-8")
    return open_features(folder)


def test_proxy_features_are_marked(tmp_path: Path) -> None:
    features = proxy(tmp_path)
    vectors, lengths = features.take(features.rows_of(["c", "b"]))
    assert (features.proxy, features.held_out) == ("no image was seen", {"x", "y", "z"})
    np.testing.assert_array_equal(vectors[0], np.load(tmp_path / "f1.npy")[0].astype(np.float32))
    assert lengths.tolist() == [2, 1]


OUTSIDE = ({"files": ["f0.npy", name]} for name in ("../f1.npy", "/f1.npy", "a//f1.npy", "f1.npy\0", "."))


@pytest.mark.parametrize(
    "changed",
    [{"format": 2}, {"width": 5}, {"image_ids": ["a"]}, {"image_ids": 3}, {"files": None}, {"files": [1]}, *OUTSIDE],
    ids=str,
)
def test_descriptions_that_do_not_fit_are_named(tmp_path: Path, changed: dict[str, object]) -> None:
    with pytest.raises(LookupFileError, match=r"features\.json"):
        proxy(tmp_path, **changed)


@pytest.mark.parametrize("name", ["features.json", "f0.npy", "lengths.npy", "train_ims.npy", "train_ids.txt"])
def test_a_device_is_refused_by_name(name: str, tmp_path: Path) -> None:
    if name[0] == "t":
        scan(tmp_path, "train", regions(2), ["a", "b"])
    else:
        proxy(tmp_path)
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to("/dev/zero")
    # Without its file, a folder has no features.
    with pytest.raises((LookupFileError, FileNotFoundError), match=name.replace("_", ".*_")):
        open_features(tmp_path)


def test_a_file_longer_than_its_array_is_named(tmp_path: Path) -> None:
    proxy(tmp_path)
    file = tmp_path / "lengths.npy"
    body = file.read_bytes()
    file.write_bytes(body[:-8] + b"\1" + body[-8:])
    with pytest.raises(LookupFileError, match=r"lengths\.npy: expected 152 bytes, found 153"):
        open_features(tmp_path)
