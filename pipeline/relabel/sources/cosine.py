"""Base classes of sources with vectors: shards of unit vectors, and cosine relevance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.runtime import Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import References
from relabel.sources.base import P, Source, SourceParams, SourceSpec
from relabel.sources.finder import Finder, Search
from relabel.sources.relevance import LookupArrays, Relevance, positions_in
from relabel.sources.shards import read_failed_rows
from relabel.store.arrays import write_array, write_pieces
from relabel.store.manifest import Manifest, combine_chunks, read_columns, view_column
from relabel.store.workdir import Work

ComputeType = Literal["float32", "bfloat16"]
REFUSED_POOLINGS: dict[Pooling, str] = {"set": "a cosine compares two captions; a set does not have a vector"}
STORED = {"float32": "<f4", "float16": "<f2"}
"""dtype strings of `.npy` files by the name of the dtype in the parameters."""
_CELLS = 1 << 24  # float32 cosines in memory while a block is pooled: 64 MiB


def make_vector_table(rows: range, vectors: NDArray[np.floating], dtype: str = "float32") -> pa.Table:
    """Create the table of one shard: row (int32) and vector (fixed_size_list<dtype>[D])."""
    values = pa.array(np.ascontiguousarray(vectors, dtype=dtype).reshape(-1))
    # Parquet names the field of list values `element`. With this name, a table is equal after reading it back.
    list_type = pa.list_(pa.field("element", values.type), vectors.shape[1])
    return pa.table(
        {
            "row": np.arange(rows.start, rows.stop, dtype=np.int32),
            "vector": pa.FixedSizeListArray.from_arrays(values, type=list_type),
        }
    )


def read_vectors(folder: Path, manifest: Manifest) -> NDArray[np.float32]:
    """Read the vectors of an encoding in row order: (N, D) float32."""
    shape, pieces = _shape_and_pieces(folder, manifest)
    vectors, start = np.empty(shape, np.float32), 0
    for piece in pieces:
        vectors[start : start + len(piece)] = piece
        start += len(piece)
    return vectors


def _shape_and_pieces(folder: Path, manifest: Manifest) -> tuple[tuple[int, int], Iterator[NDArray[np.float32]]]:
    """Return the shape of the vectors of an encoding, and an iterator over shards, to avoid a second copy in memory."""
    files = [folder / name for name in manifest.parts]
    width = pq.read_schema(files[0]).field("vector").type.list_size
    count = sum(pq.read_metadata(file).num_rows for file in files)
    return (count, width), (vectors_from_table(read_columns(file, ["vector"])) for file in files)


@dataclass(frozen=True, eq=False, repr=False)
class VectorRelevance(Relevance):
    """Cosine of unit vectors, pooled over references. Texts without known words have zero vectors and relevance 0.

    `vectors`: (N, D) float32; unit or zero vectors of the encoded rows, NaN for failed rows.
    `encode_text`: returns the unit or zero vector of a new text, (D,).
    """

    vectors: NDArray[np.float32]
    encode_text: Callable[[str], NDArray[np.float32]]

    @override
    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        from relabel.topk.exact_scores import score_pairs

        sets = References(references.indptr, self.positions(references.rows).astype(np.int32))
        return score_pairs(self.vectors, sets, self.positions(captions), pooling or self.pooling)

    @override
    def block(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        right = self.vectors[self.positions(captions)].T
        out = np.empty((len(references), len(captions)))
        # Number of sets with at most `_CELLS` cosines of their references.
        step = max(1, _CELLS * len(references) // max(1, len(captions) * len(references.rows)))
        for a in range(0, len(references), step):
            sets = references.take(np.arange(a, min(a + step, len(references))))
            cosine = self.vectors[self.positions(sets.rows)] @ right
            out[a : a + step] = sets.pool(cosine, pooling or self.pooling)
        return out

    @override
    def query(self, text: str, captions: Rows) -> Scores:
        return np.asarray(self.vectors[self.positions(captions)] @ self.encode_text(text), np.float64)

    @override
    def finder(self, search: Search, pooling: Pooling | None, runtime: Runtime) -> Finder:
        from relabel.sources.vector_search import VectorFinder

        return VectorFinder(self.vectors, self.rows.start, search, pooling or self.pooling, runtime)

    @override
    def positions(self, rows: Rows) -> NDArray[np.int64]:
        return positions_in(rows, range(self.rows.start, self.rows.start + len(self.vectors)))

    @override
    def unit_vectors(self) -> NDArray[np.float32] | None:
        return self.vectors

    @override
    def write_lookup(self, work: Work) -> LookupArrays:
        write_array(work, "vectors", np.asarray(self.vectors, "<f4"))
        return LookupArrays("vectors", "float32", self.failed)


class VectorSource(Source[P]):
    """Base class of sources with one vector per caption."""

    @override
    def write_lookup(
        self, folder: Path, manifest: Manifest, opened: Callable[[], Relevance], config: Mapping[str, Any], work: Work
    ) -> LookupArrays:
        dtype, (shape, pieces) = str(config["dtype"]), _shape_and_pieces(folder, manifest)
        # Failed rows have NaN vectors in the lookup, too.
        write_pieces(work, "vectors", STORED[dtype], shape, pieces)
        return LookupArrays("vectors", dtype, read_failed_rows(folder, manifest))


def make_vector_spec(name: str, params: type[SourceParams]) -> SourceSpec:
    """Return the spec of a source with vectors."""
    return SourceSpec(
        name=name,
        kind="vectors",
        bounds=(-1.0, 1.0),
        symmetric=True,
        params=params,
        refused_poolings=REFUSED_POOLINGS,
    )


def vectors_from_table(table: pa.Table) -> NDArray[np.float32]:
    """Return the vectors of the table of one or more shards: (N, D) float32."""
    column = combine_chunks(table["vector"])
    return view_column(column.flatten()).reshape(len(column), column.type.list_size)
