"""Samplers: the captions of each batch, in numpy.

`DataLoader(dataset, batch_sampler=sampler)` draws the batches of a sampler, epoch after epoch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Captions",
    "EpochSampler",
    "GradedBatchSampler",
    "NeighbourBatchSampler",
    "Neighbours",
    "RandomBatchSampler",
    "Sampler",
    "quantile_levels",
]

_CHUNK = 4096  # captions per call for neighbours
_NONE = 255  # level of a neighbour that is not a candidate
_TOLERANCE = 1e-6  # rounding of a float32 score, as in the losses

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
        """Select the usable captions, all by default, of R rows from `first` on: `image` and `usable` are (R,)."""
        positions = np.arange(len(image)) if usable is None else np.flatnonzero(usable)
        return cls((positions + first).astype(np.int32), np.asarray(image, np.int32)[positions])

    def __len__(self) -> int:
        return len(self.rows)

    def positions_of(self, rows: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """Return the positions of rows among the captions; -1 for rows that may not be used."""
        if not len(self):
            return np.full(np.shape(rows), -1, np.int64)
        # Without the last row, to make every position valid.
        positions = np.searchsorted(self.rows[:-1], rows)
        return np.where(self.rows[positions] == rows, positions, -1)


def mark_usable(image: Rows, failed: NDArray[np.integer[Any]], references: int | None) -> NDArray[np.bool_]:
    """Mark the captions with a relevance that is not NaN, both as a caption and for their image: (N,) bool.

    `image`: (N,), captions of one image are neighbours. `failed`: positions of the captions without an encoding.
    `references`: number of an image's first captions that are its references; None: the caption itself ("first").
    """
    usable = np.ones(len(image), np.bool_)
    usable[failed] = False
    if references is not None and len(failed):
        # A failed caption beyond the references affects only itself; a failed reference affects its whole image.
        first = np.searchsorted(image, image[failed])
        usable &= ~np.isin(image, image[failed[failed - first < references]])
    return usable


class Neighbours(Protocol):
    """Protocol of an object that returns the nearest captions of captions, such as a lookup."""

    def neighbours(
        self, rows: Rows, k: int, missing: Missing = ...
    ) -> tuple[Rows, NDArray[np.floating[Any]], NDArray[np.bool_]]:
        """Return the k nearest of each of Q rows, best first: rows, scores and same-image marks, all (Q, k).

        With missing="nan", shorter lists end in row -1.
        """
        ...


class StableRandom:
    """Random numbers from a seed. They use the raw bits of numpy's generator, stable across numpy versions."""

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


