"""Construction of a table of neighbours: work that all queries share, then one shard after another, in any order."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.core.runtime import Advance, Runtime, ignore_progress, resident_bytes
from relabel.corpus import Corpus
from relabel.neighbours.faiss_index import IndexFinder, RecallSample
from relabel.neighbours.incremental import (
    IncrementalFinder,
    PreviousTable,
    UpdatePlan,
    find_previous_table,
    plan_update,
)
from relabel.neighbours.row_digests import KEYS, read_keys, shared_digest, write_keys
from relabel.neighbours.spec import SCHEMA, NeighbourSpec, row_groups, table_of
from relabel.sources.finder import Finder, Search
from relabel.sources.gate_counts import collect_gate_counts
from relabel.sources.relevance import Relevance
from relabel.store.files import write_plain, write_text
from relabel.store.manifest import Manifest, read_manifest
from relabel.store.tasks import Blocks, Task, TaskGroup, Tasks
from relabel.store.workdir import Work, part_name

_UPDATE = "update.json"
_SUBFOLDER = "update-"
_FIRST = 64  # queries of the first block of a shard
_WRITER_BYTES = 160 << 20  # memory of a shard while it is written, in addition to the finder's


class NeighbourTasks(Tasks):
    """Work on one table of neighbours.

    `relevance`: opens the label's encoding; called once per worker, with its first task. `encoding`: folder of that
    encoding. `out`: folder of the table, which may hold an earlier one. `semantic`: parameters that can change the
    table, apart from its inputs.
    """

    def __init__(
        self,
        spec: NeighbourSpec,
        corpus: Corpus,
        relevance: Callable[[], Relevance],
        encoding: Path,
        out: Path,
        semantic: dict[str, Any],
        runtime: Runtime,
    ) -> None:
        self.spec, self.corpus, self._open = spec, corpus, relevance
        self.encoding, self.out, self.semantic, self.runtime = encoding, out, semantic, runtime
        self.index: str | None = semantic["index"]
        self._opened_finder: Finder | None = None

    def start(self, work: Work) -> None:
        """Write the keys of the candidates; plan an update of the earlier table, if any."""
        # An approximate table is never updated: other candidates would give another index.
        if self.index is not None:
            return
        work.file(KEYS, lambda path: write_keys(path, self.corpus, self.spec.rows, self.encoding))
        update = self._plan_update(work)
        work.runtime["update"] = update
        write_text(work.folder / _UPDATE, json.dumps(update))

    def groups(self, work: Work) -> Iterator[TaskGroup]:
        """Yield the work that queries share, unless all shards are done, and then the shards."""
        tasks = [Task(name, len(queries)) for name, queries in self._shards.items()]
        if not all(work.done(task.file) for task in tasks):
            shared = self._finder(work).preliminary(work)
            if shared is not None:
                yield shared
        yield TaskGroup(f"neighbours ({self.spec.label})", self.spec.of, tasks)

    def make(self, work: Work, task: Task, advance: Advance) -> None:
        """Write one shard, or one file of the work that queries share."""
        finder = self._finder(work)
        if task.file not in self._shards:
            finder.prepare(work, task, advance)
            return
        queries = self._shards[task.file]
        numbers, image = self.spec.query_numbers(self.corpus), self.spec.query_images(self.corpus)
        blocks = Blocks(work, task.file, first=_FIRST if finder.has_cheap_calls() else len(queries))

        def find(part: NDArray[np.int64]) -> pa.Table:
            group = range(int(part[0]), int(part[-1]) + 1)
            rows, scores = finder.find(work, group, advance)
            row = np.arange(numbers[group.start], numbers[group.start] + len(group), dtype=np.int32)
            same = self.corpus.image[rows] == image[group.start : group.stop, None]
            return table_of(row, rows, scores, same)

        def tables() -> Iterator[pa.Table]:
            # One row group at a time, so that memory depends neither on k nor on the shard size.
            for group in row_groups(queries, finder.search.width):
                more = group.stop < queries.stop
                yield blocks.make(np.arange(group.start, group.stop), find, advance, more)

        work.file(task.file, lambda path: write_plain(path, tables(), SCHEMA), rows=len(queries))
        blocks.drop()

    def finish(self, work: Work) -> None:
        """Record the facts of the table; exclude the files that only the search needed."""
        collect_gate_counts(work)
        search = self.spec.search(self.corpus)
        work.facts |= {"queries": len(search.queries), "candidates": len(search.candidates), "width": search.width}
        # A gate rejects pairs before they are scored, so a gated search can miss neighbours.
        exact = self.index is None and "gate" not in self.semantic
        work.facts |= {"exact": exact, "recall": self._recall(work, search)}
        work.facts["values"] = shared_digest(self.encoding)
        work.excluded |= set(work.entries()) - {*self._shards, KEYS}

    @cached_property
    def relevance(self) -> Relevance:
        """The opened encoding."""
        return self._open()

    @cached_property
    def _shards(self) -> dict[str, range]:
        shards = self.spec.shards(self.corpus)
        return {part_name(i, len(shards)): queries for i, queries in enumerate(shards)}

    def _plan_update(self, work: Work) -> dict[str, Any]:
        """Plan an update and log it; return its entry of the manifest."""
        manifest = find_previous_table(self.out, self.semantic, shared_digest(self.encoding))
        if not isinstance(manifest, Manifest):
            return self._rebuild(manifest, quiet=not self.out.exists())
        subfolder = work.subfolder(f"{_SUBFOLDER}{manifest.fingerprint[:12]}")
        search = self.spec.search(self.corpus)
        plan = plan_update(self.out, manifest, self.spec.of, search, read_keys(work.folder))
        if not isinstance(plan, UpdatePlan):
            return self._rebuild(plan)
        plan.save(subfolder)
        kept, added = len(plan.kept), len(plan.added)
        self.runtime.progress.note(
            f"neighbours {self.spec.label}: {added:,} captions are new or changed; updating the neighbours of "
            f"{kept:,} {self.spec.of}, searching those of {len(search.queries) - kept:,}"
        )
        return {"from": manifest.fingerprint, "kept": kept, "captions added": added}

    def _recall(self, work: Work, search: Search) -> dict[str, Any] | None:
        """Measure the recall of an approximate table by an exact search for a sample of its queries."""
        if self.index is None:
            return None
        sample, subfolder = RecallSample.of(search), work.subfolder(f"{_SUBFOLDER}recall")
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

    def _rebuild(self, why: str, quiet: bool = False) -> dict[str, Any]:
        if not quiet:
            self.runtime.progress.note(f"neighbours {self.spec.label}: searching all {self.spec.of}: {why}")
        return {"from": None, "why": why}

    def _finder(self, work: Work) -> Finder:
        """Return this worker's finder."""
        # Not a cached property: the finder depends on `work`, which a worker learns with its first task.
        if self._opened_finder is None:
            self._opened_finder = self._open_finder(work)
        return self._opened_finder

    def _open_finder(self, work: Work) -> Finder:
        relevance = self.relevance
        # The finder gets the memory that the encoding and the writer leave, but never less than an eighth.
        left = self.runtime.memory - _WRITER_BYTES - resident_bytes()
        runtime = replace(self.runtime, memory=max(left, self.runtime.memory // 8))
        search, pooling = self.spec.search(self.corpus), self.spec.pooling
        if self.index is not None:
            return IndexFinder(relevance, search, pooling, runtime, self.index)
        previous = json.loads((work.folder / _UPDATE).read_text(encoding="utf-8"))["from"]
        if previous is None:
            return relevance.finder(search, pooling, runtime)
        name = f"{_SUBFOLDER}{previous[:12]}"
        table = PreviousTable(self.out, read_manifest(self.out, "neighbours"))
        plan = UpdatePlan.load(work.folder / name)
        return IncrementalFinder(relevance, search, pooling, runtime, plan, table, name)
