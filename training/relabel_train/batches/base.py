"""What a sampler promises, what it draws from, and where its chance comes from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Captions:
    """The captions that may be used.

    Attributes
    ----------
    rows : (N,) int32
        Their rows in the corpus, ascending.
    image : (N,) int32
        The image number of each.
    """

    rows: Rows
    image: Rows

    @classmethod
    def of(cls, image: Rows, usable: NDArray[np.bool_] | None = None, first: int = 0) -> Captions:
        """Take those of a range of rows that may be used.

        Parameters
        ----------
        image : (R,) int32
            Image number of each row of the range.
        usable : (R,) bool, optional
            Which of them may be used; all by default.
        first : int
            The first row of the range.
        """
        places = np.arange(len(image)) if usable is None else np.flatnonzero(usable)
        return cls((places + first).astype(np.int32), np.asarray(image, np.int32)[places])

    def __len__(self) -> int:
        return len(self.rows)

    def places(self, rows: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """Find where rows stand among the captions; -1 for those that may not be used."""
        rows = np.asarray(rows, np.int64)
        if not len(self):
            return np.full(rows.shape, -1, np.int64)
        first = int(self.rows[0])
        inside = (rows >= first) & (rows < first + len(self._table))
        return np.where(inside, self._table[np.where(inside, rows - first, 0)], -1)

    @cached_property
    def _table(self) -> NDArray[np.int64]:
        table = np.full(int(self.rows[-1] - self.rows[0]) + 1, -1, np.int64)
        table[self.rows - self.rows[0]] = np.arange(len(self))
        return table


class Neighbours(Protocol):
    """What knows the captions nearest to a caption: the lookup does."""

    def neighbours(self, rows: Rows, k: int) -> tuple[Rows, NDArray[np.floating[Any]], NDArray[np.bool_]]:
        """Find the k nearest of each of Q rows, best first: rows, scores and whether of the same image, all (Q, k)."""
        ...


class Draws:
    """Chance out of a few numbers, the same for ever.

    Raw bits alone are used: numpy may change between versions what its Generator makes of them, never the bits.
    """

    def __init__(self, *numbers: int) -> None:
        self._bits = np.random.PCG64(np.random.SeedSequence(numbers))

    def permutation(self, count: int) -> NDArray[np.int64]:
        """Put 0..count - 1 in random order."""
        return np.argsort(self._bits.random_raw(count), kind="stable") if count else np.empty(0, np.int64)

    def below(self, bound: int, count: int) -> NDArray[np.int64]:
        """Draw `count` numbers of 0..bound - 1, repeats allowed."""
        return (self._bits.random_raw(count) % np.uint64(bound)).astype(np.int64)

    def one(self, bound: int) -> int:
        """Draw one number of 0..bound - 1."""
        return int(self._bits.random_raw()) % bound


class Sampler(ABC):
    """Lists the batches of an epoch, out of nothing but its parameters, the seed and the number of the epoch.

    Parameters
    ----------
    captions : Captions
    batch_size : int
        Captions a batch, B.
    seed : int
        At least 0.
    drop_last : bool
        Whether a last batch of fewer than B captions is left out.

    Raises
    ------
    ValueError
        If a parameter makes no sense.
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
        """Batches an epoch, the same in every epoch."""

    @property
    def parameters(self) -> dict[str, Any]:
        """All that decides what is drawn, bar the captions (and, where there are any, their neighbours)."""
        return {"sampler": self.name, "batch_size": self.batch_size, "seed": self.seed, "drop_last": self.drop_last}

    def batches(self, epoch: int, rank: int = 0, world_size: int = 1, *, even: bool = True) -> list[Rows]:
        """List the batches of one of several processes: every world_size-th of the epoch, no batch in two processes.

        Parameters
        ----------
        even : bool
            Leave out the last batches that not every process would get, so that none waits for a partner that is done
            (gradients are summed over processes). With False every batch of the epoch is some process's.

        Raises
        ------
        ValueError
            If `rank` is not in 0..world_size - 1.
        """
        whole = self.epoch(epoch)
        return [whole[i] for i in share(len(whole), rank, world_size, even=even)]

    def __iter__(self) -> Iterator[Rows]:
        return iter(self.epoch(0))

    def _count(self, captions: int) -> int:
        """How many batches so many captions fill."""
        return captions // self.batch_size if self.drop_last else -(-captions // self.batch_size)

    def _cut(self, places: NDArray[np.int64]) -> list[Rows]:
        """Cut places of captions into batches of rows."""
        rows, size = self.captions.rows[places], self.batch_size
        return [rows[b * size : (b + 1) * size] for b in range(self._count(len(rows)))]


def share(count: int, rank: int, world_size: int, *, even: bool) -> range:
    """Which of `count` batches are those of a process; see Sampler.batches."""
    if not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} is not in 0..{world_size - 1}")
    return range(rank, count - count % world_size if even else count, world_size)
