"""ECCV Caption's queries, positives and galleries, found in a corpus (Chun et al., ECCV 2022)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from relabel.corpus import Corpus
from relabel.datasets import locate
from relabel.errors import CheckError
from relabel.sources.base import Rows

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
    found : list of Q int64 arrays
        Places in the gallery of each query's positives.
    positives : (Q,) int64
        R: how many positives each query has, in the gallery or not.
    """

    ids: list[str]
    index: Rows
    found: list[NDArray[np.int64]]
    positives: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ids)

    def positive(self, batch: range, items: int) -> NDArray[np.bool_]:
        """Mark the positives of some queries: (len(batch), items) bool."""
        out = np.zeros((len(batch), items), np.bool_)
        for i, q in enumerate(batch):
            out[i, self.found[q]] = True
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
        """What a direction's queries rank."""
        return self.captions if direction == "i2t" else self.images


def read_eccv(corpus: Corpus, data: Path) -> Eccv:
    """Read ECCV Caption and find its ids in a corpus.

    Raises
    ------
    MissingError
        If its files are nowhere; they come with the package eccv_caption.
    CheckError
        If the corpus lacks any of its captions or images.
    """
    captions = np.sort(_find(np.load(locate("eccv", GALLERY, data)).tolist(), corpus.row_of, "captions"))
    images = np.unique(corpus.image[captions])
    queries: dict[Direction, Queries] = {
        "i2t": _queries(locate("eccv", FILES["i2t"], data), corpus.image_of, corpus.row_of, captions),
        "t2i": _queries(locate("eccv", FILES["t2i"], data), corpus.row_of, corpus.image_of, images),
    }
    return Eccv(captions, images, queries)


def _queries(path: Path, asked: Mapping[str, int], answers: Mapping[str, int], gallery: Rows) -> Queries:
    content: dict[str, list[int]] = json.loads(path.read_text(encoding="utf-8"))
    positives = [sorted(set(ids)) for ids in content.values()]
    found = []
    for ids in positives:
        wanted = np.array([answers.get(f"{NAMESPACE}:{i}", -1) for i in ids], np.int32)
        place = np.minimum(np.searchsorted(gallery, wanted), len(gallery) - 1)
        found.append(place[gallery[place] == wanted].astype(np.int64))
    names = [f"{NAMESPACE}:{i}" for i in content]
    return Queries(
        names, _find(list(content), asked, "queries"), found, np.array([len(p) for p in positives], np.int64)
    )


def _find(ids: Sequence[int | str], lookup: Mapping[str, int], what: str) -> Rows:
    found = np.array([lookup.get(f"{NAMESPACE}:{i}", -1) for i in ids], np.int32)
    if lacking := np.flatnonzero(found < 0).tolist():
        first = ", ".join(f"{NAMESPACE}:{ids[i]}" for i in lacking[:3])
        message = f"the corpus lacks {len(lacking):,} of the {len(ids):,} {what} of ECCV Caption: {first}"
        raise CheckError(message, todo="Ingest coco-captions with Karpathy's test split.")
    return found
