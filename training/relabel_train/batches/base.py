"""Base of samplers, the captions they draw from, and their reproducible random numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int32]
Missing = Literal["raise", "nan"]
"""Result for captions without a label: an error, or NaN."""


@dataclass(frozen=True, eq=False)
class Captions:
    """The captions that a sampler may use.

    Attributes
    ----------
    rows : (N,) int32
        Rows in the corpus, ascending.
    image : (N,) int32
        Image number of each caption.

    Examples
    --------
    >>> import numpy as np
    >>> from relabel_train.batches import Captions
    >>> captions = Captions.of(np.array([0, 0, 1, 1]), np.array([True, False, True, True]), first=10)
    >>> captions.rows, captions.image
    (array([10, 12, 13], dtype=int32), array([0, 1, 1], dtype=int32))
    >>> captions.positions_of(np.array([10, 11, 13]))
    array([ 0, -1,  2])
    """

    rows: Rows
    image: Rows

    @classmethod
    def of(cls, image: Rows, usable: NDArray[np.bool_] | None = None, first: int = 0) -> Captions:
        """Select the usable captions of a range of rows.

        Parameters
        ----------
        image : (R,) int32
            Image number of each row of the range.
        usable : (R,) bool, optional
            Usable captions; all by default.
        first : int
            First row of the range.
        """
        positions = np.arange(len(image)) if usable is None else np.flatnonzero(usable)
        return cls((positions + first).astype(np.int32), np.asarray(image, np.int32)[positions])

    def __len__(self) -> int:
        return len(self.rows)

    def positions_of(self, rows: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """Return the positions of rows among the captions; -1 for rows that may not be used."""
        rows = np.asarray(rows, np.int64)
        if not len(self):
            return np.full(rows.shape, -1, np.int64)
        first = int(self.rows[0])
        inside = (rows >= first) & (rows < first + len(self._table))
        # Rows outside read entry 0 of the table, which the outer `where` replaces.
        return np.where(inside, self._table[np.where(inside, rows - first, 0)], -1)

    @cached_property
    def _table(self) -> NDArray[np.int64]:
        """Position of each row from the first to the last; -1 for rows that may not be used."""
        table = np.full(int(self.rows[-1] - self.rows[0]) + 1, -1, np.int64)
        table[self.rows - self.rows[0]] = np.arange(len(self))
        return table


def mark_usable(image: Rows, failed: NDArray[np.integer[Any]], references: int | None) -> NDArray[np.bool_]:
    """Mark the captions whose relevance is a number, both as a candidate and as the name of their image.

    `image`: (N,) int32; image number of each caption; captions of one image are neighbours. `failed`: (F,) int;
    positions of the captions without an encoding. `references`: number of an image's first captions that are its
    references; None: the caption itself (pooling "paired"). Returns (N,) bool.
    """
    usable = np.ones(len(image), np.bool_)
    usable[failed] = False
    if references is not None and len(failed):
        # A caption beyond the references fails alone; a reference takes its image with it.
        first = np.searchsorted(image, image[failed])
        usable &= ~np.isin(image, image[failed[failed - first < references]])
    return usable


class Neighbours(Protocol):
    """The nearest captions of a caption, as a lookup answers them."""

    def neighbours(
        self, rows: Rows, k: int, missing: Missing = ...
    ) -> tuple[Rows, NDArray[np.floating[Any]], NDArray[np.bool_]]:
        """Return the k nearest of each of Q rows, best first: rows, scores and same-image marks, all (Q, k).

        With missing="nan", shorter lists end in row -1.
        """
        ...


class StableRandom:
    """Random numbers from a seed that never change between versions.

    Only the raw bits of numpy's generator are used. numpy may change its distributions between versions, but not the
    bits.
    """

    def __init__(self, *numbers: int) -> None:
        self._bits = np.random.PCG64(np.random.SeedSequence(numbers))

    def permutation(self, count: int) -> NDArray[np.int64]:
        """Return 0..count - 1 in random order."""
        # The order of 64-bit numbers; a stable sort fixes the order of equal ones.
        return np.argsort(self._bits.random_raw(count), kind="stable") if count else np.empty(0, np.int64)

    def below(self, bound: int, count: int) -> NDArray[np.int64]:
        """Draw `count` numbers of 0..bound - 1, repeats allowed."""
        # The bias of a remainder of 64 bits is below bound / 2^64.
        return (self._bits.random_raw(count) % np.uint64(bound)).astype(np.int64)

    def one(self, bound: int) -> int:
        """Draw one number of 0..bound - 1."""
        return int(self._bits.random_raw()) % bound


class Sampler(ABC):
    """Base class of samplers. The batches of an epoch depend on the parameters, the seed and the epoch alone.

    Parameters
    ----------
    captions : Captions
    batch_size : int
        Captions per batch, B.
    seed : int
        At least 0.
    drop_last : bool
        Leave out a last batch of fewer than B captions.

    Raises
    ------
    ValueError
        If a parameter is invalid.

    Examples
    --------
    >>> import numpy as np
    >>> from relabel_train.batches import Captions, Sampler
    >>> class InOrder(Sampler):
    ...     name = "in_order"
    ...     def epoch(self, epoch):
    ...         return self._cut(np.arange(len(self.captions)))
    ...     def __len__(self):
    ...         return self._count(len(self.captions))
    >>> sampler = InOrder(Captions.of(np.arange(5)), batch_size=2, seed=0, drop_last=False)
    >>> [rows.tolist() for rows in sampler]
    [[0, 1], [2, 3], [4]]
    >>> [rows.tolist() for rows in sampler.batches(0, rank=1, world_size=2)]
    [[2, 3]]
    """

    name: ClassVar[str]

    def __init__(self, captions: Captions, batch_size: int, *, seed: int, drop_last: bool) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}; a batch has at least one caption")
        if seed < 0:
            raise ValueError(f"seed is {seed}; it must not be negative")
        self.captions, self.batch_size, self.seed, self.drop_last = captions, batch_size, seed, drop_last

    @abstractmethod
    def epoch(self, epoch: int) -> list[Rows]:
        """List the batches of an epoch (0, 1, ...): (B,) int32 caption rows each, no row twice in a batch."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of batches per epoch, the same in every epoch."""

    @property
    def parameters(self) -> dict[str, Any]:
        """Everything that determines the batches, except the captions and their neighbours."""
        return {"sampler": self.name, "batch_size": self.batch_size, "seed": self.seed, "drop_last": self.drop_last}

    def batches(self, epoch: int, rank: int = 0, world_size: int = 1, *, even: bool = True) -> list[Rows]:
        """List the batches of one process: every world_size-th of the epoch; no batch is in two processes.

        Parameters
        ----------
        even : bool
            Leave out the last batches that not every process would get, so that no process waits for one that is done
            (gradients are summed over processes). With False every batch of the epoch belongs to a process.

        Raises
        ------
        ValueError
            If `rank` is not in 0..world_size - 1.
        """
        all_batches = self.epoch(epoch)
        return [all_batches[i] for i in batches_of_process(len(all_batches), rank, world_size, even=even)]

    def __iter__(self) -> Iterator[Rows]:
        return iter(self.epoch(0))

    def _count(self, captions: int) -> int:
        """Return the number of batches of some number of captions."""
        return captions // self.batch_size if self.drop_last else -(-captions // self.batch_size)

    def _cut(self, positions: NDArray[np.int64]) -> list[Rows]:
        """Cut positions of captions into batches of rows."""
        rows, size = self.captions.rows[positions], self.batch_size
        return [rows[b * size : (b + 1) * size] for b in range(self._count(len(rows)))]


