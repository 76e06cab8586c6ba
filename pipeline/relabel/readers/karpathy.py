"""Karpathy's JSON: `dataset_coco.json`, `dataset_flickr30k.json`, `dataset_flickr8k.json`, plain or .gz.

Karpathy and Fei-Fei, CVPR 2015. COCO's captions are named by `sentid` (COCO's annotation id) and its images by
`cocoid`; the others by `sentid` and the stem of `filename`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from relabel.captions import Caption
from relabel.errors import CheckError
from relabel.readers.files import read_json, split_name, typed


def read_karpathy(path: Path, namespace: str) -> Iterator[Caption]:
    """Read one file of Karpathy's format; `restval` is train.

    Parameters
    ----------
    path : Path
    namespace : str
        `coco`, `flickr30k`, ...

    Raises
    ------
    MissingError
        If the file is not there.
    CheckError
        If it is not of the format, an image is there twice, or has no sentence; names file and record.
    """
    seen: dict[str, str] = {}
    for n, record in enumerate(typed(read_json(path), "images", list, str(path))):
        where = f"{path}: images[{n}]"
        image = _image_id(record, where)
        if image in seen:
            raise CheckError(f"image {image} is there twice (first: {seen[image]})", where=where)
        seen[image] = f"images[{n}]"
        image_id, split = f"{namespace}:{image}", split_name(typed(record, "split", str, where))
        sentences = typed(record, "sentences", list, where)
        if not sentences:
            raise CheckError(f"image {image} has no caption", where=where)
        for k, sentence in enumerate(sentences):
            at = f"{where}.sentences[{k}]"
            text = typed(sentence, "raw", str, at)
            yield Caption(f"{namespace}:{typed(sentence, 'sentid', int, at)}", image_id, split, text, at)


def _image_id(record: Any, where: str) -> str:
    if isinstance(record, dict) and "cocoid" in record:
        return str(typed(record, "cocoid", int, where))
    return PurePosixPath(typed(record, "filename", str, where)).stem