class EpochSampler(ABC):
    """Base class of the samplers that a `DataLoader` iterates: one epoch per iteration.

    Without `set_epoch`, each iteration is the next epoch. Subclasses implement `epoch`, including `drop_last`, and
    `count` if an epoch takes long to list.
    """

    drop_last, _next, _part = False, 0, slice(None)

    @abstractmethod
    def epoch(self, epoch: int) -> Any:
        """List the batches of an epoch (0, 1, ...), as arrays, those of all processes."""

    def count(self) -> int:
        """Return the number of batches per epoch of all processes, the same in every epoch."""
        return len(self.epoch(0))

    def __len__(self) -> int:
        return len(range(self.count())[self._part])

    def __iter__(self) -> Iterator[Any]:
        # A generator: for the first epoch of a loader with workers, torch asks for two iterators and reads one.
        self._next += 1
        # Integers of Python: Accelerate joins batches as lists.
        yield from (batch.tolist() for batch in self.epoch(self._next - 1)[self._part])

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration, for example to resume. Later iterations continue from this epoch."""
        self._next = epoch

    @property
    def sampler(self) -> Self:
        """The sampler itself: Lightning and Accelerate call `loader.batch_sampler.sampler.set_epoch`."""
        return self

    def shard(self, rank: int, world_size: int, *, even: bool = True) -> Self:
        """Return the sampler of one process: every world_size-th batch of each epoch; no batch is in two processes.

        Parameters
        ----------
        rank, world_size : int
            This process, 0..world_size - 1, and the number of processes.
        even : bool
            Give every process the same number of batches, all of one size, so no process waits for another (gradients
            are summed over processes): with several processes, a short last batch and the batches that not every
            process would get are left out. With False every batch of the epoch belongs to a process.

        Raises
        ------
        ValueError
            If `rank` is not in its range, or, with `even`, there are fewer batches than processes.
        """
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} is not in 0..{world_size - 1}")
        shard = copy(self)
        shard.drop_last = self.drop_last or (even and world_size > 1)
        count = shard.count()
        if even and count < world_size:
            hint = "Use a smaller batch_size or fewer processes."
            raise ValueError(f"an epoch has {count} full batches, for {world_size} processes. {hint}")
        shard._part = slice(rank, count - count % world_size if even else count, world_size)
        return shard


class Sampler(EpochSampler):
    """Base class of samplers. The batches of an epoch depend only on the parameters, the seed and the epoch.

    Iteration, as by `DataLoader(dataset, batch_sampler=sampler)`, yields lists of int: the next epoch each time, or the
    epoch that `set_epoch` sets (Lightning and Accelerate call it). `shard` returns the sampler of one of several
    processes. Subclasses implement `epoch` (int32 caption rows of shape (B,) for each batch, without repeated rows in a
    batch) and `count`.

    Parameters
    ----------
    captions : Captions
    batch_size : int
        Captions per batch, B.
    seed : int
        0 or more.
    drop_last : bool
        Leave out a last batch of fewer than B captions.

    Raises
    ------
    ValueError
        If a parameter is not in its range.

    Examples
    --------
    >>> sampler = RandomBatchSampler(Captions.of(np.array([0, 0, 1, 1, 2, 2])), 4, seed=0, drop_last=False)
    >>> list(sampler), list(sampler)  # epochs 0 and 1
    ([[3, 2, 1, 0], [4, 5]], [[4, 5, 1, 2], [0, 3]])
    >>> sampler.set_epoch(0)
    >>> next(iter(sampler))
    [3, 2, 1, 0]
    """

    name: ClassVar[str]

    def __init__(self, captions: Captions, batch_size: int, *, seed: int, drop_last: bool) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}; a batch has at least one caption")
        if seed < 0:
            raise ValueError(f"seed is {seed}; it must not be negative")
        self.captions, self.batch_size, self.seed, self.drop_last = captions, batch_size, seed, drop_last

    @property
    def parameters(self) -> dict[str, Any]:
        """Everything that determines the batches, except the captions and their neighbours."""
        return {"sampler": self.name, "batch_size": self.batch_size, "seed": self.seed, "drop_last": self.drop_last}

    def _count(self, captions: int) -> int:
        """Return the number of batches of some number of captions."""
        return captions // self.batch_size if self.drop_last else -(-captions // self.batch_size)

    def _cut(self, positions: NDArray[np.int64]) -> list[Rows]:
        """Cut positions of captions into batches of rows."""
        rows, size = self.captions.rows[positions], self.batch_size
        return [rows[b * size : (b + 1) * size] for b in range(self._count(len(rows)))]


class RandomBatchSampler(Sampler):
    """Batches with each caption once per epoch, in random order.

    This is the sampling of the released code of VSE++ and its successors (SCAN, VSE-infinity, SGRAF, CVSE, ladder):
    every caption is a sample, and a batch may hold several captions of one image. At B = 128 about 20% of Flickr30K's
    batches and 6% of COCO's hold two captions of one image (29,000 and 113,287 images).

    Parameters
    ----------
    one_caption_an_image : bool
        Use each image once per epoch, with one random caption. A batch then never holds two captions of one image, and
        an epoch has a fifth of the length. The losses' definitions assume this, but released code does not do it.

    Examples
    --------
    >>> captions = Captions.of(np.array([0, 0, 1, 1, 2, 2]))
    >>> [rows.tolist() for rows in RandomBatchSampler(captions, 4, seed=0, drop_last=False).epoch(0)]
    [[3, 2, 1, 0], [4, 5]]
    >>> sampler = RandomBatchSampler(captions, 3, seed=0, drop_last=False, one_caption_an_image=True)
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

    def count(self) -> int:
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


