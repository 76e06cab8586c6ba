"""Whose neighbours are looked for, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from relabel.core.types import Pooling, Rows
from relabel.corpus import REFERENCES, Corpus, References
from relabel.neighbours.params import Of
from relabel.sources.finder import Search
from relabel.store.workdir import part_ranges


@dataclass(frozen=True)
class Question:
    """One table of neighbours, as it is asked for.

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