def batches_of_process(count: int, rank: int, world_size: int, *, even: bool) -> range:
    """Return the indices of a process's batches among `count`; parameters and errors are those of Sampler.batches."""
    if not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} is not in 0..{world_size - 1}")
    return range(rank, count - count % world_size if even else count, world_size)


class RandomBatches(Sampler):
    """Batches with each caption once per epoch, in random order.

    The released code of VSE++ and its successors (SCAN, VSE-infinity, SGRAF, CVSE, ladder) does the same: every caption
    is a sample, and captions of one image may meet. At B = 128 about 20% of Flickr30K's batches and 6% of COCO's hold
    two captions of one image (29,000 and 113,287 images).

    Parameters
    ----------
    one_caption_an_image : bool
        Use each image once per epoch instead, with one of its captions, drawn again every epoch: no two captions of one
        image meet, and an epoch is a fifth as long. No released code does this, but the losses' definitions assume it.

    Examples
    --------
    >>> import numpy as np
    >>> from relabel_train.batches import Captions, RandomBatches
    >>> captions = Captions.of(np.array([0, 0, 1, 1, 2, 2]))
    >>> [rows.tolist() for rows in RandomBatches(captions, 4, seed=0, drop_last=False).epoch(0)]
    [[3, 2, 1, 0], [4, 5]]
    >>> sampler = RandomBatches(captions, 3, seed=0, drop_last=False, one_caption_an_image=True)
    >>> [rows.tolist() for rows in sampler.epoch(0)]
    [[4, 1, 3]]
    """

    name: ClassVar[str] = "random"

    def __init__(
        self, captions: Captions, batch_size: int, *, seed: int, drop_last: bool, one_caption_an_image: bool = False
    ) -> None:
        super().__init__(captions, batch_size, seed=seed, drop_last=drop_last)
        self.one_caption_an_image = one_caption_an_image
        self._images = len(np.unique(captions.image)) if one_caption_an_image else 0

    def __len__(self) -> int:
        """Return the number of batches per epoch."""
        return self._count(self._images if self.one_caption_an_image else len(self.captions))

    @property
    def parameters(self) -> dict[str, Any]:
        """Everything that determines the batches, except the captions and their neighbours."""
        return super().parameters | {"one_caption_an_image": self.one_caption_an_image}

    def epoch(self, epoch: int) -> list[Rows]:
        """List the batches of an epoch: (B,) int32 caption rows each."""
        random = StableRandom(self.seed, epoch)
        order = random.permutation(len(self.captions))
        if self.one_caption_an_image:
            # The first caption of each image in a random order of all is a random one of its captions.
            _, first = np.unique(self.captions.image[order], return_index=True)
            # np.unique sorts by image, so the images are shuffled again.
            order = order[first][random.permutation(len(first))]
        return self._cut(order)
