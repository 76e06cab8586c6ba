"""JSON files of captions: COCO's annotations and Karpathy's `dataset_coco.json`, `dataset_flickr30k.json`, ...

COCO: `captions_train2014.json` and `captions_val2014.json` (Chen et al., Microsoft COCO Captions, 2015,
arXiv:1504.00325). Retrieval papers do not use COCO's train and val, but the splits in `relabel.corpus.splits`.
Karpathy: one file per dataset, plain or .gz (Karpathy and Fei-Fei, CVPR 2015).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from relabel.core.errors import CheckError
from relabel.core.parsing import check_regular, read_json, split_name, typed
from relabel.corpus.build import Caption
from relabel.corpus.splits import Splitter

_MAX_ID = 2**63  # ids are handled as int64
FILES = ("captions_train2014.json", "captions_val2014.json")


def coco_files(folder: Path) -> list[Path]:
    """Return the paths of the two files in an annotations folder, or in its parent."""
    # The archives of COCO unpack to a folder of this name.
    inner = folder / "annotations"
    paths = [(inner if inner.is_dir() else folder) / name for name in FILES]
    for path in paths:
        check_regular(path, todo="`relabel fetch coco-captions` gets it.")
    return paths


def read_coco(paths: Sequence[Path], splitter: Splitter, namespace: str = "coco") -> Iterator[Caption]:
    """Read COCO's captions.

    `paths`: files of the official format. `splitter`: returns the split of each image.
    """
    read = [caption for path in paths for caption in _read(path)]
    captions, images = (np.array(ids, np.int64) for ids in ([c[0] for c in read], [c[1] for c in read]))
    # The split needs the ids of both files, so the files are read before the first caption is yielded.
    split_of = splitter(captions, images)
    # One string per image, shared by its captions.
    names = {image: f"{namespace}:{image}" for image in split_of}
    for caption, image, text, where in read:
        yield Caption(f"{namespace}:{caption}", names[image], split_of[image], text, where)


def read_karpathy(path: Path, namespace: str) -> Iterator[Caption]:
    """Read one file of Karpathy's format. `restval` becomes train.

    COCO's captions are named by `sentid`, which is COCO's annotation id, and its images by `cocoid`. Captions and
    images of the other datasets are named by `sentid` and the stem of `filename`.

    `namespace`: `coco`, `flickr30k`, ...
    """
    # Image to its record, to name both records of a duplicate.
    seen: dict[str, str] = {}
    for n, record in enumerate(typed(read_json(path), "images", list, str(path))):
        where = f"{path}: images[{n}]"
        image = _image_id(record, where)
        if image in seen:
            raise CheckError(f"image {image} appears twice (first: {seen[image]})", where=where)
        seen[image] = f"images[{n}]"
        image_id, split = f"{namespace}:{image}", split_name(typed(record, "split", str, where))
        sentences = typed(record, "sentences", list, where)
        if not sentences:
            raise CheckError(f"image {image} has no caption", where=where)
        for k, sentence in enumerate(sentences):
            at = f"{where}.sentences[{k}]"
            text = typed(sentence, "raw", str, at)
            yield Caption(f"{namespace}:{typed(sentence, 'sentid', int, at)}", image_id, split, text, at)


def _read(path: Path) -> list[tuple[int, int, str, str]]:
    """Return the id, the image, the text and the place of each caption of a file."""
    body = read_json(path)
    bare = {_id(r, "id", f"{path}: images[{n}]") for n, r in enumerate(typed(body, "images", list, str(path)))}
    images, captions = frozenset(bare), []
    for n, record in enumerate(typed(body, "annotations", list, str(path))):
        where = f"{path}: annotations[{n}]"
        caption, image = _id(record, "id", where), _id(record, "image_id", where)
        if image not in images:
            raise CheckError(f"caption {caption} has no image: {image} is not among the file's images", where=where)
        captions.append((caption, image, typed(record, "caption", str, where), where))
        bare.discard(image)
    if bare:
        raise CheckError(f"image {min(bare)} has no caption, nor have {len(bare) - 1:,} others", where=str(path))
    return captions


def _id(record: Any, key: str, where: str) -> int:
    value: int = typed(record, key, int, where)
    if not 0 <= value < _MAX_ID:
        raise CheckError(f"{key!r}: {value} is not a valid id", where=where)
    return value


def _image_id(record: Any, where: str) -> str:
    if isinstance(record, dict) and "cocoid" in record:
        return str(typed(record, "cocoid", int, where))
    return PurePosixPath(typed(record, "filename", str, where)).stem
