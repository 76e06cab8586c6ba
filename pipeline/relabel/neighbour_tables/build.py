"""Construction of a neighbour table: a shared step, such as an index, then independent shards."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from relabel.core.runtime import SILENT, Runtime
from relabel.core.types import Pooling, Queries
from relabel.corpus import REFERENCES, Corpus, References
from relabel.neighbour_tables.faiss_index import SEED, IndexFinder, draw_sample, recall
from relabel.neighbour_tables.spec import SCHEMA, row_groups, table_of
from relabel.sources.finder import Finder, Search
from relabel.sources.relevance import Relevance
from relabel.store.files import write_plain
from relabel.store.workdir import Step, Steps, Task, Work, make_step, part_name, part_ranges

_RECALL = "recall"  # work folder of the exact search that measures the recall of an index
_WRITER_BYTES = 160 << 20  # memory for writing a shard, in addition to the finder's


@dataclass(frozen=True, eq=False)
class NeighbourWork:
    """Work on one neighbour table.

    `queries`: kind of queries, captions or images.
    `rows`: corpus rows of the queries and candidates.
    `k`: neighbours per query.
    `open_relevance`: opens the label's encoding; called once per worker, in its first task.
    `index`: faiss factory string of an approximate search.
    `gated`: True if a gate rejects pairs before they are scored.
    """

    label: str
    queries: Queries
    rows: range
    k: int
    pooling: Pooling
    corpus: Corpus
    open_relevance: Callable[[], Relevance]
    index: str | None
    gated: bool
    runtime: Runtime

    @property
    def numbers(self) -> range:
        """Values of the column `row`: rows of captions, or numbers of images."""
        return self.rows if self.queries == "captions" else self.corpus.images_of(self.rows)

    @cached_property
    def search(self) -> Search:
        """Queries and candidates."""
        candidates = np.arange(self.rows.start, self.rows.stop, dtype=np.int32)
        if self.queries == "captions":
            # A caption is not its own neighbour.
            return Search(References.single(candidates), candidates, candidates, self.k)
        # Images are not among the candidates, so nothing is excluded.
        nothing = np.full(len(self.numbers), -1, np.int32)
        return Search(self.corpus.references(self.numbers), nothing, candidates, self.k)

    def steps(self, work: Work) -> Steps:
        """Yield the shared step, unless all shards exist, and then the step of the shards."""
        # An image counts as its references. All of them are in one shard.
        size = self.runtime.rows_per_shard // (1 if self.queries == "captions" else REFERENCES)
        shards = part_ranges(range(len(self.numbers)), max(1, size))
        tasks = [
            Task(part_name(i, len(shards)), partial(self._write, work, queries), len(queries))
            for i, queries in enumerate(shards)
        ]
        step = Step(f"neighbours ({self.label})", self.queries, tasks, last=True)
        if step.missing(work) and (shared := self._finder.build(work)):
            yield shared
        yield step
        search, names = self.search, [task.file for task in tasks]
        work.metadata |= {"query_count": len(search.queries), "candidate_count": len(search.candidates)}
        # A search behind a gate can miss neighbours.
        work.metadata |= {"width": search.width, "exact": self.index is None and not self.gated}
        work.metadata["recall"] = self._recall(work, names)
        work.excluded |= set(work.names()) - set(names)

    def _write(self, work: Work, queries: range, path: Path) -> None:
        """Write one shard."""
        finder, advance, image = self._finder, self.runtime.progress.advance, self.corpus.image
        first = self.numbers.start

        def tables() -> Iterator[pa.Table]:
            # One row group at a time: the memory is then independent of k and the shard size.
            for group in row_groups(queries, finder.search.width):
                rows, scores = finder.find(work, group, advance)
                row = np.arange(first + group.start, first + group.stop, dtype=np.int32)
                query_image = image[row] if self.queries == "captions" else row
                yield table_of(row, rows, scores, image[rows] == query_image[:, None])

        write_plain(path, tables(), SCHEMA)

    def _recall(self, work: Work, shards: list[str]) -> dict[str, Any] | None:
        """Measure the recall of an approximate table with an exact search for a sample of its queries."""
        if self.index is None:
            return None
        search, subfolder = self.search, work.subfolder(_RECALL)
        numbers = draw_sample(len(search.queries))
        sample = Search(search.queries.take(numbers), search.exclude[numbers], search.candidates, search.k)
        finder = self.relevance.finder(sample, self.pooling, self.runtime)
        if step := finder.build(subfolder):
            make_step(step, subfolder, SILENT)
        with self.runtime.progress.bar("recall", len(numbers), self.queries) as bar:
            exact = finder.find(subfolder, range(len(numbers)), bar.advance)[1]
        columns = [pq.read_table(work.folder / name, columns=["scores"])["scores"] for name in shards]
        scores = [pc.list_flatten(column).to_numpy().reshape(len(column), -1) for column in columns]
        value = recall(exact, np.concatenate(scores)[numbers])
        return {"at": search.width, "value": value, "queries": len(numbers), "seed": SEED}

    @cached_property
    def relevance(self) -> Relevance:
        """The opened encoding."""
        return self.open_relevance()

    @cached_property
    def _finder(self) -> Finder:
        """The finder of this worker."""
        relevance = self.relevance
        # The finder gets the memory that the encoding and the writer leave, but at least an eighth of the limit.
        left = self.runtime.memory - _WRITER_BYTES - _release_memory()
        runtime = replace(self.runtime, memory=max(left, self.runtime.memory // 8))
        if self.index is not None:
            return IndexFinder(relevance, self.search, self.pooling, runtime, self.index)
        return relevance.finder(self.search, self.pooling, runtime)


def _release_memory() -> int:
    """Release unused memory of this process's allocators, and return the bytes that stay resident.

    Otherwise a stage after a large one has less memory: after encoding with a sentence encoder, Arrow and the C
    library keep 0.6 GiB that the next stage cannot use.
    """
    gc.collect()
    pa.default_memory_pool().release_unused()
    # Only in glibc.
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)
    return int(psutil.Process().memory_info().rss)
