"""COCO captions: the official annotations, `captions_train2014.json` and `captions_val2014.json`.

Chen et al., Microsoft COCO Captions, 2015 (arXiv:1504.00325). The files' own train and val are not the splits that
retrieval papers use; `relabel.splits` knows those.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from relabel.captions import Caption
from relabel.errors import CheckError, MissingError
from relabel.readers.files import read_json, typed
from relabel.splits import Splitter

_END = 2**63
FILES = ("captions_train2014.json", "captions_val2014.json")


class _Annotations(NamedTuple):
    path: Path
    ids: list[int]
    images: list[int]
    texts: list[str]


def coco_files(folder: Path) -> list[Path]:
    """Find the two files in an annotations folder, or in the folder that holds it.

    Raises
    ------
    MissingError
        If one is not there.
    """
    inner = folder / "annotations"
    paths = [(inner if inner.is_dir() else folder) / name for name in FILES]
    for path in paths:
        if not path.is_file():
            raise MissingError("no such file", where=str(path), todo="`relabel fetch coco-captions` gets it.")
    return paths


def read_coco(paths: Sequence[Path], splitter: Splitter, namespace: str = "coco") -> Iterator[Caption]:
    """Read COCO's captions.

    Parameters
    ----------
    paths : sequence of Path
        Files of the official format.
    splitter : Splitter
        Says which split each image is in.
    namespace : str

    Raises
    ------
    MissingError
        If a file is not there.
    CheckError
        If a file is not of the format, or a caption has no image, or an image no caption; names file and record.
    """
    parts = [_read(path) for path in paths]
    captions = np.concatenate([np.array(part.ids, np.int64) for part in parts])
    images = np.concatenate([np.array(part.images, np.int64) for part in parts])
    split_of = splitter(captions, images)
    names = {image: f"{namespace}:{image}" for image in split_of}
    for path, ids, image_ids, texts in parts:
        for n, (caption, image, text) in enumerate(zip(ids, image_ids, texts, strict=True)):
            where = f"{path}: annotations[{n}]"
            yield Caption(f"{namespace}:{caption}", names[image], split_of[image], text, where)


def _read(path: Path) -> _Annotations:
    body = read_json(path)
    known = {_id(r, "id", f"{path}: images[{n}]") for n, r in enumerate(typed(body, "images", list, str(path)))}
    found = _Annotations(path, [], [], [])
    for n, record in enumerate(typed(body, "annotations", list, str(path))):
        try:
            caption, image, text = record["id"], record["image_id"], record["caption"]
        except (KeyError, TypeError):
            caption = image = text = None
        if not (type(caption) is type(image) is int and type(text) is str and image in known and 0 <= caption < _END):
            _refuse(record, known, f"{path}: annotations[{n}]")
        found.ids.append(caption)
        found.images.append(image)
        found.texts.append(text)
    if bare := known.difference(found.images):
        raise CheckError(f"image {min(bare)} has no caption, nor have {len(bare) - 1:,} others", where=str(path))
    return found


def _refuse(record: Any, known: set[int], where: str) -> None:
    caption, image = _id(record, "id", where), _id(record, "image_id", where)
    typed(record, "caption", str, where)
    if image not in known:
        raise CheckError(f"caption {caption} has no image: {image} is not among the file's images", where=where)


def _id(record: Any, key: str, where: str) -> int:
    value: int = typed(record, key, int, where)
    if not 0 <= value < _END:
        raise CheckError(f"{key!r}: {value} is no id", where=where)
    return value
