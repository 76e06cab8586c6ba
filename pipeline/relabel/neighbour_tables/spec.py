"""Parameters and Parquet schema of neighbour tables."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from relabel.core.parameters import Parameters
from relabel.core.types import Queries, Rows, Scores
from relabel.corpus.splits import named_split
from relabel.store.workdir import part_ranges

SplitOrAll = Annotated[Literal["train", "val", "test", "all"], BeforeValidator(named_split)]
_LISTS = {"neighbours": pa.int32(), "scores": pa.float32(), "same_image": pa.bool_()}
SCHEMA = pa.schema([("row", pa.int32()), *((name, pa.list_(value)) for name, value in _LISTS.items())])
"""`row`: row of a caption or number of an image. `neighbours`: caption rows, best first. `scores`: their relevance,
rounded to float32 after sorting. `same_image`: whether a caption has the image id of the query."""

_ENTRIES = 1 << 21  # neighbours in memory while a shard is written: about 50 MB for any k and shard size


class NeighboursParams(Parameters):
    """Parameters of a neighbour table. Images use the pooling of their label."""

    k: int = Field(
        100, ge=1, le=1_000_000, description="Neighbours per caption or image.", json_schema_extra={"flags": ["-k"]}
    )
    queries: Queries = Field("captions", description="Queries: captions, or images (their references, pooled).")
    candidates: SplitOrAll | None = Field(
        None,
        description="Split of the queries and candidates; by default, the encoded split. Reads the encoding of this "
        "split or of all captions.",
    )
    index: str | None = Field(
        None,
        description="faiss index factory string for approximate search, with search parameters after a semicolon "
        "(`IVF1024,Flat;nprobe=32`); by default, the search is exact.",
    )


def row_groups(rows: range, width: int) -> list[range]:
    """Divide the rows of a shard, with `width` neighbours each, into row groups."""
    return part_ranges(rows, max(1, _ENTRIES // max(1, width)))


def table_of(row: Rows, neighbours: Rows, scores: Scores, same_image: NDArray[np.bool_]) -> pa.Table:
    """Create a table in `SCHEMA` from q rows, (q,), with `width` neighbours each, (q, width)."""
    offsets = pa.array(np.arange(len(row) + 1, dtype=np.int32) * np.int32(neighbours.shape[1]))
    values = (neighbours.astype(np.int32), scores.astype(np.float32), same_image)
    lists = [pa.ListArray.from_arrays(offsets, pa.array(v.reshape(-1))) for v in values]
    return pa.Table.from_arrays([pa.array(row.astype(np.int32)), *lists], schema=SCHEMA)
