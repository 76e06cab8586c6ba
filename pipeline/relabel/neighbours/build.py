"""How a table of neighbours is made: what queries share first, then one shard after another, in any order."""

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

from relabel.core.process_memory import held
from relabel.core.progress import Advance, ignore_progress
from relabel.core.runtime import Runtime
from relabel.corpus import Corpus
from relabel.neighbours.faiss_index import IndexFinder, Sample
from relabel.neighbours.incremental import OldLists, Plan, UpdatedFinder, old_table, plan_update
from relabel.neighbours.row_digests import KEYS, read_keys, shared, write_keys
from relabel.neighbours.schema import SCHEMA, blocks, table_of
from relabel.neighbours.spec import Question
from relabel.sources.finder import Finder, Search
from relabel.sources.gate_counts import collect_gate_counts
from relabel.sources.relevance import Relevance
from relabel.store.atomic import write_text
from relabel.store.fixed_parquet import write_plain
from relabel.store.manifest import Manifest, read_manifest
from relabel.store.tasks import Task, TaskGroup, Tasks
from relabel.store.workdir import Work, part_name

_UPDATE = "update.json"
_INNER = "update-"
_WRITING = 160 << 20  # bytes that a shard takes while it is written, of which the finder knows nothing


class NeighbourTasks(Tasks):
    """Work on one table of neighbours.

    Parameters
    ----------
    question : Question
    corpus : Corpus
    relevance : callable
        Opens the label's encoding; called once a worker, with its first task.
    encoding : Path
        Folder of that encoding.
    out : Path
        Where the table is to lie, and where an older one may.
    semantic : dict
        All but inputs that can change the table.
    runtime : Runtime
    """

    def __init__(
        self,
        question: Question,
        corpus: Corpus,
        relevance: Callable[[], Relevance],
        encoding: Path,
        out: Path,
        semantic: dict[str, Any],
        runtime: Runtime,
    ) -> None:
        self.question, self.corpus, self._open = question, corpus, relevance
        self.encoding, self.out, self.semantic, self.runtime = encoding, out, semantic, runtime
        self.index: str | None = semantic["index"]

    def start(self, work: Work) -> None:
        """Write the keys; see what an older table already says."""
        if self.index is not None:
            return
        work.file(KEYS, lambda path: write_keys(path, self.corpus, self.question.rows, self.encoding))
        found = self._plan(work)
        work.runtime["update"] = found
        write_text(work.folder / _UPDATE, json.dumps(found))

    def groups(self, work: Work) -> Iterator[TaskGroup]:
        """What queries share, unless all shards are there; then the shards."""
        tasks = [Task(name, len(queries)) for name, queries in self._shards.items()]
        if not all(work.done(task.file) for task in tasks):
            shared = self._finder(work).preliminary(work)
            if shared is not None:
                yield shared
        yield TaskGroup(f"neighbours ({self.question.label})", self.question.of, tasks)

    def make(self, work: Work, task: Task, advance: Advance) -> None:
        """Make a shard, or what queries share."""
        finder = self._finder(work)
        if task.file not in self._shards:
            finder.prepare(work, task, advance)
            return
        queries = self._shards[task.file]
        numbers, image = self.question.numbers(self.corpus), self.question.images(self.corpus)

        def tables() -> Iterator[pa.Table]:
            for block in blocks(queries, finder.search.width):
                rows, scores = finder.find(work, block, advance)
                row = np.arange(numbers[block.start], numbers[block.start] + len(block), dtype=np.int32)
                same = self.corpus.image[rows] == image[block.start : block.stop, None]
                yield table_of(row, rows, scores, same)

        work.file(task.file, lambda path: write_plain(path, tables(), SCHEMA), rows=len(queries))

    def finish(self, work: Work) -> None:
        """Note the facts; leave out what queries share."""
        collect_gate_counts(work)
        search = self.question.search(self.corpus)
        work.facts |= {"queries": len(search.queries), "candidates": len(search.candidates), "width": search.width}
        exact = self.index is None and "gate" not in self.semantic  # behind a gate, what the gate misses is missed
        work.facts |= {"exact": exact, "recall": self._recall(work, search)}
        work.facts["values"] = shared(self.encoding)
        work.excluded |= set(work.entries()) - {*self._shards, KEYS}

    @cached_property
    def relevance(self) -> Relevance:
        """The opened encoding."""
        return self._open()

    @cached_property
    def _shards(self) -> dict[str, range]:
        shards = self.question.shards(self.corpus)
        return {part_name(i, len(shards)): queries for i, queries in enumerate(shards)}

    def _plan(self, work: Work) -> dict[str, Any]:
        """Plan an update, and say in the progress what is kept, or why nothing is."""
        manifest = old_table(self.out, self.semantic, shared(self.encoding))
        if not isinstance(manifest, Manifest):
            return self._rebuild(manifest, quiet=not self.out.exists())
        inner = work.subfolder(f"{_INNER}{manifest.fingerprint[:12]}")
        search = self.question.search(self.corpus)
        plan = plan_update(self.out, manifest, self.question.of, search, read_keys(work.folder))
        if not isinstance(plan, Plan):
            return self._rebuild(plan)
        plan.save(inner)
        said = {"from": manifest.fingerprint, "kept": len(plan.kept), "captions added": len(plan.added)}
        self.runtime.progress.note(
            f"neighbours {self.question.label}: {len(plan.added):,} captions are new or changed; the neighbours of "
            f"{len(plan.kept):,} {self.question.of} are brought up to date, those of "
            f"{len(search.queries) - len(plan.kept):,} are searched anew"
        )
        return said

    def _recall(self, work: Work, search: Search) -> dict[str, Any] | None:
        """Hold a sample of what an index found against an exact search."""
        if self.index is None:
            return None
        sample, inner = Sample.of(search), work.subfolder(f"{_INNER}recall")
        finder = self.relevance.finder(sample.search, self.question.pooling, self.runtime)
        with self.runtime.progress.bar("recall", len(sample.numbers), self.question.of) as bar:
            group = finder.preliminary(inner)
            for task in group.tasks if group is not None else ():
                if not inner.done(task.file):
                    finder.prepare(inner, task, ignore_progress)
            exact = finder.find(inner, range(len(sample.numbers)), bar.advance)[1]
        found = [pq.read_table(work.folder / name, columns=["scores"])["scores"] for name in self._shards]
        scores = [pc.list_flatten(c).to_numpy().reshape(len(c), -1) for c in found]
        return sample.recall(exact, np.concatenate(scores)[sample.numbers])

    def _rebuild(self, why: str, quiet: bool = False) -> dict[str, Any]:
        if not quiet:
            self.runtime.progress.note(f"neighbours {self.question.label}: all are searched anew: {why}")
        return {"from": None, "why": why}

    def _finder(self, work: Work) -> Finder:
        """Open what finds, once a worker; it gets the memory that this process does not hold already."""
        if self._found is None:
            relevance = self.relevance
            left = self.runtime.memory - _WRITING - held()
            runtime = replace(self.runtime, memory=max(left, self.runtime.memory // 8))
            search, pooling = self.question.search(self.corpus), self.question.pooling
            if self.index is not None:
                self._found = IndexFinder(relevance, search, pooling, runtime, self.index)
                return self._found
            old = json.loads((work.folder / _UPDATE).read_text(encoding="utf-8"))["from"]
            if old is None:
                self._found = relevance.finder(search, pooling, runtime)
            else:
                name = f"{_INNER}{old[:12]}"
                lists = OldLists(self.out, read_manifest(self.out, "neighbours"))
                plan = Plan.load(work.folder / name)
                self._found = UpdatedFinder(relevance, search, pooling, runtime, plan, lists, name)
        return self._found

    _found: Finder | None = None
