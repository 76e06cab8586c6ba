"""Specification of a table of neighbours: its queries, candidates and shards."""

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
class NeighbourSpec:
    """Specification of one table of neighbours.

    Attributes
    ----------
    label : str
    of : "captions" or "images"
        Queries of the table.
    rows : range
        Corpus rows that are queries and candidates.
    k : int
        Neighbours per query.
    pooling : Pooling
    rows_per_shard : int
        Captions per shard; an image counts as its first five.

    Examples
    --------
    >>> from relabel.neighbours.spec import NeighbourSpec
    >>> NeighbourSpec("sbert", "captions", range(0, 50), 10, "max", 20).semantic()["rows"]
    [0, 50]
    """

    label: str
    of: Of
    rows: range
    k: int
    pooling: Pooling
    rows_per_shard: int

    def semantic(self) -> dict[str, Any]:
        """Return the fields that can change the table."""
        return {
            "of": self.of,
            "rows": [self.rows.start, self.rows.stop],
            "k": self.k,
            "pooling": self.pooling,
            "references": REFERENCES,
            "rows_per_shard": self.rows_per_shard,
        }

    def query_numbers(self, corpus: Corpus) -> range:
        """Return the values of the column `row`: rows of captions, or numbers of images."""
        if self.of == "captions":
            return self.rows
        return range(int(corpus.image[self.rows.start]), int(corpus.image[self.rows.stop - 1]) + 1)

    def search(self, corpus: Corpus) -> Search:
        """Return the queries and the candidates."""
        candidates = np.arange(self.rows.start, self.rows.stop, dtype=np.int32)
        if self.of == "captions":
            # A caption is never its own neighbour.
            return Search(References.single(candidates), candidates, candidates, self.k)
        numbers = self.query_numbers(corpus)
        # An image is no caption: there is nothing to exclude.
        return Search(corpus.references(numbers), np.full(len(numbers), -1, np.int32), candidates, self.k)

    def query_images(self, corpus: Corpus) -> Rows:
        """Return the image number of each query, (Q,) int32; image numbers follow from image ids."""
        if self.of == "captions":
            return corpus.image[self.rows.start : self.rows.stop]
        return np.asarray(self.query_numbers(corpus), np.int32)

    def shards(self, corpus: Corpus) -> list[range]:
        """Divide the queries, numbered from 0, into shards; an image is never separated from its references."""
        each = self.rows_per_shard if self.of == "captions" else max(1, self.rows_per_shard // REFERENCES)
        return part_ranges(range(len(self.query_numbers(corpus))), each)