class NeighbourBatchSampler(Sampler):
    """Batches of an anchor, its k nearest captions, best first, and random others, for the log-ratio loss.

    Kim et al., Deep Metric Learning Beyond Binary Supervision, CVPR 2019, section 4.2. Anchors come from random
    permutations of all captions that continue across epochs: every caption is an anchor once before any caption is an
    anchor again. If fewer than k of an anchor's `depth` nearest are usable, random captions replace them. If `captions`
    holds one caption of each image, and `neighbours` those of the nearest images, batches consist of images.

    Parameters
    ----------
    neighbours : Neighbours
        With at least `depth` neighbours of every caption.
    batch_size : int
        50 for captions in the paper.
    k : int
        Nearest captions per batch; 5 in the paper.
    nearest : int, optional
        Draw the k at random from this many nearest usable captions, at least k; 30 for the positives of the paper's
        binary triplet. By default the k nearest.
    siblings : bool
        Allow captions of one image in a batch. With False batches of few images may be short.
    depth : int, optional
        Neighbours examined to find usable ones; by default 15 more than `nearest` or k (an image has about four other
        captions).
    anchors : int, optional
        Anchors per epoch, one per batch; by default the number of random batches.

    Examples
    --------
    >>> from relabel_train.lookup import open_lookup
    >>> from relabel_train.examples import write_lookup
    >>> lookup = open_lookup(write_lookup("example"))
    >>> sampler = NeighbourBatchSampler(lookup.captions(), lookup, 3, seed=0, drop_last=False, k=1, depth=5)
    >>> [rows.tolist() for rows in sampler.epoch(0)]  # an anchor, its nearest caption of another image, a random one
    [[3, 4, 1], [2, 1, 5]]
    """

    name: ClassVar[str] = "neighbour"

    def __init__(
        self,
        captions: Captions,
        neighbours: Neighbours,
        batch_size: int = 50,
        *,
        seed: int,
        drop_last: bool,
        k: int = 5,
        nearest: int | None = None,
        siblings: bool = False,
        depth: int | None = None,
        anchors: int | None = None,
    ) -> None:
        super().__init__(captions, batch_size, seed=seed, drop_last=drop_last)
        if not 0 <= k < batch_size:
            raise ValueError(f"k is {k}; a batch of {batch_size} has room for 0..{batch_size - 1} neighbours")
        if nearest is not None and nearest < k:
            raise ValueError(f"nearest is {nearest}; the k = {k} neighbours of a batch are drawn from at least k")
        self.neighbours, self.k, self.nearest, self.siblings = neighbours, k, nearest, siblings
        self.depth = (nearest or k) + 15 if depth is None else depth
        self.anchors = self._count(len(captions)) if anchors is None else anchors

    def count(self) -> int:
        """Return the number of batches per epoch."""
        most = len(self.captions) if self.siblings else len(np.unique(self.captions.image))
        return 0 if most == 0 or (self.drop_last and most < self.batch_size) else self.anchors

    @property
    def parameters(self) -> dict[str, Any]:
        """Everything that determines the batches, except the captions and their neighbours."""
        specific = {"k": self.k, "nearest": self.nearest, "siblings": self.siblings, "depth": self.depth}
        return super().parameters | specific | {"anchors": self.anchors}

    def epoch(self, epoch: int) -> list[Rows]:
        """List the batches of an epoch: (B,) int32 caption rows each."""
        anchors, random = self._anchors(epoch), StableRandom(self.seed, 1, epoch)
        batches: list[Rows] = []
        for a in range(0, len(anchors), _CHUNK):
            chunk = anchors[a : a + _CHUNK]
            near = self.captions.positions_of(
                self.neighbours.neighbours(self.captions.rows[chunk], self.depth, "nan")[0]
            )
            batches += [self._batch(int(p), near[i].tolist(), random) for i, p in enumerate(chunk)]
        return batches

    def _anchors(self, epoch: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the positions of the anchors of an epoch."""
        count, start = len(self.captions), epoch * self.count()
        stop = start + self.count()
        if not count or start == stop:
            return np.empty(0, np.int64)
        # Epochs read on where the one before stopped in an endless sequence of random orders of all captions.
        orders = [StableRandom(self.seed, 0, n).permutation(count) for n in range(start // count, -(-stop // count))]
        return np.concatenate(orders)[start % count :][: stop - start]

    def _batch(self, anchor: int, near: list[int], random: StableRandom) -> Rows:
        """Make the batch of one anchor, given the positions of its neighbours (-1: not usable)."""
        image, size = self.captions.image, self.batch_size
        # A dict keeps the order: the anchor first, then its neighbours, best first.
        chosen, images = {anchor: None}, {int(image[anchor])}

        def add(position: int) -> None:
            if position >= 0 and position not in chosen and (self.siblings or int(image[position]) not in images):
                chosen[position] = None
                images.add(int(image[position]))

        if self.nearest is not None:
            others = [p for p in near if p >= 0 and (self.siblings or image[p] != image[anchor])][: self.nearest]
            near = [others[i] for i in random.permutation(len(others))]
        for position in near:
            if len(chosen) == self.k + 1:
                break
            add(position)
        count = len(self.captions)
        # A few draws fill a batch of a large corpus. A small corpus, or one of few images, is searched completely.
        for exhaustive in (False, True):
            if len(chosen) == size:
                break
            for position in (random.permutation(count) if exhaustive else random.below(count, 4 * size)).tolist():
                add(position)
                if len(chosen) == size:
                    break
        return self.captions.rows[list(chosen)]


class GradedBatchSampler(Sampler):
    """Batches that contain, for each caption, candidates at every level of relevance.

    Relevance is cut by thresholds t_1 > t_2 > ... > t_L into levels: level 1 is r >= t_1, level l is
    t_l <= r < t_(l-1). Captions below t_L are in a batch only by chance. An epoch uses each caption once:

    1. The candidates of a caption are the usable captions of other images among its `depth` nearest, each at the level
       of its score.
    2. Captions are visited in random order, and the next free one opens a group. For every caption of the group, in
       order of joining, and every level 1..L: if no caption of the group is a candidate at this level, a random free
       candidate at this level joins. A group is closed when it has `group` captions or no caption can join.
    3. The groups, in random order and end to end, are cut into batches. Every batch is as graded as any other and
       holds about B / `group` groups that are random to each other.

    Towards the end of step 2 few candidates are free and groups stay small. The sampler holds 5 bytes per caption and
    neighbour: 280 MB for the 566,747 captions of COCO's training split at depth 100.

    Parameters
    ----------
    neighbours : Neighbours
        With at least `depth` neighbours of every caption.
    levels : sequence of float
        Descending thresholds in the source's range; `quantile_levels` derives them from the data.
    group : int
        Maximum number of captions of a group, 2 or more.
    siblings : bool
        Allow two captions of one image in one group (two groups of a batch may always hold two).
    depth : int
        Neighbours examined.

    Examples
    --------
    >>> from relabel_train.lookup import open_lookup
    >>> from relabel_train.examples import write_lookup
    >>> lookup = open_lookup(write_lookup("example"))
    >>> sampler = GradedBatchSampler(lookup.captions(), lookup, 3, levels=(0.9, 0.5), seed=0, drop_last=False, depth=5)
    >>> [rows.tolist() for rows in sampler.epoch(0)]
    [[2, 1, 5], [3, 4, 0]]
    """

    name: ClassVar[str] = "graded"

    def __init__(
        self,
        captions: Captions,
        neighbours: Neighbours,
        batch_size: int,
        *,
        levels: Sequence[float],
        seed: int,
        drop_last: bool,
        group: int = 16,
        siblings: bool = False,
        depth: int = 100,
    ) -> None:
        super().__init__(captions, batch_size, seed=seed, drop_last=drop_last)
        self.neighbours, self.levels, self.depth = neighbours, tuple(map(float, levels)), depth
        self.group, self.siblings = group, siblings
        if not self.levels or any(a <= b for a, b in zip(self.levels, self.levels[1:], strict=False)):
            raise ValueError(f"levels are {self.levels}; they must be falling thresholds, at least one")
        if len(self.levels) > _NONE:
            raise ValueError(f"{len(self.levels)} levels; at most {_NONE}")
        if group < 2:
            raise ValueError(f"group is {group}; a caption meets no other in a group of less than 2")

    def count(self) -> int:
        """Return the number of batches per epoch."""
        return self._count(len(self.captions))

    @property
    def parameters(self) -> dict[str, Any]:
        """Everything that determines the batches, except the captions and their neighbours."""
        specific = {"levels": list(self.levels), "group": self.group, "siblings": self.siblings, "depth": self.depth}
        return super().parameters | specific

    def epoch(self, epoch: int) -> list[Rows]:
        """List the batches of an epoch: (B,) int32 caption rows each."""
        random = StableRandom(self.seed, epoch)
        free, openers = np.ones(len(self.captions), np.bool_), random.permutation(len(self.captions)).tolist()
        groups = [self._grow(opener, free, random) for opener in openers if free[opener]]
        # Early groups are full and late ones short: a random order spreads them over the batches.
        order = random.permutation(len(groups)).tolist()
        return self._cut(np.array([position for g in order for position in groups[g]], np.int64))

    def _grow(self, opener: int, free: NDArray[np.bool_], random: StableRandom) -> list[int]:
        """Make one group and mark its captions as used."""
        (near, level), image = self._candidates, self.captions.image
        group, inside, images = [opener], self._inside, {int(image[opener])}
        free[opener], inside[opener] = False, True
        for member in group:  # grows during the loop
            row, code = near[member], level[member]
            for wanted in range(len(self.levels)):
                candidates = row[code == wanted]
                # Another member may already be a candidate at this level: then the level is met.
                if not len(candidates) or inside[candidates].any():
                    continue
                candidates = candidates[free[candidates]]
                if not self.siblings and len(candidates):
                    candidates = candidates[[int(i) not in images for i in image[candidates]]]
                if not len(candidates):
                    continue
                joins = int(candidates[random.one(len(candidates))])
                group.append(joins)
                free[joins], inside[joins] = False, True
                images.add(int(image[joins]))
                if len(group) == self.group:
                    break
            if len(group) == self.group:
                break
        # The marks are shared by all groups, so they are cleared in time proportional to this one.
        inside[group] = False
        return group

    @cached_property
    def _inside(self) -> NDArray[np.bool_]:
        """Marks of the captions in the growing group: none between groups."""
        return np.zeros(len(self.captions), np.bool_)

    @cached_property
    def _candidates(self) -> tuple[Rows, NDArray[np.uint8]]:
        """(N, depth) positions and levels of each caption's candidates; level _NONE for other neighbours."""
        shape = len(self.captions), self.depth
        near, level, thresholds = np.zeros(shape, np.int32), np.full(shape, _NONE, np.uint8), np.array(self.levels)
        for a in range(0, len(self.captions), _CHUNK):
            rows, scores, same_image = self.neighbours.neighbours(self.captions.rows[a : a + _CHUNK], self.depth, "nan")
            positions = self.captions.positions_of(rows)
            part = slice(a, a + len(positions)), slice(0, positions.shape[1])
            # Thresholds fall: the number of them above the score is its level, from 0; "left" puts r = t_l at level l.
            code = np.searchsorted(-thresholds, -np.asarray(scores, np.float64) - _TOLERANCE, side="left")
            code[(positions < 0) | same_image | (code == len(thresholds))] = _NONE
            near[part], level[part] = np.maximum(positions, 0), code
        return near, level


def quantile_levels(
    captions: Captions, neighbours: Neighbours, quantiles: Sequence[float], *, depth: int, seed: int = 0
) -> tuple[float, ...]:
    """Return the thresholds that the given fractions of all candidates reach, in descending order.

    Parameters
    ----------
    quantiles : sequence of float
        Ascending, 0..1, of all candidates (step 1 of `GradedBatchSampler`): 0.1, 0.5, 0.9 make levels of the best
        tenth, the next four tenths and the four after them.
    depth : int
        Neighbours examined, of at most 5,000 captions drawn with `seed`.

    Raises
    ------
    ValueError
        If candidates are missing, or if so many have the same label that quantiles coincide or reach the lowest label,
        as with the zeros of sparse labels.

    Examples
    --------
    >>> from relabel_train.lookup import open_lookup
    >>> from relabel_train.examples import write_lookup
    >>> lookup = open_lookup(write_lookup("example"))
    >>> [round(level, 2) for level in quantile_levels(lookup.captions(), lookup, (0.1, 0.5, 0.9), depth=5)]
    [0.94, 0.8, 0.28]
    """
    # 5,000 captions estimate the quantiles closely, and a large corpus would take minutes.
    sample = np.sort(StableRandom(seed).permutation(len(captions))[:5000])
    rows, scores, same_image = neighbours.neighbours(captions.rows[sample], depth, "nan")
    candidates = np.sort(np.asarray(scores, np.float64)[(captions.positions_of(rows) >= 0) & ~same_image])[::-1]
    if not len(candidates):
        raise ValueError("no caption has a usable neighbour of another image")
    levels = tuple(float(candidates[max(0, int(np.ceil(q * len(candidates))) - 1)]) for q in sorted(quantiles))
    lowest = float(candidates[-1])
    # Equal levels are the same set, and a level at the lowest label holds every candidate, as only quantile 1 should.
    repeated = len(set(levels)) < len(levels)
    if repeated or (lowest in levels and max(quantiles) < 1):
        raise ValueError(
            f"quantiles {quantiles} give the levels {levels}, which must differ and be above the lowest label, "
            f"{lowest:g}; {np.mean(candidates > lowest):.1%} of the labels are. Pass other quantiles, or `levels`."
        )
    return levels
