"""Positives of queries: a dataset's own pairs, or pairs annotated later (ECCV Caption, CxC)."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
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
        Columns (i2t) or rows (t2i), each once per query.
    total : (Q,) int64
        R: number of positives of each query, in the gallery or not.

    Examples
    --------
    >>> captions_of = own_positives([0, 0, 1], images=2).i2t
    >>> captions_of.queries, captions_of.indptr, captions_of.items
    (array([0, 1]), array([0, 2, 3]), array([0, 1, 2]))
    """

    queries: Ints
    indptr: Ints
    items: Ints
    total: Ints

    def __len__(self) -> int:
        return len(self.queries)

    def take(self, block: slice) -> QueryPositives:
        """Select consecutive queries."""
        start, stop, _ = block.indices(len(self))
        indptr = self.indptr[start : stop + 1]
        # Items of consecutive queries are consecutive: the slice is a view.
        items = self.items[indptr[0] : indptr[-1]]
        return QueryPositives(self.queries[start:stop], indptr - indptr[0], items, self.total[start:stop])

    def owner(self) -> Ints:
        """Return the position among the queries of each item's query: (P,) int64."""
        return np.repeat(np.arange(len(self)), np.diff(self.indptr))


@dataclass(frozen=True, eq=False)
class Positives:
    """The positives of both directions."""

    i2t: QueryPositives
    t2i: QueryPositives


def own_positives(image_of_caption: ArrayLike, images: int) -> Positives:
    """Return the positives of a dataset's own pairs.

    Parameters
    ----------
    image_of_caption : (N,) int
        Row of each caption's image, 0..M - 1, in any order, with any number of captions per image; otherwise
        ValueError. -1: the image is not in the gallery, so the caption is not a query, but a negative of every image.
    images : int
        M. An image without a caption is not a query.

    Examples
    --------
    >>> positives = own_positives([0, 0, 1, -1], images=2)
    >>> len(positives.i2t), len(positives.t2i)  # the last caption is not a query
    (2, 3)
    """
    image = np.asarray(image_of_caption)
    if image.ndim != 1 or (image.dtype.kind not in "iu" and image.size):
        raise ValueError(f"image_of_caption is {image.dtype} {image.shape}; one whole number per caption is needed")
    image = image.astype(np.int64)
    if len(image) and not -1 <= int(image.min()) <= int(image.max()) < images:
        bad = int(np.flatnonzero((image < -1) | (image >= images))[0])
        raise ValueError(f"caption {bad} is of image {image[bad]}; there are images 0 to {images - 1} (or -1: none)")
    captions = np.flatnonzero(image >= 0)
    # Captions by image, each image's in order of column.
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
    """Look up positives given by id in a gallery.

    Parameters
    ----------
    i2t, t2i : mapping of id to ids
        Positive captions of image queries, positive images of caption queries. A positive outside the gallery cannot be
        retrieved but counts in R. A query without positives is left out.
    image_ids, caption_ids : sequence of M and of N ids
        Ids of the rows and columns of the scores.
    partial : bool
        Leave out queries outside the gallery. By default they raise an error.

    Raises
    ------
    ValueError
        If an id occurs twice, or a query is outside the gallery. The message names the first one.

    Examples
    --------
    >>> i2t, t2i = {"a": ["a1", "b1", "x9"]}, {"b1": ["a", "b"]}
    >>> positives = positives_of(i2t, t2i, image_ids=["a", "b"], caption_ids=["a1", "b1"])
    >>> positives.i2t.items, positives.i2t.total  # x9 is not in the gallery and counts in R
    (array([0, 1]), array([3]))
    """
    image_row, caption_column = _positions(image_ids, "image"), _positions(caption_ids, "caption")
    return Positives(
        _in_gallery(i2t, image_row, caption_column, "image", partial),
        _in_gallery(t2i, caption_column, image_row, "caption", partial),
    )


def read_positives(
    i2t: str | Path,
    t2i: str | Path,
    image_ids: Sequence[str],
    caption_ids: Sequence[str],
    namespace: str = "coco",
    partial: bool = False,
    without: Collection[str] = (),
) -> Positives:
    """Read positives in the format of eccv_caption: two JSON files, {query id: [ids]}, numbers without a namespace.

    ``eccv_image_to_caption.json`` and ``eccv_caption_to_image.json``, or the two files of CxC, are in the `data` folder
    of that package; `relabel fetch eccv` downloads them. They hold 1,261 image queries and 1,332 caption queries.
    Parameters and errors are those of `positives_of`, ids are ``coco:770337``; ValueError also for a file of another
    format. Captions of `without` are neither queries nor positives, and do not count in R.

    Examples
    --------
    >>> import json, tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     i2t, t2i = Path(folder, "i2t.json"), Path(folder, "t2i.json")
    ...     _ = i2t.write_text(json.dumps({"7": [70, 80]})), t2i.write_text(json.dumps({"80": [7]}))
    ...     positives = read_positives(i2t, t2i, ["coco:7"], ["coco:70", "coco:80"])
    >>> positives.i2t.items, positives.t2i.queries
    (array([0, 1]), array([1]))
    """
    of_images, of_captions = (read_ids(Path(path), namespace) for path in (i2t, t2i))
    of_images = {query: [i for i in ids if i not in without] for query, ids in of_images.items()}
    of_captions = {query: ids for query, ids in of_captions.items() if query not in without}
    return positives_of(of_images, of_captions, image_ids, caption_ids, partial)


def read_ids(path: Path, namespace: str) -> dict[str, list[str]]:
    """Read the positives of each query; the namespace is put before every id."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not readable as JSON ({str(error)[:200]})") from error
    if not isinstance(content, dict) or not all(isinstance(ids, list) for ids in content.values()):
        raise ValueError(f"{path}: expected {{query id: [ids]}}")
    return {f"{namespace}:{query}": [f"{namespace}:{i}" for i in ids] for query, ids in content.items()}


def _positions(ids: Sequence[Any], kind: str) -> dict[Any, int]:
    """Return the position of each id; raise for an id that occurs twice."""
    positions: dict[Any, int] = {}
    for position, name in enumerate(ids):
        if positions.setdefault(name, position) != position:
            raise ValueError(f"{kind} id {name!r} is given twice, at {positions[name]} and {position}")
    return positions


def _in_gallery(
    positives: Mapping[Any, Sequence[Any]],
    query_position: Mapping[Any, int],
    item_position: Mapping[Any, int],
    kind: str,
    partial: bool,
) -> QueryPositives:
    """Translate the ids of one direction into positions; parameters and errors are those of `positives_of`."""
    queries, lists, total = [], [], []
    for name, names in positives.items():
        # A file may list a positive twice; R counts it once.
        ids = set(names)
        if name not in query_position:
            if partial:
                continue
            raise ValueError(
                f"query {name!r} is not one of the {kind}s of the gallery (partial=True skips such queries)"
            )
        if ids:
            queries.append(query_position[name])
            lists.append(sorted(item_position[i] for i in ids if i in item_position))
            total.append(len(ids))
    counts = np.array([len(items) for items in lists], np.int64)
    items = np.array([i for row in lists for i in row], np.int64)
    return QueryPositives(np.array(queries, np.int64), _indptr(counts), items, np.array(total, np.int64))


def _indptr(counts: Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
