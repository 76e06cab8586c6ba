"""ECCV Caption's queries, positives and galleries, found in a corpus (Chun et al., ECCV 2022)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from relabel.core.errors import CheckError
from relabel.core.parsing import read_json
from relabel.core.types import Rows
from relabel.corpus import Corpus
from relabel.corpus.splits import coco_test_captions
from relabel.datasets import locate

Direction = Literal["i2t", "t2i"]
DIRECTIONS: tuple[Direction, ...] = ("i2t", "t2i")
FILES: dict[Direction, str] = {"i2t": "eccv_image_to_caption.json", "t2i": "eccv_caption_to_image.json"}
GALLERY = "coco_test_ids.npy"
NAMESPACE = "coco"


@dataclass(frozen=True, eq=False)
class Queries:
    """The queries of one direction.

    Attributes
    ----------
    ids : list of str, length Q
    index : (Q,) int32
        Image numbers (i2t) or caption rows (t2i) of the corpus.
    items : list of Q int64 arrays
        Positions in the gallery of each query's positives.
    positives : (Q,) int64
        R: number of positives of each query, in the gallery or not.
    """

    ids: list[str]
    index: Rows
    items: list[NDArray[np.int64]]
    positives: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ids)

    def positive(self, batch: range, gallery: int) -> NDArray[np.bool_]:
        """Mark the positives of a batch of queries in a gallery of some size: (len(batch), gallery) bool."""
        out = np.zeros((len(batch), gallery), np.bool_)
        for i, q in enumerate(batch):
            out[i, self.items[q]] = True
        return out


@dataclass(frozen=True, eq=False)
class Eccv:
    """ECCV Caption in terms of a corpus.

    Attributes
    ----------
    captions : (25000,) int32
        The caption gallery: corpus rows, ascending.
    images : (5000,) int32
        The image gallery: image numbers, ascending.
    queries : dict of Direction to Queries
        1,261 images and 1,332 captions; the README of ECCV Caption swaps the two.
    """

    captions: Rows
    images: Rows
    queries: dict[Direction, Queries]

    def gallery(self, direction: Direction) -> Rows:
        """Return the gallery that the queries of a direction rank."""
        return self.captions if direction == "i2t" else self.images


def read_eccv(corpus: Corpus, data: Path) -> Eccv:
    """Read ECCV Caption and find its ids in a corpus.

    Raises
    ------
    MissingError
        If its files, which come with the package eccv_caption, are missing.
    CheckError
        If the corpus lacks any of its captions or images.
    """
    # Galleries are ascending: positives are found in them by binary search, and ties by row are ties by id.
    captions = np.sort(_find(coco_test_captions(locate("eccv", GALLERY, data)).tolist(), corpus.row_of, "captions"))
    images = np.unique(corpus.image[captions])
    queries: dict[Direction, Queries] = {
        "i2t": _queries(locate("eccv", FILES["i2t"], data), corpus.image_of, corpus.row_of, captions),
        "t2i": _queries(locate("eccv", FILES["t2i"], data), corpus.row_of, corpus.image_of, images),
    }
    return Eccv(captions, images, queries)


def read_positives(path: Path) -> dict[str, list[int]]:
    """Read the ids of each query's positives.

    Raises
    ------
    MissingError, CheckError
        If the file cannot be read, or is not an object of lists of ids.

    Examples
    --------
    >>> from pathlib import Path
    >>> from relabel.judge.eccv_data import read_positives
    >>> _ = Path("positives.json").write_text('{"12": [3, 4]}')
    >>> read_positives(Path("positives.json"))
    {'12': [3, 4]}
    """
    content = read_json(path)
    if not isinstance(content, dict):
        raise CheckError("expected an object of lists of ids", where=str(path))
    for query, ids in content.items():
        # `type` rather than `isinstance`, for which true and false are integers as well.
        if not isinstance(ids, list) or not all(type(i) is int for i in ids):
            raise CheckError(f"query {query[:40]!r}: expected a list of ids", where=str(path))
    return content


def _queries(path: Path, query_number: Mapping[str, int], item_number: Mapping[str, int], gallery: Rows) -> Queries:
    content = read_positives(path)
    positives = [sorted(set(ids)) for ids in content.values()]
    items = []
    for ids in positives:
        numbers = np.array([item_number.get(f"{NAMESPACE}:{i}", -1) for i in ids], np.int32)
        # A positive that the corpus or the gallery lacks can never be ranked. It still counts in R, so a label cannot
        # reach 100.
        positions = np.minimum(np.searchsorted(gallery, numbers), len(gallery) - 1)
        items.append(positions[gallery[positions] == numbers].astype(np.int64))
    names = [f"{NAMESPACE}:{i}" for i in content]
    counts = np.array([len(ids) for ids in positives], np.int64)
    return Queries(names, _find(list(content), query_number, "queries"), items, counts)


def _find(ids: Sequence[int | str], lookup: Mapping[str, int], kind: str) -> Rows:
    numbers = np.array([lookup.get(f"{NAMESPACE}:{i}", -1) for i in ids], np.int32)
    if lacking := np.flatnonzero(numbers < 0).tolist():
        first = ", ".join(f"{NAMESPACE}:{ids[i]}" for i in lacking[:3])
        message = f"the corpus lacks {len(lacking):,} of the {len(ids):,} {kind} of ECCV Caption: {first}"
        raise CheckError(message, todo="Ingest coco-captions with Karpathy's test split.")
    return numbers
