"""What the vectors sources share: shards of unit vectors, a FAISS index beside them, and cosine relevance."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.corpus import Corpus, References
from relabel.errors import UsageError
from relabel.neighbours.base import Finder, Search
from relabel.runtime import Runtime
from relabel.sources.base import Pooling, Relevance, Rows, Scores, pool
from relabel.store.checked import save_index
from relabel.store.manifest import Manifest
from relabel.store.units import Advance
from relabel.store.work import Work

StoredType = Literal["float32", "float16"]
ComputeType = Literal["float32", "bfloat16"]
REFUSED: dict[Pooling, str] = {"refs": "a cosine compares two captions; a set has no vector of its own"}
INDEX = "index.faiss"
_GRAPH = re.compile("HNSW|NSG|NNDescent")
_CELLS = 1 << 24  # cosines held at once while a block is pooled: 64 MiB


def vector_table(rows: range, vectors: NDArray[np.floating], stored: StoredType) -> pa.Table:
    """Make one shard: row int32, vector fixed_size_list<float16|float32>[D]."""
    values = pa.array(np.ascontiguousarray(vectors, dtype=stored).reshape(-1))
    kind = pa.list_(pa.field("element", values.type), vectors.shape[1])  # as Parquet names it when it is read
    return pa.table(
        {
            "row": np.arange(rows.start, rows.stop, dtype=np.int32),
            "vector": pa.FixedSizeListArray.from_arrays(values, type=kind),
        }
    )


def read_vectors(folder: Path, manifest: Manifest) -> NDArray[np.float32]:
    """Read an encoding's (N, D) vectors in row order; one shard at a time, so that none is held twice."""
    sizes = [pq.read_metadata(folder / name).num_rows for name in manifest.parts]
    width = pq.read_schema(folder / manifest.parts[0]).field("vector").type.list_size
    vectors, start = np.empty((sum(sizes), width), np.float32), 0
    for name, size in zip(manifest.parts, sizes, strict=True):
        vectors[start : start + size] = vectors_of(pq.read_table(folder / name, columns=["vector"]))
        start += size
    return vectors


def write_index(work: Work, factory: str | None, advance: Advance = lambda _: None) -> None:
    """Write `index.faiss` over all shards in `work`: inner product, faiss row i = the encoding's i-th row.

    Vectors go in shard by shard, but all at once where an index is trained first or a graph is built, which depends on
    what comes together. The vector of a failed row goes in as zeros, which keep its place.

    Parameters
    ----------
    factory : str or None
        A faiss index factory string, as `faiss.index_factory` takes it; None writes none.
    advance : callable
        Told how many more vectors are in.

    Raises
    ------
    UsageError
        If faiss does not take the string.
    """
    if factory is None or work.done(INDEX):
        return
    import faiss

    parts = [work.folder / n for n in sorted(work.entries()) if n.startswith("part-")]
    index, threads = new_index(factory, _shard_vectors(parts[0]).shape[1]), faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)  # a graph (HNSW) built by several threads differs from run to run
    try:
        if not index.is_trained:
            index.train(_all_vectors(parts))
        for vectors in [_all_vectors(parts)] if _GRAPH.search(factory) else map(_shard_vectors, parts):
            index.add(vectors)
            advance(len(vectors))
    except RuntimeError as error:
        raise _refused(factory, error) from error
    finally:
        faiss.omp_set_num_threads(threads)
    work.file(INDEX, lambda p: save_index(p, index), rows=index.ntotal)


def new_index(factory: str, width: int) -> Any:
    """Make an empty faiss index for inner products; also a cheap look at a factory string before long work.

    Raises
    ------
    UsageError
        If faiss does not take the string.
    """
    import faiss

    try:
        return faiss.index_factory(width, factory, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        raise _refused(factory, error) from error


@dataclass(frozen=True, eq=False)
class VectorRelevance(Relevance):
    """Cosine of unit vectors, pooled over references. A zero vector (nothing known of the text) has relevance 0.

    Attributes
    ----------
    vectors : (len(rows), D) float32
        Unit or zero vectors of the encoded rows; NaN for failed ones.
    encode_text : callable
        Turns one new text into a (D,) unit or zero vector.
    """

    corpus: Corpus
    rows: range
    pooling: Pooling
    vectors: NDArray[np.float32]
    encode_text: Callable[[str], NDArray[np.float32]]
    failed: Rows = field(default_factory=lambda: np.empty(0, np.int32))

    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        """See Relevance.pairs."""
        from relabel.neighbours.rescoring import score_pairs

        sets = References(references.indptr, self._at(references.rows).astype(np.int32))
        return score_pairs(self.vectors, sets, self._at(captions), pooling or self.pooling)

    def block(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        """See Relevance.block."""
        right = self.vectors[self._at(captions)].T
        out = np.empty((len(references), len(captions)))
        step = max(1, _CELLS * len(references) // max(1, len(captions) * len(references.rows)))
        for a in range(0, len(references), step):
            some = references.take(np.arange(a, min(a + step, len(references))))
            cosine = self.vectors[self._at(some.rows)] @ right
            out[a : a + step] = pool(cosine, some.indptr, pooling or self.pooling)
        return out

    def query(self, text: str, captions: Rows) -> Scores:
        """See Relevance.query."""
        return np.asarray(self.vectors[self._at(captions)] @ self.encode_text(text), np.float64)

    def finder(self, search: Search, pooling: Pooling | None, runtime: Runtime) -> Finder:
        """See Relevance.finder."""
        from relabel.neighbours.vectors import VectorFinder

        return VectorFinder(self.vectors, self.rows.start, search, pooling or self.pooling, runtime)

    def _at(self, rows: Rows) -> NDArray[np.int64]:
        """Where the vectors of corpus rows lie; a row that is not encoded is an IndexError, never another's vector."""
        index = rows.astype(np.int64) - self.rows.start
        if len(index) and index.min() < 0:
            raise IndexError(f"row {rows.min()} is not among the encoded rows {self.rows.start} to {self.rows.stop}")
        return index


def _refused(factory: str, error: RuntimeError) -> UsageError:
    reason = re.split(r"\.(?:cpp|h):\d+: (?:Error: .* failed: )?", str(error))[-1]
    return UsageError(f"faiss refuses index {factory!r}: {reason}", todo="Use `Flat` for exact search.")


def vectors_of(table: pa.Table) -> NDArray[np.float32]:
    """Return the (N, D) float32 vectors of some shards."""
    column = table["vector"].combine_chunks()
    column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    flat = column.flatten().to_numpy(zero_copy_only=False)
    return np.asarray(flat, np.float32).reshape(len(column), -1)


def _shard_vectors(shard: Path) -> NDArray[np.float32]:
    """Read a shard's vectors, zeros for NaN."""
    vectors = vectors_of(pq.read_table(shard, columns=["vector"]))
    return vectors if np.isfinite(vectors.sum()) else np.nan_to_num(vectors, posinf=0.0, neginf=0.0)


def _all_vectors(shards: Sequence[Path]) -> NDArray[np.float32]:
    """Read the vectors of all shards into one array, holding one shard beside it."""
    sizes = [pq.read_metadata(shard).num_rows for shard in shards]
    stops = np.cumsum(sizes)
    first = _shard_vectors(shards[0])
    out = np.empty((int(stops[-1]), first.shape[1]), np.float32)
    for shard, size, stop in zip(shards, sizes, stops.tolist(), strict=True):
        out[stop - size : stop] = _shard_vectors(shard)
    return out
