"""Contract: the official annotations and Karpathy's JSON give the same rows with COCO's ids. Karpathy's image ids are
cocoid or the stem of the filename, his caption ids are sentid, and restval is train. The published files have the
captions of an image by ascending id, so the first five are those of papers.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.relabel.corpus.readers.reading import read

from relabel.corpus import Corpus
from relabel.corpus.build import Caption
from relabel.corpus.readers.coco import FILES, coco_files, read_coco
from relabel.corpus.splits import Splitter


def test_reads_both_files_as_written(tmp_path: Path) -> None:
    records = (10, 1, "A dog.\n"), (9, 1, " two\u2028 "), (11, 3, "x")
    entries = [dict(zip(("id", "image_id", "caption"), record, strict=True)) for record in records]
    for name, part in zip(FILES, (entries[:2], entries[2:]), strict=True):
        (tmp_path / name).write_text(json.dumps({"info": {}, "images": [], "annotations": part}))

    def splitter(captions: NDArray[np.int64], images: NDArray[np.int64]) -> Mapping[int, str]:
        assert captions.tolist() == [10, 9, 11]
        assert images.tolist() == [1, 1, 3]
        return {1: "train", 3: "test"}

    first, second = coco_files(tmp_path)
    assert list(read_coco([first, second], splitter)) == [
        Caption("coco:10", "coco:1", "train", "A dog.\n", f"{first}: annotations[0]"),
        Caption("coco:9", "coco:1", "train", " two\u2028 ", f"{first}: annotations[1]", 1),
        Caption("coco:11", "coco:3", "test", "x", f"{second}: annotations[0]"),
    ]


def test_karpathy_gives_the_same_rows(mirror: Path, coco_folder: Path, coco_splitter: Splitter) -> None:
    path = mirror / "coco" / "dataset_coco.json.gz"
    if not path.exists():
        pytest.skip(f"no {path.name} in the mirror")
    theirs = Corpus.from_captions(read(path, dataset="coco", format="karpathy"))
    # All images of val and test are in the second file.
    captions = read_coco(coco_files(coco_folder)[1:], coco_splitter)
    coco = Corpus.from_captions(caption for caption in captions if caption.split == "test")
    ours = coco.table.take(coco.references(coco.images(["test"])).rows)
    numbers = [(image, int(name[5:])) for image, name in zip(coco.image, coco.caption_ids, strict=True)]
    assert numbers == sorted(numbers)
    for column in ("caption_id", "image_id", "split", "position", "text"):
        assert theirs.table[column].to_pylist() == ours[column].to_pylist()
    assert len(theirs) == 25_000


@pytest.mark.parametrize("name", ["dataset_flickr8k.json", "dataset_flickr8k.json.gz"])
def test_karpathy_ids_of_filename_cocoid_and_sentid(tmp_path: Path, name: str) -> None:
    two = [{"raw": "one ", "sentid": 30}, {"raw": "two", "sentid": 31}]
    images = [
        {"filename": "1_a.b.jpg", "split": "restval", "sentences": two},
        {"filename": "2.jpg", "split": "test", "cocoid": 7, "sentences": [{"raw": "x", "sentid": 5}]},
    ]
    path, raw = tmp_path / name, json.dumps({"images": images}).encode()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    assert read(path, dataset="flickr8k") == [
        Caption("flickr8k:30", "flickr8k:1_a.b", "train", "one ", f"{path}: images[0]"),
        Caption("flickr8k:31", "flickr8k:1_a.b", "train", "two", f"{path}: images[0]", 1),
        Caption("flickr8k:5", "flickr8k:7", "test", "x", f"{path}: images[1]"),
    ]
