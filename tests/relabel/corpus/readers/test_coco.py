"""Contract: the official annotations and Karpathy's JSON give the same rows with COCO's ids; invalid content is
refused with file and record. Karpathy's image ids are cocoid or the stem of the filename, his caption ids are
sentid, and restval is train.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from numpy.typing import NDArray

from relabel.corpus import Corpus
from relabel.corpus.build import Caption
from relabel.corpus.readers.coco import FILES, coco_files, read_coco, read_karpathy

Ids = NDArray[np.int64]


def write(path: Path, body: Any) -> Path:
    path.write_text(json.dumps(body))
    return path


def annotations(*records: Any) -> dict[str, Any]:
    return {"info": {}, "images": [], "annotations": list(records)}


def record(caption: Any = 10, image: Any = 1, text: Any = "A dog.\n") -> dict[str, Any]:
    return {"id": caption, "image_id": image, "caption": text}


def test_reads_both_files_as_written(tmp_path: Path) -> None:
    write(tmp_path / FILES[0], annotations(record(), record(9, 1, " two\u2028 ")))
    write(tmp_path / FILES[1], annotations(record(11, 3, "x")))

    def splitter(captions: Ids, images: Ids) -> Mapping[int, str]:
        assert captions.tolist() == [10, 9, 11]
        assert images.tolist() == [1, 1, 3]
        return {1: "train", 3: "test"}

    first, second = coco_files(tmp_path)
    assert list(read_coco([first, second], splitter)) == [
        Caption("coco:10", "coco:1", "train", "A dog.\n", f"{first}: annotations[0]"),
        Caption("coco:9", "coco:1", "train", " two\u2028 ", f"{first}: annotations[1]"),
        Caption("coco:11", "coco:3", "test", "x", f"{second}: annotations[0]"),
    ]


def test_karpathy_gives_the_same_rows(coco: Corpus, mirror: Path) -> None:
    path = mirror / "coco" / "dataset_coco.json.gz"
    if not path.exists():
        pytest.skip(f"no {path.name} in the mirror")
    theirs = Corpus.from_captions(read_karpathy(path, "coco"))
    ours = coco.table.take(coco.references(coco.images(["test"])).rows)
    for column in ("caption_id", "image_id", "split", "position", "text"):
        assert theirs.table[column].to_pylist() == ours[column].to_pylist()
    assert len(theirs) == 25_000


def karpathy_image(
    name: str = "a.b.jpg", split: Any = "test", texts: tuple[Any, ...] = ("x",), **more: Any
) -> dict[str, Any]:
    sentences = [{"raw": text, "sentid": crc32(name.encode()) + k, "tokens": []} for k, text in enumerate(texts)]
    return {"filename": name, "split": split, "sentences": sentences, **more}


def write_karpathy(path: Path, *images: Any) -> Path:
    raw = json.dumps({"dataset": "d", "images": list(images)}).encode()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


@pytest.mark.parametrize("name", ["dataset_flickr8k.json", "dataset_flickr8k.json.gz"])
def test_karpathy_ids_of_filename_cocoid_and_sentid(tmp_path: Path, name: str) -> None:
    path = write_karpathy(
        tmp_path / name, karpathy_image("1_a.b.jpg", "restval", ("one ", "two")), karpathy_image("2.jpg", cocoid=7)
    )
    ids = [crc32(b"1_a.b.jpg"), crc32(b"1_a.b.jpg") + 1, crc32(b"2.jpg")]
    assert list(read_karpathy(path, "flickr8k")) == [
        Caption(f"flickr8k:{ids[0]}", "flickr8k:1_a.b", "train", "one ", f"{path}: images[0].sentences[0]"),
        Caption(f"flickr8k:{ids[1]}", "flickr8k:1_a.b", "train", "two", f"{path}: images[0].sentences[1]"),
        Caption(f"flickr8k:{ids[2]}", "flickr8k:7", "test", "x", f"{path}: images[1].sentences[0]"),
    ]
