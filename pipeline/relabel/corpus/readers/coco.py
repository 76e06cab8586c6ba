"""JSON files of captions: COCO's annotations and Karpathy's `dataset_coco.json`, `dataset_flickr30k.json`, ...

COCO: `captions_train2014.json` and `captions_val2014.json` (Chen et al., Microsoft COCO Captions, 2015,
arXiv:1504.00325). Retrieval papers do not use COCO's train and val, but the splits in `relabel.corpus.splits`.
Karpathy: one file per dataset, plain or .gz (Karpathy and Fei-Fei, CVPR 2015).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, NotRequired

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from relabel.core.errors import CheckError
from relabel.core.parameters import describe
from relabel.core.parsing import check_regular, read_bytes, split_name
from relabel.corpus.build import Caption
from relabel.corpus.splits import Splitter

FILES = ("captions_train2014.json", "captions_val2014.json")
_Id = Annotated[int, Field(ge=0, lt=2**63)]  # ids are handled as int64


class _CocoCaption(TypedDict):
    id: _Id
    image_id: _Id
    caption: str


class _CocoFile(TypedDict):
    annotations: list[_CocoCaption]


class _Sentence(TypedDict):
    raw: str
    sentid: int


class _KarpathyImage(TypedDict):
    cocoid: NotRequired[int]
    filename: str
    split: str
    sentences: Annotated[list[_Sentence], Field(min_length=1)]


class _KarpathyFile(TypedDict):
    images: list[_KarpathyImage]


def coco_files(folder: Path) -> list[Path]:
    """Return the paths of the two files in an annotations folder, or in its parent."""
    # The archives of COCO unpack to a folder of this name.
    inner = folder / "annotations"
    paths = [(inner if inner.is_dir() else folder) / name for name in FILES]
    return [check_regular(path, todo="`relabel fetch coco-captions` gets it.") for path in paths]


def read_coco(paths: Sequence[Path], splitter: Splitter, namespace: str = "coco") -> Iterator[Caption]:
    """Read COCO's captions; `splitter` returns the split of each image."""
    read = [(path, n, one) for path in paths for n, one in enumerate(_read(path, _CocoFile)["annotations"])]
    captions, images = (np.array([one[key] for _, _, one in read], np.int64) for key in ("id", "image_id"))
    # The split needs the ids of both files, so the files are read before the first caption is yielded.
    split_of = splitter(captions, images)
    # One string per image, shared by its captions.
    names = {image: f"{namespace}:{image}" for image in split_of}
    for path, n, one in read:
        caption_id, image, where = f"{namespace}:{one['id']}", one["image_id"], f"{path}: annotations[{n}]"
        yield Caption(caption_id, names[image], split_of[image], one["caption"], where)


def read_karpathy(path: Path, namespace: str) -> Iterator[Caption]:
    """Read one file of Karpathy's format. `restval` becomes train.

    COCO's captions are named by `sentid`, which is COCO's annotation id, and its images by `cocoid`. Captions and
    images of the other datasets are named by `sentid` and the stem of `filename`.

    `namespace`: `coco`, `flickr30k`, ...
    """
    # Image to its record, to name both records of a duplicate.
    seen: dict[str, str] = {}
    for n, record in enumerate(_read(path, _KarpathyFile)["images"]):
        where = f"{path}: images[{n}]"
        image = str(record["cocoid"]) if "cocoid" in record else PurePosixPath(record["filename"]).stem
        if image in seen:
            raise CheckError(f"image {image} appears twice (first: {seen[image]})", where=where)
        seen[image] = f"images[{n}]"
        image_id, split = f"{namespace}:{image}", split_name(record["split"])
        for k, sentence in enumerate(record["sentences"]):
            caption_id = f"{namespace}:{sentence['sentid']}"
            yield Caption(caption_id, image_id, split, sentence["raw"], f"{where}.sentences[{k}]")


def _read(path: Path, kind: Any) -> Any:
    """Read a JSON file whose content has the type `kind`; further keys are left out."""
    try:
        return TypeAdapter(kind).validate_json(read_bytes(path), strict=True)
    except ValidationError as error:
        raise CheckError(describe(error), where=str(path)) from error
