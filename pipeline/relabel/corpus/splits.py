"""Names of splits, and Karpathy's split of COCO, the standard in image-text retrieval.

Karpathy and Fei-Fei, Deep Visual-Semantic Alignments, CVPR 2015: 5,000 images of COCO's val2014 are val, 5,000 test,
and the other 30,504 (`restval`) join train2014's 82,783 in train: 113,287 images.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import BeforeValidator

from relabel.core.errors import CheckError
from relabel.core.parsing import check_regular
from relabel_train.files import map_npy

Ids = NDArray[np.int64]
Splitter = Callable[[Ids, Ids], Mapping[int, str]]
"""Function of the ids of N captions and of their N images that returns the split of each image."""

Split = Literal["train", "val", "test"]

_WORDS: dict[str, Split] = {"train": "train", "training": "train", "restval": "train", "val": "val", "valid": "val"}
_WORDS |= {"validation": "val", "minival": "val", "dev": "val", "test": "test", "testing": "test", "testall": "test"}


def split_of(name: str, names: Mapping[str, Split]) -> Split | None:
    """Return the split that a word stands for, or None. Case is ignored, as are numbers, "1k" and "set".

    `names`: additional words.

    >>> split_of("Val2017", {})
    'val'
    """
    word = name.strip().lower()
    extra = {key.strip().lower(): split for key, split in names.items()}
    return extra.get(word) or _WORDS.get(word) or _WORDS.get(re.sub(r"_?(set|split|\d+k?)$", "", word))


def named_split(name: Any) -> Any:
    """Replace a common word for a split, such as "validation", by the split; return any other value unchanged.

    >>> named_split("validation"), named_split("all")
    ('val', 'all')
    """
    return (split_of(name, {}) if isinstance(name, str) else None) or name


NamedSplit = Annotated[Split, BeforeValidator(named_split)]
"""Split in a parameter model. Common words for splits are accepted."""


def split_by_ids(captions: Ids, images: Ids, test_captions: Ids, val_images: Ids) -> Mapping[int, str]:
    """Rebuild Karpathy's split from the ids of test captions and val images. All other images are train.

    `test_captions`: caption ids, as in eccv_caption's `coco_test_ids.npy` (25,000: the first five of each test image).
    `val_images`: image ids, as in CxC's val pairs (5,000).
    """
    for wanted, ids, kind in ((test_captions, captions, "test caption"), (val_images, images, "val image")):
        if len(absent := wanted[~np.isin(wanted, ids)]):
            problem = f"{kind} {absent[0]} is not in the annotations, nor are {len(absent) - 1:,} others"
            raise CheckError(
                f"{problem} of {len(wanted):,}",
                where="splits",
                hint="Pass both annotation files, or --format json if you have only a part of them.",
            )
    test = np.unique(images[np.isin(captions, test_captions)])
    names = dict.fromkeys(np.unique(images).tolist(), "train")
    return names | dict.fromkeys(test.tolist(), "test") | dict.fromkeys(val_images.tolist(), "val")


def coco_test_captions(path: Path) -> Ids:
    """Read eccv_caption's `coco_test_ids.npy`: the 25,000 ids of the first five captions of each test image, int64."""
    try:
        # Casting with `same_kind` raises for anything but integers.
        return map_npy(check_regular(path)).astype(np.int64, casting="same_kind").reshape(-1)
    except (ValueError, TypeError) as error:
        raise CheckError(f"not an array of ids: {error}", where=str(path), hint="Fetch it again.") from error


def mapping_hint(name: str) -> str:
    """Return the hint for the unknown name of a split."""
    # YAML reads words such as `no` as other values.
    plain = name.isidentifier() and yaml.safe_load(name) == name
    mapping = f"{{{name if plain else json.dumps(name, ensure_ascii=False)}: val}}"
    return f"Map them, as in --set {shlex.quote(f'ingest.split_names={mapping}')}, or use one split with --in-split."
