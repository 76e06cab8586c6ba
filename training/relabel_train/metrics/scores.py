"""Scores of every image and caption, from a matrix or from vectors, a block at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Direction = Literal["i2t", "t2i"]
DIRECTIONS: tuple[Direction, ...] = ("i2t", "t2i")
Places = NDArray[np.int64]
_CELLS = 1 << 22
"""Scores asked for at once: 16 MiB of float32."""
_HELD = 1 << 30
"""Bytes of float32 scores that are computed once and held; more are computed as they are asked for. 5,000 x 25,000 are
half of it. float64 is never held."""


class Scores(Protocol):
    """What answers blocks of scores. One call gives one query one whole list, so that its scores compare."""

    @property
    def shape(self) -> tuple[int, int]:
        """(M, N): images and captions."""
        ...

    def lists(self, direction: Direction, queries: Places) -> Floats:
        """Score the whole gallery for some queries: (Q, N) for images, (Q, M) for captions."""
        ...

    def part(self, images: NDArray[np.int64], captions: Places) -> Scores:
        """Keep some images and captions."""
        ...


@dataclass(frozen=True, eq=False)
class MatrixScores:
    """Scores that are there: (M, N) float32 or float64."""

    matrix: Floats

    @property
    def shape(self) -> tuple[int, int]:
        """(M, N)."""
        return self.matrix.shape[0], self.matrix.shape[1]

    def lists(self, direction: Direction, queries: Places) -> Floats:
        """Views where the queries are consecutive."""
        return _taken(self.matrix, queries) if direction == "i2t" else _taken(self.matrix.T, queries)

    def part(self, images: NDArray[np.int64], captions: Places) -> MatrixScores:
        """A view where both are consecutive."""
        return MatrixScores(_taken(_taken(self.matrix, images).T, captions).T)


@dataclass(frozen=True, eq=False)
class VectorScores:
    """Scores that are products of vectors: (M, D) and (N, D), both float32 or both float64."""

    images: Floats
    captions: Floats

    @property
    def shape(self) -> tuple[int, int]:
        """(M, N)."""
        return len(self.images), len(self.captions)

    def lists(self, direction: Direction, queries: Places) -> Floats:
        """One product; the last bits may differ between directions, which never compare."""
        asked, gallery = (self.images, self.captions) if direction == "i2t" else (self.captions, self.images)
        with np.errstate(over="ignore", invalid="ignore"):
            found = _taken(asked, queries) @ gallery.T
        refuse_unordered(found, "scores of images and captions")
        return found

    def part(self, images: NDArray[np.int64], captions: Places) -> VectorScores:
        """Keep some images and captions."""
        return VectorScores(_taken(self.images, images), _taken(self.captions, captions))


@dataclass(frozen=True, eq=False)
class ComputedScores:
    """Labels that a function gives for some images and captions; `shape` is that of the whole."""

    function: Callable[[Places, Places], Any]
    images: Places
    captions: Places

    @property
    def shape(self) -> tuple[int, int]:
        """(M, N)."""
        return len(self.images), len(self.captions)

    def lists(self, direction: Direction, queries: Places) -> Floats:
        """Ask for whole rows or whole columns."""
        if direction == "i2t":
            return self._block(self.images[queries], self.captions)
        return self._block(self.images, self.captions[queries]).T

    def part(self, images: Places, captions: Places) -> ComputedScores:
        """Keep some images and captions."""
        return ComputedScores(self.function, self.images[images], self.captions[captions])

    def _block(self, images: Places, captions: Places) -> Floats:
        block = as_floats(self.function(images, captions), "relevance")
        if block.shape != (len(images), len(captions)):
            raise ValueError(f"relevance gave {block.shape} for {len(images)} images and {len(captions)} captions")
        return block


def open_labels(relevance: Any, shape: tuple[int, int]) -> Scores:
    """Take a matrix of labels, or a function of images and captions, asked now where the labels are not too many.

    Raises
    ------
    ValueError
        If it does not fit the scores, or a label is NaN.
    """
    if not callable(relevance) or hasattr(relevance, "detach"):
        labels: Scores = MatrixScores(as_floats(relevance, "relevance"))
    else:
        given = getattr(relevance, "shape", shape)
        if tuple(given) != shape:
            raise ValueError(f"scores are {shape}, relevance is {tuple(given)}")
        labels = _held(ComputedScores(relevance, np.arange(shape[0]), np.arange(shape[1])))
    if labels.shape != shape:
        raise ValueError(f"scores are {shape}, relevance is {labels.shape}")
    return labels


def _held(scores: Scores) -> Scores:
    """Compute everything once where it fits into `_HELD` bytes of float32."""
    images, captions = scores.shape
    if not images or 4 * images * captions > _HELD:
        return scores
    parts = [scores.lists("i2t", np.arange(some.start, some.stop)) for some in blocks(scores, "i2t", images)]
    return MatrixScores(np.concatenate(parts)) if parts[0].dtype == np.float32 else scores


def open_scores(scores: Any) -> Scores:
    """Take a matrix, or a pair of vectors' arrays; numpy's or torch's, on any device.

    Raises
    ------
    ValueError
        If it is neither, a score is NaN, or a vector holds a number that is not finite.
    """
    if not isinstance(scores, tuple | list):
        return MatrixScores(as_floats(scores, "scores"))
    if len(scores) != 2:
        raise ValueError(f"scores are a matrix or a pair (image vectors, caption vectors), not {len(scores)} things")
    images, captions = as_floats(scores[0], "image vectors"), as_floats(scores[1], "caption vectors")
    if images.shape[1] != captions.shape[1]:
        raise ValueError(f"image vectors are {images.shape}, caption vectors are {captions.shape}: widths differ")
    for name, vectors in (("image", images), ("caption", captions)):
        if not np.isfinite(vectors).all():
            bad = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
            raise ValueError(f"the vector of {name} {bad} is not finite")
    if images.dtype != captions.dtype:
        images, captions = images.astype(np.float64), captions.astype(np.float64)
    return _held(VectorScores(images, captions))


def as_floats(values: Any, what: str) -> Floats:
    """Give a matrix as float32 or float64: float64 and whole numbers as float64, half precisions as float32.

    Raises
    ------
    ValueError
        If it is no matrix of numbers, or holds NaN or +inf.
    """
    if hasattr(values, "detach"):  # a tensor; torch itself is not needed here
        values = values.detach().cpu()
        values = (values if str(values.dtype) == "torch.float64" else values.float()).numpy()
    array = np.asarray(values)
    if array.ndim != 2 or array.dtype.kind not in "fiub":
        raise ValueError(f"{what}: expected a matrix of numbers, found {array.dtype} {array.shape}")
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float32 if array.dtype == np.float16 else np.float64)
    refuse_unordered(array, what)
    return array


def refuse_unordered(array: Floats, what: str) -> None:
    """Refuse NaN and +inf, which no list can rank; -inf is fine.

    Raises
    ------
    ValueError
        Naming the place.
    """
    if array.size and not array.max() < np.inf:  # a maximum passes NaN on; one pass without a mask
        row, column = np.argwhere(~(array < np.inf))[0].tolist()
        raise ValueError(f"{what}: {'NaN' if np.isnan(array[row, column]) else '+inf'} at row {row}, column {column}")


def blocks(scores: Scores, direction: Direction, count: int) -> Iterator[slice]:
    """Cut `count` queries so that a block of lists stays small."""
    step = max(1, _CELLS // max(1, scores.shape[1 if direction == "i2t" else 0]))
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


def consecutive(places: Places) -> bool:
    """Say whether places are a, a + 1, a + 2, ..."""
    return len(places) > 0 and bool((np.diff(places) == 1).all())


def _taken(array: Floats, places: Places) -> Floats:
    return array[places[0] : places[-1] + 1] if consecutive(places) else array[places]
