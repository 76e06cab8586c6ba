"""Scores and labels of every image and caption, from a matrix, from vectors or from a function, a block at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

T = TypeVar("T")
Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]
Direction = Literal["i2t", "t2i"]
DIRECTIONS: tuple[Direction, ...] = ("i2t", "t2i")
_CELLS = 1 << 18
"""Scores per block: 2 MiB of 64-bit keys fit into a cache."""
_HELD = 1 << 30
"""Largest size of float32 scores that are computed once and held, in bytes; larger ones are computed per block.
5,000 x 25,000 are half of it. float64 is never held."""


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of images (rows) and captions (columns), computed one block at a time.

    One call scores the complete gallery of a query, so all scores of a query are comparable.

    `function`: of (m,) images and (n,) captions, by number; gives (m, n) float32 or float64.
    """

    function: Callable[[Ints, Ints], Floats]
    images: Ints
    captions: Ints

    @classmethod
    def of(cls, matrix: Floats) -> Scores:
        """Wrap a matrix. Consecutive images and captions are views of it."""
        images, captions = (np.arange(n) for n in matrix.shape)
        return cls(lambda rows, columns: _take(_take(matrix, rows).T, columns).T, images, captions)

    @property
    def shape(self) -> tuple[int, int]:
        """(M, N): images and captions."""
        return len(self.images), len(self.captions)

    def lists(self, direction: Direction, queries: Ints) -> Floats:
        """Score the complete gallery for some queries: (Q, N) for images, (Q, M) for captions."""
        if direction == "i2t":
            return self.function(self.images[queries], self.captions)
        return self.function(self.images, self.captions[queries]).T

    def part(self, images: Ints, captions: Ints) -> Scores:
        """Select some images and captions."""
        return Scores(self.function, self.images[images], self.captions[captions])


class Lookup(Protocol):
    """The part of `relabel_train.lookup.Lookup` that `LookupRelevance` uses."""

    def block(self, rows: ArrayLike, columns: ArrayLike | None, pooling: Any, /) -> NDArray[np.floating[Any]]:
        """Return r(image of rows[i], caption columns[j])."""
        ...


class LookupRelevance:
    """Exact labels of rows and columns of a score matrix from a lookup, (images, captions) -> (m, n) float32.

    Parameters
    ----------
    lookup : Lookup
        As `open_lookup` returns it.
    image_rows : (M,) int
        For each row of the scores, the corpus row of one caption of its image, as ``Lookup.rows_of_images`` returns it.
    caption_rows : (N,) int
        For each column, the corpus row of its caption, as ``Lookup.rows_of`` returns it.
    pooling : "first", "max", "mean" or "set", optional
        The label's default if omitted. "first" takes image_rows[i] itself: labels of captions against captions, as in
        Ladder's CS@K.

    Examples
    --------
    A stub replaces the lookup, so the example does not need files.

    >>> class Stub:  # lookup = open_lookup("labels/coco/exports/test/lookup/sbert")
    ...     def block(self, rows, columns, pooling):
    ...         return 1.0 - 0.1 * abs(rows[:, None] - columns)
    >>> relevance = LookupRelevance(Stub(), image_rows=[10, 15], caption_rows=[10, 11, 15])
    >>> relevance.shape
    (2, 3)
    >>> relevance(np.array([1]), np.array([0, 2]))
    array([[0.5, 1. ]])
    """

    def __init__(self, lookup: Lookup, image_rows: ArrayLike, caption_rows: ArrayLike, pooling: Any = None) -> None:
        self.lookup, self.pooling = lookup, pooling
        self.image_rows, self.caption_rows = np.asarray(image_rows), np.asarray(caption_rows)

    @property
    def shape(self) -> tuple[int, int]:
        """(M, N)."""
        return len(self.image_rows), len(self.caption_rows)

    def __call__(self, images: Ints, captions: Ints) -> NDArray[np.floating[Any]]:
        """Return the labels of some rows and columns."""
        return self.lookup.block(self.image_rows[images], self.caption_rows[captions], self.pooling)


def open_labels(relevance: Any, shape: tuple[int, int], hold: bool = True) -> Scores:
    """Wrap a matrix of labels, or a function of images and captions.

    `hold`: evaluate a function once for all labels if they fit into memory, and otherwise only for the labels that are
    read.
    """
    # A matrix has no call; a tensor, also of a subclass that has one, is a matrix.
    if not callable(relevance) or hasattr(relevance, "detach"):
        relevance = as_floats(relevance, "relevance")
        stated, labels = relevance.shape, Scores.of(relevance)
    else:

        def block(images: Ints, captions: Ints) -> Floats:
            return as_floats(relevance(images, captions), "relevance")

        stated, labels = getattr(relevance, "shape", shape), Scores(block, np.arange(shape[0]), np.arange(shape[1]))
    if tuple(stated) != shape:
        raise ValueError(f"scores are {shape}, relevance is {tuple(stated)}")
    return _hold(labels) if hold and not isinstance(relevance, np.ndarray) else labels


