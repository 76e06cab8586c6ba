"""Exact blocks of batches of captions: scored as blocks, or put together out of pairs that are each scored once.

Row i of a block is the image of caption i, and column j is caption j. For sources that score pair by pair, each
distinct pair of a plan is scored once, however many batches contain it, and stays on disk until its blocks are written.
A pair is an owner (see `owners`) and a caption. Its key is one int64, ordered by both. Pairs are divided into parts by
owner, one file per part: (2, P) int64, the ascending keys and the bits of their float64 scores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from relabel.core.runtime import Advance, Progress
from relabel.core.types import Pooling, Rows
from relabel.corpus import Corpus, References
from relabel.sources.relevance import Relevance, block_of_pairs
from relabel.store.arrays import save_array
from relabel.store.workdir import Step, Task

Block = NDArray[np.float32]
Keys = NDArray[np.int64]

PAIR_BYTES = 16
"""Bytes of a pair on disk, until the plan is complete."""

_PART = 1 << 18  # pairs per part, counted with repeats: 30 MB of memory
_STEP = 1 << 14  # pairs scored per call


def owners(corpus: Corpus, rows: Rows, pooling: Pooling) -> Rows:
    """Return the number of each caption's reference set: the caption's row (`paired`), or its image number."""
    return rows if pooling == "paired" else corpus.image[rows]


def references_of(corpus: Corpus, numbers: NDArray[np.integer[Any]], pooling: Pooling) -> References:
    """Return the reference sets that `owners` numbers."""
    if pooling == "paired":
        return References.single(numbers.astype(np.int32))
    return corpus.references(numbers.tolist())


def block_of(relevance: Relevance, rows: Rows, pooling: Pooling) -> Block:
    """Score a batch.

    `rows`: (B,) int32. Returns (B, B) float32: the scores of `Relevance.pairs`, rounded once.
    """
    references = references_of(relevance.corpus, owners(relevance.corpus, rows, pooling), pooling)
    return block_of_pairs(relevance, references, rows, pooling).astype(np.float32)


class HasRelevance(Protocol):
    """Something that opens a label when it is first needed."""

    @property
    def relevance(self) -> Relevance:
        """The opened label."""
        ...


@dataclass(frozen=True, eq=False)
class Pairs:
    """The distinct pairs of all batches of a plan, divided into parts.

    `rows`: (n, B) int32; caption rows of the batches, -1 where a batch is short.
    """

    corpus: Corpus
    rows: Rows
    pooling: Pooling

    @cached_property
    def files(self) -> list[str]:
        """Names of the files of the parts."""
        count = len(self._bounds) - 1
        return [f"pairs-{part:05d}-of-{count:05d}.npy" for part in range(count)]

    @cached_property
    def sizes(self) -> list[int]:
        """Number of distinct pairs of each part."""
        return [len(self.keys(part)) for part in range(len(self.files))]

    @cached_property
    def distinct(self) -> int:
        """Distinct pairs of the plan."""
        return sum(self.sizes)

    def step(self, title: str, opened: HasRelevance, progress: Progress) -> Step:
        """Return the step that scores the pairs, one part per task."""
        parts = enumerate(zip(self.files, self.sizes, strict=True))
        tasks = [Task(file, partial(self._score, part, opened, progress), size) for part, (file, size) in parts]
        return Step(title, "pairs", tasks)

    def keys(self, part: int) -> Keys:
        """Return the distinct pairs of a part, ascending."""
        owner, slots = self._order
        slots = slots[self._bounds[part] : self._bounds[part + 1]]
        # A slot of a batch pairs its owner with every caption of that batch.
        keys = self._key(owner[slots], self.rows[slots // self.rows.shape[1]])
        return np.unique(keys[keys >= 0])

    def _score(self, part: int, opened: HasRelevance, progress: Progress, path: Path) -> None:
        """Score the pairs of a part."""
        keys = self.keys(part)
        scores = np.empty(len(keys))
        for a in range(0, len(keys), _STEP):
            references, captions = self.unpack(keys[a : a + _STEP])
            scores[a : a + _STEP] = opened.relevance.pairs(references, captions, self.pooling)
            progress.advance(len(captions))
        # Keys and the bits of their scores in one array of one type: 16 bytes per pair, and one file to map.
        save_array(path, np.stack([keys, scores.view(np.int64)]))

    def unpack(self, keys: Keys) -> tuple[References, Rows]:
        """Return the reference sets and the caption rows of some pairs."""
        return references_of(self.corpus, keys >> 32, self.pooling), (keys & 0xFFFFFFFF).astype(np.int32)

    def sample(self, count: int) -> Keys:
        """Return at most `count` consecutive pairs of a part in the middle."""
        return self.keys((len(self._bounds) - 1) // 2)[:count]

    def blocks(self, folder: Path, batches: range, advance: Advance) -> Iterator[Block]:
        """Yield the blocks of some batches, (1, B, B) float32 each, read from the parts, which are all scored."""
        size, first = self.rows.shape[1], self._first
        parts = [np.load(folder / file, mmap_mode="r") for file in self.files]
        for number in batches:
            rows = self.rows[number][self.rows[number] >= 0]
            owner = owners(self.corpus, rows, self.pooling)
            keys = self._key(owner, rows[None].repeat(len(rows), axis=0))
            # No owner is in two parts: the first owner of each part tells which one holds a row of the block.
            part_of_row = np.searchsorted(first, owner, "right")
            block = np.zeros((1, size, size), np.float32)
            for part in np.unique(part_of_row).tolist():
                in_part = np.flatnonzero(part_of_row == part)
                part_keys, scores = parts[part - 1]
                positions = np.searchsorted(part_keys, keys[in_part])
                block[0, in_part, : len(rows)] = scores.view(np.float64)[positions]
            yield block
            advance(1)

    @cached_property
    def _order(self) -> tuple[Rows, NDArray[np.int64]]:
        """Owner of each slot of the batches, and the slots sorted by owner, without empty ones."""
        flat = self.rows.reshape(-1)
        owner = np.where(flat < 0, np.int32(-1), owners(self.corpus, np.maximum(flat, 0), self.pooling))
        slots = np.argsort(owner, kind="stable")
        # Empty slots have owner -1 and come first.
        return owner, slots[np.searchsorted(owner[slots], 0) :]

    @cached_property
    def _bounds(self) -> list[int]:
        """Bounds of the parts among the sorted slots; no owner is in two parts."""
        owner, slots = self._order
        starts = np.flatnonzero(np.diff(owner[slots], prepend=-1))
        most, bounds = max(1, _PART // self.rows.shape[1]), [0]
        for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(slots)], strict=True):
            # Begin a new part with this owner if the present one would become too large.
            if stop - bounds[-1] > most and start > bounds[-1]:
                bounds.append(start)
        return [*bounds, len(slots)]

    @cached_property
    def _first(self) -> Rows:
        """First owner of each part."""
        owner, slots = self._order
        return owner[slots[self._bounds[:-1]]]

    @staticmethod
    def _key(owner: Rows, rows: Rows) -> Keys:
        """Return the (Q, B) keys of (Q,) owners and (Q, B) rows; -1 where a row is -1."""
        # The owner in the upper 32 bits, the caption in the lower: keys are ordered by owner, then by caption.
        return np.where(rows < 0, np.int64(-1), (owner.astype(np.int64) << 32)[:, None] | rows)
