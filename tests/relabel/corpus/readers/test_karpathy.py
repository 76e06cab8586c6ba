"""Contract: Karpathy's JSON gives ids of cocoid or the filename's stem and of sentid; restval is train; records that
are not of the format are refused by name."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from relabel.core.errors import CheckError
from relabel.corpus import Corpus
from relabel.corpus.build import Caption
from relabel.corpus.readers.coco import read_karpathy


def image(name: str = "a.b.jpg", split: Any = "test", texts: tuple[Any, ...] = ("x",), **more: Any) -> dict[str, Any]:
    sentences = [{"raw": text, "sentid": crc32(name.encode()) + k, "tokens": []} for k, text in enumerate(texts)]
    return {"filename": name, "split": split, "sentences": sentences, **more}


def write(path: Path, *images: Any) -> Path:
    raw = json.dumps({"dataset": "d", "images": list(images)}).encode()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


@pytest.mark.parametrize("name", ["dataset_flickr8k.json", "dataset_flickr8k.json.gz"])
def test_ids_of_filename_and_sentid(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, image("1_a.b.jpg", "restval", ("one ", "two")), image("2.jpg"))
    ids = [crc32(b"1_a.b.jpg"), crc32(b"1_a.b.jpg") + 1, crc32(b"2.jpg")]
    assert list(read_karpathy(path, "flickr8k")) == [
        Caption(f"flickr8k:{ids[0]}", "flickr8k:1_a.b", "train", "one ", f"{path}: images[0].sentences[0]"),
        Caption(f"flickr8k:{ids[1]}", "flickr8k:1_a.b", "train", "two", f"{path}: images[0].sentences[1]"),
        Caption(f"flickr8k:{ids[2]}", "flickr8k:2", "test", "x", f"{path}: images[1].sentences[0]"),
    ]


def test_cocoid_goes_before_filename(tmp_path: Path) -> None:
    path = write(tmp_path / "dataset_coco.json", image("COCO_val2014_000000391895.jpg", cocoid=391895))
    assert next(read_karpathy(path, "coco")).image_id == "coco:391895"


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (3, "expected an object, found a whole number"),
        ({"split": "test", "sentences": []}, "no 'filename' here"),
        (image(split=None), "'split': expected a string, found null"),
        (image(texts=()), "image a.b has no caption"),
        (image("7.png"), "image 7 is there twice (first: images[0])"),
        (image(cocoid="7"), "'cocoid': expected a whole number, found a string"),
    ],
)
def test_bad_images_are_refused(tmp_path: Path, bad: Any, message: str) -> None:
    path = write(tmp_path / "d.json", image("7.jpg"), bad)
    with pytest.raises(CheckError, match=re.escape(f"{path}: images[1]: {message}")):
        list(read_karpathy(path, "d"))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("text", "expected an object, found a string"),
        ({"sentid": 1}, "no 'raw' here"),
        ({"raw": "x"}, "no 'sentid' here"),
        ({"raw": None, "sentid": 1}, "'raw': expected a string, found null"),
    ],
)
def test_bad_sentences_are_refused(tmp_path: Path, bad: Any, message: str) -> None:
    path = write(
        tmp_path / "d.json", {"filename": "a.jpg", "split": "test", "sentences": [{"raw": "x", "sentid": 0}, bad]}
    )
    with pytest.raises(CheckError, match=re.escape(f"{path}: images[0].sentences[1]: {message}")):
        list(read_karpathy(path, "d"))


def test_unknown_split_is_refused_with_its_record(tmp_path: Path) -> None:
    path = write(tmp_path / "d.json", image(split="holdout"))
    with pytest.raises(CheckError, match=re.escape(f"{path}: images[0].sentences[0]: unknown split 'holdout'")):
        Corpus.from_captions(read_karpathy(path, "d"))
