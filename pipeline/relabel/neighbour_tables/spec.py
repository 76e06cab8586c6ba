"""Specification of a table of neighbours: parameters, queries, candidates, shards and Parquet schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from relabel.core.parameters import Parameters
from relabel.core.types import Pooling, Queries, Rows, Scores
from relabel.corpus import REFERENCES, Corpus, References
from relabel.corpus.splits import named_split
from relabel.sources.finder import Search
from relabel.store.workdir import part_ranges

SplitOrAll = Annotated[Literal["train", "val", "test", "all"], BeforeValidator(named_split)]
_LISTS = {"neighbours": pa.int32(), "scores": pa.float32(), "same_image": pa.bool_()}
SCHEMA = pa.schema([("row", pa.int32()), *((name, pa.list_(value)) for name, value in _LISTS.items())])
"""`row` is a caption's row, or an image's number. `neighbours` are caption rows, best first. `scores` are their
relevance, rounded to float32 after sorting. `same_image` marks captions with the image id of the query."""

_ENTRIES = 1 << 21  # neighbours held in memory while a shard is written: about 50 MB for any k and shard size


class NeighboursParams(Parameters):
    """Parameters of a table of neighbours; images are pooled as their label says."""

    k: int = Field(
        100, ge=1, le=1_000_000, description="Neighbours per caption or image.", json_schema_extra={"flags": ["-k"]}
    )
    queries: Queries = Field("captions", description="Queries: captions, or images (their references, pooled).")
    candidates: SplitOrAll | None = Field(
        None,
        description="Split whose captions are queries and candidates; by default, the encoded split. Its own encoding "
        "is searched, or that of all captions.",
    )
    index: str | None = Field(
        None,
        description="faiss index factory string of an approximate search, with parameters of the search after a "
        "semicolon (`IVF1024,Flat;nprobe=32`); by default, the search is exact.",
    )


@dataclass(frozen=True)
class NeighbourSpec:
    """Specification of one table of neighbours.

    `queries`: queries of the table.
    `rows`: corpus rows that are queries and candidates.
    `k`: neighbours per query.
    `rows_per_shard`: captions per shard; an image counts as its first five.
    """

    label: str
    queries: Queries
    rows: range
    k: int
    pooling: Pooling
    rows_per_shard: int

    def config(self) -> dict[str, Any]:
        """Return the fields that can change the table."""
        return {
            "queries": self.queries,
            "rows": [self.rows.start, self.rows.stop],
            "k": self.k,
            "pooling": self.pooling,
            "references": REFERENCES,
            "rows_per_shard": self.rows_per_shard,
        }

    def query_numbers(self, corpus: Corpus) -> range:
        """Return the values of the column `row`: rows of captions, or numbers of images."""
        return self.rows if self.queries == "captions" else corpus.images_of(self.rows)

    def search(self, corpus: Corpus) -> Search:
        """Return the queries and the candidates."""
        candidates = np.arange(self.rows.start, self.rows.stop, dtype=np.int32)
        if self.queries == "captions":
            # A caption is never its own neighbour.
            return Search(References.single(candidates), candidates, candidates, self.k)
        numbers = self.query_numbers(corpus)
        # An image is no caption: there is nothing to exclude.
        return Search(corpus.references(numbers), np.full(len(numbers), -1, np.int32), candidates, self.k)

    def shards(self, corpus: Corpus) -> list[range]:
        """Divide the queries, numbered from 0, into shards; an image is never separated from its references."""
        each = self.rows_per_shard if self.queries == "captions" else max(1, self.rows_per_shard // REFERENCES)
        return part_ranges(range(len(self.query_numbers(corpus))), each)


def row_groups(rows: range, width: int) -> list[range]:
    """Divide the rows of a shard, with `width` neighbours each, into its row groups."""
    return part_ranges(rows, max(1, _ENTRIES // max(1, width)))


def table_of(row: Rows, neighbours: Rows, scores: Scores, same_image: NDArray[np.bool_]) -> pa.Table:
    """Return the table of q rows, (q,), with `width` neighbours each, (q, width)."""
    offsets = pa.array(np.arange(len(row) + 1, dtype=np.int32) * np.int32(neighbours.shape[1]))
    values = (neighbours.astype(np.int32), scores.astype(np.float32), same_image)
    lists = [pa.ListArray.from_arrays(offsets, pa.array(v.reshape(-1))) for v in values]
    return pa.Table.from_arrays([pa.array(row.astype(np.int32)), *lists], schema=SCHEMA)
