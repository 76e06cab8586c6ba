"""COCO's captions of 2014 with the splits of retrieval papers: two files of annotations.

`captions_train2014.json` and `captions_val2014.json` (Chen et al., Microsoft COCO Captions, 2015, arXiv:1504.00325).
Papers do not use COCO's train and val, but the splits in `relabel.corpus.splits`. Other files of `images` and
`annotations` are JSON like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from relabel.core.errors import CheckError
from relabel.core.parsing import check_regular
from relabel.corpus.build import Caption
from relabel.corpus.params import IngestParams
from relabel.corpus.readers.containers import Container, of_records, open_json
from relabel.corpus.readers.layouts import Columns
from relabel.corpus.readers.rules import Rules
from relabel.corpus.splits import Splitter

FILES = ("captions_train2014.json", "captions_val2014.json")
COLUMNS = Columns("id", "image_id", ("caption",), "split")
_MEMORY = 4 << 30


def coco_files(folder: Path) -> list[Path]:
    """Return the paths of the two files in an annotations folder, or in its parent."""
    # The archives of COCO unpack to a folder of this name.
    inner = folder / "annotations"
    paths = [(inner if inner.is_dir() else folder) / name for name in FILES]
    return [check_regular(path, todo="`relabel fetch coco-captions` gets it.") for path in paths]


def open_coco(paths: Sequence[Path], splitter: Splitter, memory: int = _MEMORY) -> list[Container]:
    """Open COCO's files; `splitter` returns the split of each image."""
    bodies = [_annotations(path, memory) for path in paths]
    try:
        ids = [np.array([[one["id"], one["image_id"]] for one in body], np.int64).reshape(-1, 2) for body in bodies]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CheckError(
            f"annotations without whole numbers as id and image_id: {error}", where=str(paths[0])
        ) from error
    # The split needs the ids of both files.
    split_of = splitter(*np.concatenate(ids).T)
    return [_container(path, body, split_of) for path, body in zip(paths, bodies, strict=True)]


def read_coco(paths: Sequence[Path], splitter: Splitter, namespace: str = "coco") -> Iterator[Caption]:
    """Read COCO's captions."""
    rules = Rules(IngestParams(dataset=namespace), paths, _MEMORY)
    return rules.captions((container, COLUMNS) for container in open_coco(paths, splitter))


def _container(path: Path, body: Sequence[Any], split_of: Any) -> Container:
    rows = ((f"annotations[{n}]", {**one, "split": split_of[one["image_id"]]}, 0) for n, one in enumerate(body))
    return of_records(f"{path}: ", rows, str(path))


def _annotations(path: Path, memory: int) -> list[Any]:
    body = open_json(path, None, memory)
    annotations = body.get("annotations") if isinstance(body, dict) else None
    if not isinstance(annotations, list):
        raise CheckError("no list of annotations", where=str(path))
    return annotations
