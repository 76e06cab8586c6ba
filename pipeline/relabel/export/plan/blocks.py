"""Exact blocks of batches of captions: scored as blocks, or put together out of pairs that are each scored once.

Row i of a block is the image of caption i, column j is caption j. For sources that score pair by pair, each distinct
pair of a plan is scored once, however many batches it is in, and lies on disk until its blocks are written. A pair is
an owner (see `owners`) and a caption; its key is one int64, in order of both. Pairs are dealt into parts by owner, one
file per part: (2, P) int64, the keys ascending, and the bits of their float64 scores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.core.progress import Advance
from relabel.core.types import Pooling, Rows
from relabel.corpus import Corpus, References
from relabel.sources.gate_counts import record_gate_counts
from relabel.sources.relevance import Relevance
from relabel.store.safe_writers import save_array
from relabel.store.tasks import Task
from relabel.store.workdir import Work

Block = NDArray[np.float32]
Keys = NDArray[np.int64]

PAIR_BYTES = 16
"""A pair on disk, until the plan is whole."""

_PART = 1 << 18  # pairs a part, counted with repeats: a minute of METEOR, and 30 MB while it is made
_STEP = 1 << 14  # pairs scored at once


def owners(corpus: Corpus, rows: Rows, pooling: Pooling) -> Rows:
    """Name what stands for each caption's image: the caption itself (`paired`), else the image by number."""
    return rows if pooling == "paired" else corpus.image[rows]


def references_of(corpus: Corpus, named: NDArray[np.integer[Any]], pooling: Pooling) -> References:
    """Make the reference sets that `owners` names."""
    if pooling == "paired":
        return References.single(named.astype(np.int32))
    return corpus.references(named.tolist())


def block_of(relevance: Relevance, rows: Rows, pooling: Pooling) -> Block:
    """Score a batch.

    Returns
    -------
    (B, B) float32
        What `Relevance.pairs` gives for each pair, rounded once: the same bits whatever threads and BLAS do.
    """
    references = references_of(relevance.corpus, owners(relevance.corpus, rows, pooling), pooling)
    return relevance.rounded_block(references, rows, pooling)


@dataclass(frozen=True, eq=False)
class Pairs:
    """The pairs of all batches.

    Attributes
    ----------
    corpus : Corpus
    rows : (n, B) int32
        Caption rows of the batches, -1 where one is short.
    pooling : Pooling
    """

    corpus: Corpus
    rows: Rows
    pooling: Pooling

    @cached_property
    def files(self) -> list[str]:
        """Names of the parts."""
        count = len(self._bounds) - 1
        return [f"pairs-{part:05d}-of-{count:05d}.npy" for part in range(count)]

    @cached_property
    def tasks(self) -> list[Task]:
        """One task a part, its size the distinct pairs."""
        return [Task(file, len(self.keys(part))) for part, file in enumerate(self.files)]

    @cached_property
    def distinct(self) -> int:
        """Distinct pairs of the whole plan."""
        return sum(task.size for task in self.tasks)

    def keys(self, part: int) -> Keys:
        """List the distinct pairs of a part, ascending."""
        named, places = self._order
        places = places[self._bounds[part] : self._bounds[part + 1]]
        keys = self._key(named[places], self.rows[places // self.rows.shape[1]])
        return np.unique(keys[keys >= 0])

    def score(self, work: Work, task: Task, relevance: Relevance, advance: Advance) -> None:
        """Score a part."""
        keys = self.keys(self.files.index(task.file))
        scores = np.empty(len(keys))
        with record_gate_counts(relevance, work, task.file):
            for a in range(0, len(keys), _STEP):
                some = keys[a : a + _STEP]
                references = references_of(self.corpus, some >> 32, self.pooling)
                scores[a : a + _STEP] = relevance.pairs(references, (some & 0xFFFFFFFF).astype(np.int32), self.pooling)
                advance(len(some))
        work.file(task.file, partial(_write, np.stack([keys, scores.view(np.int64)])), rows=len(keys))

    def sample(self, count: int) -> Keys:
        """Take so many distinct pairs that are scored one after another, from a part in the middle."""
        return self.keys((len(self._bounds) - 1) // 2)[:count]

    def blocks(self, folder: Path, batches: range, advance: Advance) -> Iterator[Block]:
        """Put the blocks of batches together, out of parts that are all scored: (1, B, B) float32 each."""
        size, first = self.rows.shape[1], self._first
        parts = [np.load(folder / file, mmap_mode="r") for file in self.files]
        for number in batches:
            rows = self.rows[number][self.rows[number] >= 0]
            named = owners(self.corpus, rows, self.pooling)
            keys, where = self._key(named, rows[None].repeat(len(rows), axis=0)), np.searchsorted(first, named, "right")
            block = np.zeros((1, size, size), np.float32)
            for part in np.unique(where).tolist():
                here = np.flatnonzero(where == part)
                known, scores = parts[part - 1]
                at = np.searchsorted(known, keys[here])
                block[0, here, : len(rows)] = scores.view(np.float64)[at]
            yield block
            advance(1)

    @cached_property
    def _order(self) -> tuple[Rows, NDArray[np.int64]]:
        """The owner of each place of the batches, and the places by owner; those of -1 left out."""
        flat = self.rows.reshape(-1)
        named = np.where(flat < 0, np.int32(-1), owners(self.corpus, np.maximum(flat, 0), self.pooling))
        places = np.argsort(named, kind="stable")
        return named, places[np.searchsorted(named[places], 0) :]

    @cached_property
    def _bounds(self) -> list[int]:
        """Where parts begin among the places by owner: no owner is in two parts."""
        named, places = self._order
        starts = np.flatnonzero(np.diff(named[places], prepend=-1))
        most, bounds = max(1, _PART // self.rows.shape[1]), [0]
        for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(places)], strict=True):
            if stop - bounds[-1] > most and start > bounds[-1]:
                bounds.append(start)
        return [*bounds, len(places)]

    @cached_property
    def _first(self) -> Rows:
        """The first owner of each part."""
        named, places = self._order
        return named[places[self._bounds[:-1]]]

    @staticmethod
    def _key(named: Rows, rows: Rows) -> Keys:
        """(Q,) owners and (Q, B) rows to (Q, B) keys; -1 where a row is -1."""
        return np.where(rows < 0, np.int64(-1), (named.astype(np.int64) << 32)[:, None] | rows)


def _write(array: NDArray[np.int64], path: Path) -> None:
    save_array(path, array)
