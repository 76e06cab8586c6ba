"""COCO's captions of 2014 with the splits of retrieval papers: two files of annotations.

`captions_train2014.json` and `captions_val2014.json` (Chen et al., Microsoft COCO Captions, 2015, arXiv:1504.00325).
Papers use the splits in `relabel.corpus.splits` instead of COCO's train and val. Other files of `images` and
`annotations` are read as ordinary JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from relabel.core.errors import CheckError
from relabel.core.parsing import check_regular
from relabel.corpus.build import Caption
from relabel.corpus.params import IngestParams
from relabel.corpus.readers.containers import Container, Record, of_records, open_json
from relabel.corpus.readers.layouts import Columns
from relabel.corpus.readers.rules import Rules
from relabel.corpus.splits import Splitter

FILES = ("captions_train2014.json", "captions_val2014.json")
COLUMNS = Columns("id", "image_id", ("caption",), "split")
_MEMORY = 4 << 30


def coco_files(folder: Path) -> list[Path]:
    """Return the paths of the two files in an annotations folder, or in its parent."""
    # COCO's archives contain a folder with this name.
    inner = folder / "annotations"
    paths = [(inner if inner.is_dir() else folder) / name for name in FILES]
    return [check_regular(path, hint="Download it with `relabel fetch coco-captions`.") for path in paths]


def open_coco(paths: Sequence[Path], splitter: Splitter, memory: int = _MEMORY) -> list[Container]:
    """Open COCO's files; `splitter` returns the split of each image."""
    bodies = [open_json(path, None, memory) for path in paths]
    try:
        lists = [body["annotations"] for body in bodies]
        ids = [np.array([[one["id"], one["image_id"]] for one in body], np.int64).reshape(-1, 2) for body in lists]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        problem = f"no annotations with integers as id and image_id: {error}"
        raise CheckError(problem, where=str(paths[0].parent)) from error
    # The splits depend on the ids of both files.
    split_of = splitter(*np.concatenate(ids).T)
    return [of_records(f"{path}: ", _rows(body, split_of), str(path)) for path, body in zip(paths, lists, strict=True)]


def read_coco(paths: Sequence[Path], splitter: Splitter, namespace: str = "coco") -> Iterator[Caption]:
    """Read COCO's captions."""
    rules = Rules(IngestParams(dataset=namespace), paths, _MEMORY)
    return rules.captions((container, COLUMNS) for container in open_coco(paths, splitter))


def _rows(body: Sequence[Any], split_of: Mapping[int, str]) -> Iterator[Record]:
    for n, one in enumerate(body):
        yield f"annotations[{n}]", {**one, "split": split_of.get(one["image_id"])}
