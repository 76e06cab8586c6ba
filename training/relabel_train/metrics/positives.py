"""Positives of queries: a dataset's own pairs, or those that people found later (ECCV Caption, CxC)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class QueryPositives:
    """The positives of one direction's queries, those of query i at ``items[indptr[i] : indptr[i + 1]]``.

    Attributes
    ----------
    queries : (Q,) int64
        Rows (i2t) or columns (t2i) of the score matrix, each once.
    indptr : (Q + 1,) int64
    items : (P,) int64
        Columns (i2t) or rows (t2i), each once a query.
    total : (Q,) int64
        R: how many positives each query has, in the gallery or not.
    """

    queries: Ints
    indptr: Ints
    items: Ints
    total: Ints

    def __len__(self) -> int:
        return len(self.queries)

    def take(self, some: slice) -> QueryPositives:
        """Keep consecutive queries."""
        start, stop, _ = some.indices(len(self))
        indptr = self.indptr[start : stop + 1]
        items = self.items[indptr[0] : indptr[-1]]
        return QueryPositives(self.queries[start:stop], indptr - indptr[0], items, self.total[start:stop])

    def spread(self, count: int) -> QueryPositives:
        """Make every one of `count` possible queries a query, in order, most without positives; R is not kept."""
        counts = np.zeros(count, np.int64)
        counts[self.queries] = np.diff(self.indptr)
        order = np.argsort(self.queries[self.owner()], kind="stable")
        return QueryPositives(np.arange(count), _indptr(counts), self.items[order], counts)

    def owner(self) -> Ints:
        """Say which of the Q queries each item belongs to: (P,) int64."""
        return np.repeat(np.arange(len(self)), np.diff(self.indptr))

    def dense(self, items: int) -> NDArray[np.bool_]:
        """Mark the positives: (Q, items) bool."""
        out = np.zeros((len(self), items), np.bool_)
        out[self.owner(), self.items] = True
        return out


@dataclass(frozen=True, eq=False)
class Positives:
    """The positives of both directions."""

    i2t: QueryPositives
    t2i: QueryPositives


def own_positives(image_of_caption: ArrayLike, images: int) -> Positives:
    """A dataset's own pairs.

    Parameters
    ----------
    image_of_caption : (N,) int
        Row of each caption's image, in any order, any number of captions an image; -1: the caption's image is not in
        the gallery, so it asks nothing and is wrong for every image.
    images : int
        M. An image without a caption asks nothing.

    Raises
    ------
    ValueError
        If it is not one whole number a caption, or one is not in -1..M - 1.
    """
    image = np.asarray(image_of_caption)
    if image.ndim != 1 or (image.dtype.kind not in "iu" and image.size):
        raise ValueError(f"image_of_caption is {image.dtype} {image.shape}; one whole number a caption is needed")
    image = image.astype(np.int64)
    if len(image) and not -1 <= int(image.min()) <= int(image.max()) < images:
        bad = int(np.flatnonzero((image < -1) | (image >= images))[0])
        raise ValueError(f"caption {bad} is of image {image[bad]}; there are images 0 to {images - 1} (or -1: none)")
    captions = np.flatnonzero(image >= 0)
    order = captions[np.argsort(image[captions], kind="stable")]
    count = np.bincount(image[captions], minlength=images)
    queries = np.flatnonzero(count)
    one = np.ones(len(captions), np.int64)
    return Positives(
        QueryPositives(queries, _indptr(count[queries]), order, count[queries]),
        QueryPositives(captions, _indptr(one), image[captions], one),
    )


def positives_of(
    i2t: Mapping[Any, Sequence[Any]],
    t2i: Mapping[Any, Sequence[Any]],
    image_ids: Sequence[Any],
    caption_ids: Sequence[Any],
    partial: bool = False,
) -> Positives:
    """Find positives that are given by id in a gallery.

    Parameters
    ----------
    i2t, t2i : mapping of id to ids
        Positive captions of image queries, positive images of caption queries. A positive that is not in the gallery
        can not be found and counts in R. A query without positives is left out.
    image_ids, caption_ids : sequence of M and of N ids
        Of the rows and columns of the scores.
    partial : bool
        Whether queries that are not in the gallery may be left out; else they are refused.

    Raises
    ------
    ValueError
        Naming the first id that is given twice, or the first query that is not in the gallery.
    """
    image_at, caption_at = _places(image_ids, "image"), _places(caption_ids, "caption")
    return Positives(
        _found(i2t, image_at, caption_at, "image", partial), _found(t2i, caption_at, image_at, "caption", partial)
    )


def read_positives(
    i2t: str | Path,
    t2i: str | Path,
    image_ids: Sequence[str],
    caption_ids: Sequence[str],
    namespace: str = "coco",
    partial: bool = False,
) -> Positives:
    """Read positives in eccv_caption's form: two JSON files, {query id: [ids]}, numbers without a namespace.

    ``eccv_image_to_caption.json`` and ``eccv_caption_to_image.json``, or the two of CxC, lie in that package's `data`;
    `relabel fetch eccv` gets them. Parameters and errors are those of `positives_of`, ids are ``coco:770337``.

    Raises
    ------
    ValueError
        If a file is not of that form; see `positives_of`.
    """
    both = [_read(Path(path), namespace) for path in (i2t, t2i)]
    return positives_of(both[0], both[1], image_ids, caption_ids, partial)


def _read(path: Path, namespace: str) -> dict[str, list[str]]:
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict) or not all(isinstance(ids, list) for ids in content.values()):
        raise ValueError(f"{path}: expected {{query id: [ids]}}")
    return {f"{namespace}:{query}": [f"{namespace}:{i}" for i in ids] for query, ids in content.items()}


def _places(ids: Sequence[Any], what: str) -> dict[Any, int]:
    places: dict[Any, int] = {}
    for place, name in enumerate(ids):
        if places.setdefault(name, place) != place:
            raise ValueError(f"{what} id {name!r} is given twice, at {places[name]} and {place}")
    return places


def _found(
    content: Mapping[Any, Sequence[Any]],
    asked: Mapping[Any, int],
    answers: Mapping[Any, int],
    what: str,
    partial: bool,
) -> QueryPositives:
    queries, lists, total = [], [], []
    for name, given in content.items():
        ids = set(given)
        if name not in asked:
            if partial:
                continue
            raise ValueError(f"query {name!r} is no {what} of the gallery (partial=True leaves such queries out)")
        if ids:
            queries.append(asked[name])
            lists.append(sorted(answers[i] for i in ids if i in answers))
            total.append(len(ids))
    counts = np.array([len(items) for items in lists], np.int64)
    items = np.array([i for some in lists for i in some], np.int64)
    return QueryPositives(np.array(queries, np.int64), _indptr(counts), items, np.array(total, np.int64))


def _indptr(counts: Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
