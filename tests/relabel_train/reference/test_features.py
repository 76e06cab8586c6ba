"""Contract: features are read by image id, with unchanged values, from all shapes of SCAN's files and from proxy
features. Invalid files are named, with the expected and the actual content.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from relabel_train.files import LookupFileError
from relabel_train.reference.features import Features, open_features

RNG = np.random.default_rng(0)


def scan(folder: Path, split: str, array: NDArray[np.floating], ids: list[str] | None) -> None:
    np.save(folder / f"{split}_ims.npy", array)
    if ids is not None:
        (folder / f"{split}_ids.txt").write_text("\n".join(ids) + "\n", encoding="utf-8")


def regions(images: int, width: int = 4) -> NDArray[np.float32]:
    return RNG.normal(size=(images, 3, width)).astype(np.float32)


def test_images_of_all_files_by_id(tmp_path: Path) -> None:
    train, dev = regions(4), regions(2)
    scan(tmp_path, "train", train, ["7", "9", "1", "5"])
    scan(tmp_path, "dev", np.repeat(dev, 5, axis=0), ["30"] * 5 + ["20"] * 5)  # each image once per caption
    features = open_features(tmp_path, namespace="coco")
    assert (len(features), features.most, features.width, features.proxy) == (6, 3, 4, None)
    vectors, lengths = features[["coco:20", "coco:9", "coco:5", "coco:20"]]
    np.testing.assert_array_equal(vectors, np.stack([dev[1], train[1], train[3], dev[1]]))
    assert vectors.dtype == np.float32
    assert lengths.tolist() == [3] * 4
    again = pickle.loads(pickle.dumps(features))
    np.testing.assert_array_equal(again[["coco:1"]][0][0], train[2])
    assert "coco:1" in features
    assert "1" not in features
    with pytest.raises(LookupFileError, match="no features of 2 of 3 images; the first are coco:8"):
        features[["coco:8", "coco:7", "x"]]


@pytest.mark.parametrize(
    ("array", "ids", "said"),
    [
        (np.zeros((2, 3)), ["a", "b"], r"expected \(images, regions, width\) floats, found float64 \(2, 3\)"),
        (np.zeros((2, 3, 4), np.int64), ["a", "b"], "found int64"),
        (np.full((2, 3, 4), np.nan, np.float32), ["a", "b"], "image 0 has a value that is not finite"),
        (np.zeros((4, 3, 4)), ["a", "b", "c"], "3 ids of 3 images do not go with the 4 rows"),
        (np.zeros((4, 3, 4)), ["a", "b", "a", "b"], "comes back"),
        (np.zeros((2, 3, 4)), ["a", ""], "line 2 is an empty id"),
    ],
)
def test_invalid_files_are_named(tmp_path: Path, array: NDArray[np.floating], ids: list[str], said: str) -> None:
    scan(tmp_path, "train", array, ids)
    with pytest.raises(LookupFileError, match=said) as error:
        open_features(tmp_path)
    assert "train_i" in str(error.value)


def proxy(folder: Path, **changed: object) -> Features:
    arrays = [RNG.normal(size=(n, 3, 4)).astype(np.float16) for n in (2, 1)]
    for i, array in enumerate(arrays):
        np.save(folder / f"f{i}.npy", array)
    np.save(folder / "lengths.npy", np.array([3, 1, 2]))
    body = {
        "format": 1,
        "proxy": "no image was seen",
        "vectors": 3,
        "width": 4,
        "files": ["f0.npy", "f1.npy"],
        "image_ids": ["a", "b", "c"],
        "held_out": ["x", "y", "z"],
    }
    (folder / "features.json").write_text(json.dumps(body | changed), encoding="utf-8")
    return open_features(folder)


def test_proxy_features_are_marked(tmp_path: Path) -> None:
    features = proxy(tmp_path)
    assert features.proxy == "no image was seen"
    vectors, lengths = features[["c", "b"]]
    np.testing.assert_array_equal(vectors[0], np.load(tmp_path / "f1.npy")[0].astype(np.float32))
    assert lengths.tolist() == [2, 1]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"format": 2}, "expected format 1, found 2"),
        ({"width": 5}, "do not fit features.json"),
        ({"image_ids": ["a"]}, "do not fit features.json"),
        ({"files": None}, "not a description"),
    ],
)
def test_mismatched_descriptions(tmp_path: Path, changed: dict[str, object], said: str) -> None:
    with pytest.raises(LookupFileError, match=said):
        proxy(tmp_path, **changed)
