"""Construction of a table of neighbours: work that all queries share, then one shard after another, in any order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from relabel.core.runtime import Advance, Runtime, ignore_progress, resident_bytes
from relabel.corpus import Corpus
from relabel.neighbours.faiss_index import IndexFinder, RecallSample
from relabel.neighbours.spec import SCHEMA, NeighbourSpec, row_groups, table_of
from relabel.sources.finder import Finder, Search
from relabel.sources.relevance import Relevance
from relabel.store.files import write_plain
from relabel.store.tasks import Task, TaskGroup, Tasks
from relabel.store.workdir import Work, part_name

_RECALL = "recall"  # folder of the work on the exact search that measures the recall of an index
_WRITER_BYTES = 160 << 20  # memory of a shard while it is written, in addition to the finder's


class NeighbourTasks(Tasks):
    """Work on one table of neighbours.

    `relevance`: opens the label's encoding; called once per worker, with its first task. `index`: faiss factory string
    of an approximate search. `exact`: False if a gate rejects pairs before they are scored.
    """

    def __init__(
        self,
        spec: NeighbourSpec,
        corpus: Corpus,
        relevance: Callable[[], Relevance],
        index: str | None,
        exact: bool,
        runtime: Runtime,
    ) -> None:
        self.spec, self.corpus, self._open = spec, corpus, relevance
        self.index, self.exact, self.runtime = index, exact and index is None, runtime

    def groups(self, work: Work) -> Iterator[TaskGroup]:
        """Yield the work that queries share, unless all shards are done, and then the shards."""
        tasks = [Task(name, len(queries)) for name, queries in self._shards.items()]
        if not all(work.done(task.file) for task in tasks):
            shared = self._finder.preliminary(work)
            if shared is not None:
                yield shared
        yield TaskGroup(f"neighbours ({self.spec.label})", self.spec.of, tasks)

    def make(self, work: Work, task: Task, advance: Advance) -> None:
        """Write one shard, or one file of the work that queries share."""
        finder = self._finder
        if task.file not in self._shards:
            finder.prepare(work, task, advance)
            return
        queries = self._shards[task.file]
        numbers, image = self.spec.query_numbers(self.corpus), self.spec.query_images(self.corpus)

        def tables() -> Iterator[pa.Table]:
            # One row group at a time, so that memory depends neither on k nor on the shard size.
            for group in row_groups(queries, finder.search.width):
                rows, scores = finder.find(work, group, advance)
                row = np.arange(numbers[group.start], numbers[group.start] + len(group), dtype=np.int32)
                yield table_of(row, rows, scores, self.corpus.image[rows] == image[group.start : group.stop, None])

        work.file(task.file, lambda path: write_plain(path, tables(), SCHEMA))

    def finish(self, work: Work) -> None:
        """Record the facts of the table; exclude the files that only the search needed."""
        search = self.spec.search(self.corpus)
        work.facts |= {"queries": len(search.queries), "candidates": len(search.candidates), "width": search.width}
        work.facts |= {"exact": self.exact, "recall": self._recall(work, search)}
        work.excluded |= set(work.names()) - set(self._shards)

    @cached_property
    def relevance(self) -> Relevance:
        """The opened encoding."""
        return self._open()

    @cached_property
    def _shards(self) -> dict[str, range]:
        shards = self.spec.shards(self.corpus)
        return {part_name(i, len(shards)): queries for i, queries in enumerate(shards)}

    def _recall(self, work: Work, search: Search) -> dict[str, Any] | None:
        """Measure the recall of an approximate table by an exact search for a sample of its queries."""
        if self.index is None:
            return None
        sample, subfolder = RecallSample.of(search), work.subfolder(_RECALL)
        finder = self.relevance.finder(sample.search, self.spec.pooling, self.runtime)
        with self.runtime.progress.bar("recall", len(sample.numbers), self.spec.of) as bar:
            group = finder.preliminary(subfolder)
            for task in group.tasks if group is not None else ():
                if not subfolder.done(task.file):
                    finder.prepare(subfolder, task, ignore_progress)
            exact = finder.find(subfolder, range(len(sample.numbers)), bar.advance)[1]
        columns = [pq.read_table(work.folder / name, columns=["scores"])["scores"] for name in self._shards]
        scores = [pc.list_flatten(column).to_numpy().reshape(len(column), -1) for column in columns]
        return sample.recall(exact, np.concatenate(scores)[sample.numbers])

    @cached_property
    def _finder(self) -> Finder:
        """The finder of this worker."""
        relevance = self.relevance
        # The finder gets the memory that the encoding and the writer leave, but never less than an eighth.
        left = self.runtime.memory - _WRITER_BYTES - resident_bytes()
        runtime = replace(self.runtime, memory=max(left, self.runtime.memory // 8))
        search, pooling = self.spec.search(self.corpus), self.spec.pooling
        if self.index is not None:
            return IndexFinder(relevance, search, pooling, runtime, self.index)
        return relevance.finder(search, pooling, runtime)
