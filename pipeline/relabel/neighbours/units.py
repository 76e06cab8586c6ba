"""How a table of neighbours is made: what queries share first, then one shard after another, in any order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from relabel.corpus import REFERENCES, Corpus, References
from relabel.neighbours.base import Finder, Rows, Search
from relabel.neighbours.params import Of
from relabel.neighbours.table import blocks, table_of, write_plain
from relabel.runtime import Runtime
from relabel.sources.base import Pooling, Relevance
from relabel.store.units import Advance, Phase, Unit, Units
from relabel.store.work import Work, part_name, part_ranges

_WRITING = 96 << 20  # bytes that a shard takes while it is written, of which the finder knows nothing


@dataclass(frozen=True)
class Question:
    """Whose neighbours are looked for, and where.

    Attributes
    ----------
    label : str
    of : "captions" or "images"
    rows : range
        Corpus rows that ask and are searched.
    k : int
    pooling : Pooling
    rows_per_shard : int
        Captions that a shard asks for; an image is asked for with its first five.
    """

    label: str
    of: Of
    rows: range
    k: int
    pooling: Pooling
    rows_per_shard: int

    def semantic(self) -> dict[str, Any]:
        """All of it that can change a table."""
        return {
            "of": self.of,
            "rows": [self.rows.start, self.rows.stop],
            "k": self.k,
            "pooling": self.pooling,
            "references": REFERENCES,
            "rows_per_shard": self.rows_per_shard,
        }

    def numbers(self, corpus: Corpus) -> range:
        """What is in column `row`: rows of captions, or numbers of images."""
        if self.of == "captions":
            return self.rows
        return range(int(corpus.image[self.rows.start]), int(corpus.image[self.rows.stop - 1]) + 1)

    def search(self, corpus: Corpus) -> Search:
        """Make queries and candidates."""
        candidates = np.arange(self.rows.start, self.rows.stop, dtype=np.int32)
        if self.of == "captions":
            return Search(References.single(candidates), candidates, candidates, self.k)
        numbers = self.numbers(corpus)
        return Search(corpus.references(numbers), np.full(len(numbers), -1, np.int32), candidates, self.k)

    def images(self, corpus: Corpus) -> Rows:
        """(Q,) int32: the image of each query, by number; images have numbers by their ids."""
        if self.of == "captions":
            return corpus.image[self.rows.start : self.rows.stop]
        return np.asarray(self.numbers(corpus), np.int32)

    def shards(self, corpus: Corpus) -> list[range]:
        """Cut the queries (numbered from 0) into shards; an image and its references are never apart."""
        each = self.rows_per_shard if self.of == "captions" else max(1, self.rows_per_shard // REFERENCES)
        return part_ranges(range(len(self.numbers(corpus))), each)


class NeighbourUnits(Units):
    """Work on one table of neighbours.

    Parameters
    ----------
    question : Question
    relevance : callable
        Opens the label's encoding; called once a worker.
    runtime : Runtime
    """

    def __init__(self, question: Question, relevance: Callable[[], Relevance], runtime: Runtime) -> None:
        self.question, self._open, self.runtime = question, relevance, runtime

    def phases(self, work: Work) -> Iterator[Phase]:
        """What queries share, unless all shards are there; then the shards."""
        units = [Unit(name, len(queries)) for name, queries in self._shards.items()]
        if not all(work.done(unit.file) for unit in units):
            shared = self.finder(work).preliminary(work)
            if shared is not None:
                yield shared
        yield Phase(f"neighbours ({self.question.label})", self.question.of, units)

    def make(self, work: Work, unit: Unit, advance: Advance) -> None:
        """Make a shard, or what queries share."""
        finder = self.finder(work)
        if unit.file not in self._shards:
            finder.prepare(work, unit, advance)
            return
        queries = self._shards[unit.file]
        numbers, image = self.question.numbers(self.corpus), self.question.images(self.corpus)

        def tables() -> Iterator[pa.Table]:
            for block in blocks(queries, finder.search.width):
                rows, scores = finder.find(work, block, advance)
                row = np.arange(numbers[block.start], numbers[block.start] + len(block), dtype=np.int32)
                same = self.corpus.image[rows] == image[block.start : block.stop, None]
                yield table_of(row, rows, scores, same)

        work.file(unit.file, lambda path: write_plain(path, tables()), rows=len(queries))

    def finish(self, work: Work) -> None:
        """Drop what queries shared; note the facts."""
        keep = set(self._shards) | self.kept
        for name in set(work.entries()) - keep:
            work.drop(name)
        width = self.question.search(self.corpus).width
        work.facts |= {"queries": sum(map(len, self._shards.values())), "width": width} | self.found(work)

    kept: frozenset[str] = frozenset()
    """Files of the artefact beside its shards."""

    def found(self, work: Work) -> dict[str, Any]:
        """Say how good the neighbours are."""
        return {"exact": True, "recall": None}

    def finder(self, work: Work) -> Finder:
        """Open what finds, once."""
        return self._finder

    @cached_property
    def relevance(self) -> Relevance:
        """The opened encoding."""
        return self._open()

    @property
    def corpus(self) -> Corpus:
        """The corpus of the encoding."""
        return self.relevance.corpus

    @cached_property
    def _finder(self) -> Finder:
        runtime = replace(self.runtime, memory=max(self.runtime.memory - _WRITING, self.runtime.memory // 2))
        return self.relevance.finder(self.question.search(self.corpus), self.question.pooling, runtime)

    @cached_property
    def _shards(self) -> dict[str, range]:
        shards = self.question.shards(self.corpus)
        return {part_name(i, len(shards)): queries for i, queries in enumerate(shards)}


def path_of(folder: Path, index: int, count: int) -> Path:
    """Where a shard lies."""
    return folder / part_name(index, count)
