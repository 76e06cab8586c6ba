"""What the vectors sources share: shards of unit vectors, a FAISS index beside them, and cosine relevance."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from typing_extensions import override

from relabel.core.errors import CheckError, UsageError
from relabel.core.progress import Advance, ignore_progress
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import Corpus, References
from relabel.sources.base import P, Source, SourceParams, SourceSpec
from relabel.sources.finder import Finder, Search
from relabel.sources.relevance import LookupArrays, Relevance, pool, positions_in
from relabel.sources.shards import ShardTasks, read_failed_rows
from relabel.store.arrays import write_array, write_pieces
from relabel.store.manifest import Manifest
from relabel.store.safe_writers import save_index
from relabel.store.tasks import Task, TaskGroup
from relabel.store.workdir import Work

StoredType = Literal["float32", "float16"]
ComputeType = Literal["float32", "bfloat16"]
REFUSED_POOLINGS: dict[Pooling, str] = {"refs": "a cosine compares two captions; a set has no vector of its own"}
INDEX = "index.faiss"
_BAD_INDEX = re.compile(
    r"(?<![0-9])0+(?![0-9])|[0-9]{8}|(?:HNSW|NSG|NNDescent)(?:[01]|[0-9]{4,})(?![0-9])|\0", re.ASCII
)
_SHOWN = 100  # characters of a factory string in a message
_GRAPH = re.compile("HNSW|NSG|NNDescent")
_STORED = {"float32": "<f4", "float16": "<f2"}
_ROUNDED_CELLS = 1 << 22  # cosines held at once while a block is rounded: 32 MiB
_CELLS = 1 << 24  # cosines held at once while a block is pooled: 64 MiB


def make_vector_table(rows: range, vectors: NDArray[np.floating], stored: StoredType) -> pa.Table:
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
        vectors[start : start + size] = vectors_from_table(pq.read_table(folder / name, columns=["vector"]))
        start += size
    return vectors


def write_index(work: Work, factory: str | None, advance: Advance = ignore_progress) -> None:
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
    index, threads = make_index(factory, _shard_vectors(parts[0]).shape[1]), faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)  # a graph (HNSW) built by several threads differs from run to run
    try:
        with index_errors(factory):
            if not index.is_trained:
                index.train(_all_vectors(parts))
            for vectors in [_all_vectors(parts)] if _GRAPH.search(factory) else map(_shard_vectors, parts):
                index.add(vectors)
                advance(len(vectors))
    finally:
        faiss.omp_set_num_threads(threads)
    work.file(INDEX, lambda p: save_index(p, index), rows=index.ntotal)


def make_index(factory: str, width: int) -> Any:
    """Make an empty faiss index for inner products; also a cheap look at a factory string before long work.

    Raises
    ------
    UsageError
        If faiss does not take the string.
    """
    import faiss

    if _BAD_INDEX.search(factory):  # faiss aborts the process on a graph of no links
        todo = "Numbers are from 1 to 9,999,999; a graph has 2 to 999 links."
        raise UsageError(f"faiss cannot build index {factory[:_SHOWN]!r}", todo=todo)
    with index_errors(factory):
        return faiss.index_factory(width, factory, faiss.METRIC_INNER_PRODUCT)


@contextmanager
def index_errors(factory: str) -> Iterator[None]:
    """Turn what faiss raises while it makes, trains or fills an index into a UsageError naming the factory string."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        reason = re.split(r"\.(?:cpp|h):\d+: (?:Error: .* failed: )?", str(error))[-1]
        what = f"faiss refuses index {factory[:_SHOWN]!r}: {reason}"
        raise UsageError(what, todo="Use `Flat` for exact search.") from error


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

    @override
    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        from relabel.topk.exact_scores import score_pairs

        sets = References(references.indptr, self.positions(references.rows).astype(np.int32))
        return score_pairs(self.vectors, sets, self.positions(captions), pooling or self.pooling)

    @override
    def block(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        right = self.vectors[self.positions(captions)].T
        out = np.empty((len(references), len(captions)))
        step = max(1, _CELLS * len(references) // max(1, len(captions) * len(references.rows)))
        for a in range(0, len(references), step):
            some = references.take(np.arange(a, min(a + step, len(references))))
            cosine = self.vectors[self.positions(some.rows)] @ right
            out[a : a + step] = pool(cosine, some.indptr, pooling or self.pooling)
        return out

    @override
    def rounded_block(
        self, references: References, captions: Rows, pooling: Pooling | None = None
    ) -> NDArray[np.float32]:
        # A BLAS adds in an order of its own, so float64 sums differ in their last bits. Only a sum next to the middle
        # of two float32 numbers can come to be rounded otherwise; such a pair is scored by itself.
        how, count = pooling or self.pooling, len(references)
        right = self.vectors[self.positions(captions)].astype(np.float64).T
        slack = 4 * len(right) * 2.0**-53  # twice what two orders of summing products of unit vectors can differ by
        out = np.empty((count, len(captions)), np.float32)
        step = max(1, _ROUNDED_CELLS * count // max(1, len(references.rows) * len(captions)))
        for a in range(0, count, step):
            sets = references.take(np.arange(a, min(a + step, count)))
            cosines = self.vectors[self.positions(sets.rows)].astype(np.float64) @ right
            scores: Scores = pool(cosines, sets.indptr, how)
            rounded = out[a : a + step]
            rounded[:] = scores
            unsure = (scores - slack).astype(np.float32) != (scores + slack).astype(np.float32)
            for i, j in np.argwhere(unsure & ~np.isnan(scores)).tolist():
                one = sets.take(np.array([i]))
                rounded[i, j] = VectorRelevance.pairs(self, one, captions[j : j + 1], how)[0]
        return out

    @override
    def block_scorer(self, captions: Rows) -> Callable[[References, Pooling], Scores]:
        def score(references: References, pooling: Pooling) -> Scores:
            if pooling != "paired":
                return self.block(references, captions, pooling)
            from relabel.sources.dots import all_dots

            # A matrix product would not give the bits of `pairs`.
            left = self.positions(references.rows[references.indptr[:-1]])
            out = np.empty((len(left), len(captions)))
            all_dots(np.ascontiguousarray(self.vectors), left, self.positions(captions), out)
            return out

        return score

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
    """A source whose encoding is one vector per caption."""

    @override
    def index_blocker(self) -> str | None:
        return None

    @override
    def lookup_fingerprint_params(self, dtype: str) -> dict[str, Any]:
        return {"dtype": dtype}

    @override
    def write_lookup(
        self, folder: Path, manifest: Manifest, opened: Callable[[], Relevance], semantic: Mapping[str, Any], work: Work
    ) -> LookupArrays:
        # The shards are copied one after another: the encoding is never in memory as a whole.
        dtype = str(semantic["dtype"])
        write_vectors(folder, manifest, _STORED[dtype], work)
        return LookupArrays("vectors", dtype, read_failed_rows(folder, manifest))


def make_vector_spec(name: str, params: type[SourceParams], version: int) -> SourceSpec:
    """Return the properties that all sources of vectors share."""
    return SourceSpec(
        name=name,
        kind="vectors",
        bounds=(-1.0, 1.0),
        symmetric=True,
        version=version,
        params=params,
        refused_poolings=REFUSED_POOLINGS,
        sample_sizes=(200, 400),
    )


class VectorTasks(ShardTasks):
    """Work on shards of unit vectors (see `make_vector_table`).

    Parameters
    ----------
    corpus, rows, rows_per_shard
        See ShardTasks.
    index : str or None
        A faiss index factory string; None for no index.
    """

    derived_files: ClassVar[tuple[str, ...]] = (INDEX,)
    plain: ClassVar[bool] = True

    def __init__(self, corpus: Corpus, rows: range, rows_per_shard: int, index: str | None) -> None:
        super().__init__(corpus, rows, rows_per_shard)
        self.index = index

    def after_shards(self, work: Work) -> Iterator[TaskGroup]:
        """Index all vectors."""
        if self.index is not None:
            yield TaskGroup(f"index ({self.index})", "captions", [Task(INDEX, len(self.rows))])

    def make_other(self, work: Work, task: Task, advance: Advance) -> None:
        """Make the index."""
        if task.file != INDEX:
            return super().make_other(work, task, advance)
        return write_index(work, self.index, advance)


def write_vectors(folder: Path, manifest: Manifest, dtype: str, work: Work) -> None:
    """Write the `vectors` array.

    Parameters
    ----------
    folder, manifest
        Of the encoding; the vectors of its failed rows are NaN, there and here.
    dtype : "<f4" or "<f2"
    work : Work

    Raises
    ------
    CheckError
        If a shard does not hold the rows that come next.
    """
    rows = range(*manifest.facts["rows"])
    width = pq.read_schema(folder / manifest.parts[0]).field("vector").type.list_size
    write_pieces(work, "vectors", dtype, (len(rows), width), _vectors_in_order(folder, manifest, rows.start))


def _vectors_in_order(folder: Path, manifest: Manifest, row: int) -> Iterator[NDArray[np.float32]]:
    for name in manifest.parts:
        table = pq.read_table(folder / name, columns=["row", "vector"])
        if not np.array_equal(table["row"].to_numpy(), np.arange(row, row + table.num_rows)):
            raise CheckError(f"expected rows from {row} on, in order", where=str(folder / name), todo="Encode again.")
        yield vectors_from_table(table)
        row += table.num_rows


def vectors_from_table(table: pa.Table) -> NDArray[np.float32]:
    """Return the (N, D) float32 vectors of some shards."""
    column = table["vector"].combine_chunks()
    column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    flat = column.flatten().to_numpy(zero_copy_only=False)
    return np.asarray(flat, np.float32).reshape(len(column), -1)


def _shard_vectors(shard: Path) -> NDArray[np.float32]:
    """Read a shard's vectors, zeros for NaN."""
    vectors = vectors_from_table(pq.read_table(shard, columns=["vector"]))
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