def open_scores(scores: Any) -> Scores:
    """Wrap a matrix, or a pair of arrays of vectors; numpy's or torch's, on any device.

    ValueError for other types, if a score is NaN, or if a vector holds a number that is not finite.

    Examples
    --------
    >>> images, captions = np.eye(2, dtype=np.float32), np.float32([[1, 0], [0.6, 0.8], [0, 1]])
    >>> scores = open_scores((images, captions))
    >>> scores.shape
    (2, 3)
    >>> scores.lists("t2i", np.array([1]))
    array([[0.6, 0.8]], dtype=float32)
    """
    if not isinstance(scores, tuple | list):
        return Scores.of(as_floats(scores, "scores"))
    if len(scores) != 2:
        raise ValueError(f"scores are a matrix or a pair (image vectors, caption vectors), not {len(scores)} things")
    images, captions = as_floats(scores[0], "image vectors"), as_floats(scores[1], "caption vectors")
    if images.shape[1] != captions.shape[1]:
        raise ValueError(f"image vectors are {images.shape}, caption vectors are {captions.shape}: widths differ")
    for name, vectors in (("image", images), ("caption", captions)):
        if not np.isfinite(vectors).all():
            bad = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
            raise ValueError(f"the vector of {name} {bad} is not finite")

    def products(rows: Ints, columns: Ints) -> Floats:
        with np.errstate(over="ignore", invalid="ignore"):
            block: Floats = _take(images, rows) @ _take(captions, columns).T
        check_ordered(block, "scores of images and captions")
        return block

    return _hold(Scores(products, np.arange(len(images)), np.arange(len(captions))))


def as_floats(values: Any, name: str) -> Floats:
    """Convert a matrix to float32 (half precisions, float32) or float64 (float64, whole numbers)."""
    # A tensor is recognised by its method, so metrics do not import torch.
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = (values if str(values.dtype) == "torch.float64" else values.float()).numpy()
    array = np.asarray(values)
    if array.ndim != 2 or array.dtype.kind not in "fiub":
        raise ValueError(f"{name}: expected a matrix of numbers, found {array.dtype} {array.shape}")
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float32 if array.dtype == np.float16 else np.float64)
    check_ordered(array, name)
    return array


def check_ordered(array: NDArray[Any], name: str) -> None:
    """Reject NaN and +inf because they cannot be ranked; -inf is allowed."""
    # A maximum propagates NaN: one pass without a mask.
    if array.size and not array.max() < np.inf:
        row, column = np.argwhere(~(array < np.inf))[0].tolist()
        raise ValueError(f"{name}: {'NaN' if np.isnan(array[row, column]) else '+inf'} at row {row}, column {column}")


def map_blocks(
    compute: Callable[[slice], T], scores: Scores, direction: Direction, count: int, threads: int | None = None
) -> list[T]:
    """Apply a function to blocks of `count` queries, small enough for their lists to fit into a cache."""
    step = max(1, _CELLS // max(1, scores.shape[1 if direction == "i2t" else 0]))
    slices = [slice(start, min(start + step, count)) for start in range(0, count, step)]
    if threads == 1:
        return list(map(compute, slices))
    # numpy sorts without the interpreter's lock; blocks keep their order, so no figure depends on the threads.
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(compute, slices))


def split_into_folds(
    scores: Scores, image_of_caption: Ints, folds: int | ArrayLike
) -> Iterator[tuple[Scores, NDArray[np.int64]]]:
    """Cut scores into folds, each with the captions of its images, as for COCO 1K.

    `folds`: a number of consecutive parts of one size, as COCO's five times 1,000 images in the order of Karpathy's
    file, or the fold of each image. Yields scores, and the image of each caption, counted within the fold.
    """
    images = scores.shape[0]
    if isinstance(folds, int | np.integer):
        if folds < 1 or images % folds:
            raise ValueError(f"{images} images cannot be cut into {folds} folds of one size; give each image's fold")
        fold = np.arange(images) // max(1, images // int(folds))
    else:
        fold = np.asarray(folds)
        if fold.shape != (images,):
            raise ValueError(f"folds are {fold.shape}; one per image is needed, ({images},)")
    # A number below all folds belongs to none: captions without an image.
    fold_of_caption = np.where(image_of_caption >= 0, fold[image_of_caption], fold.min(initial=0) - 1)
    for name in np.unique(fold):
        rows, columns = np.flatnonzero(fold == name), np.flatnonzero(fold_of_caption == name)
        number = np.full(images, -1, np.int64)
        number[rows] = np.arange(len(rows))
        part = scores.part(rows, columns)
        # Both directions read the part: what can be held is gathered once, and float64 cannot.
        held = _hold(part) if part.lists("i2t", np.arange(1)).dtype == np.float32 else part
        yield held, number[image_of_caption[columns]]


def _hold(scores: Scores) -> Scores:
    """Compute everything once if it fits into `_HELD` bytes of float32."""
    images, captions = scores.shape
    if not images or 4 * images * captions > _HELD:
        return scores
    parts = map_blocks(lambda block: scores.lists("i2t", np.arange(images)[block]), scores, "i2t", images, 1)
    return Scores.of(np.concatenate(parts)) if parts[0].dtype == np.float32 else scores


def _take(array: Floats, indices: Ints) -> Floats:
    """Select rows: a view for consecutive rows, otherwise a copy."""
    consecutive = len(indices) > 0 and bool((np.diff(indices) == 1).all())
    return array[indices[0] : indices[-1] + 1] if consecutive else array[indices]
