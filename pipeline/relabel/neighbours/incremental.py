"""Incremental update of a neighbour table: lists that still hold are kept, and only the others are searched again.

A caption is kept if its id is still there with the same encoding. A query is kept if its captions and all of its old
neighbours are kept. Its neighbours are then the best of the old ones and of the new or changed captions. All other
queries are searched among all captions. The result equals a search of everything, to the byte.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.core.errors import RelabelError
from relabel.core.progress import Advance
from relabel.core.runtime import Runtime
from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import REFERENCES
from relabel.neighbours.params import Of
from relabel.neighbours.row_digests import KEYS, read_keys
from relabel.sources.finder import Finder, Search
from relabel.sources.relevance import Relevance
from relabel.store.manifest import Manifest, open_artefact
from relabel.store.safe_writers import save_array
from relabel.store.tasks import Task, TaskGroup
from relabel.store.workdir import SubfolderWork, Work

Numbers = NDArray[np.int64]


class OldLists:
    """A table of neighbours by row groups.

    Parameters
    ----------
    folder : Path
    manifest : Manifest
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest, self._last = folder, manifest, (-1, np.empty((0, 0), np.int32))

    @cached_property
    def groups(self) -> list[tuple[str, int, int, int]]:
        """File, group, first place and last place (exclusive) of every row group, in order."""
        found, start = [], 0
        for name in self.manifest.parts:
            with pq.ParquetFile(self.folder / name) as file:
                for group in range(file.num_row_groups):
                    rows = file.metadata.row_group(group).num_rows
                    found.append((name, group, start, start + rows))
                    start += rows
        return found

    def places(self, numbers: Numbers) -> Numbers:
        """Where in the table each value of column `row` is; all of them are there."""
        row = np.concatenate([pq.read_table(self.folder / n, columns=["row"])["row"] for n in self.manifest.parts])
        order = np.argsort(row, kind="stable")
        places: Numbers = order[np.searchsorted(row, numbers, sorter=order)]
        return places

    def neighbours(self, places: Numbers) -> Rows:
        """Old neighbours at some ascending places, (q, width) int32."""
        width = int(self.manifest.facts["width"])
        out = np.empty((len(places), width), np.int32)
        for i, (_, _, start, stop) in enumerate(self.groups):
            lo, hi = np.searchsorted(places, [start, stop]).tolist()
            if lo < hi:
                out[lo:hi] = self._group(i)[places[lo:hi] - start]
        return out

    def stands(self, places: Numbers, stays: NDArray[np.bool_], first: int) -> NDArray[np.bool_]:
        """Say of some ascending places whether all neighbours there stay; `stays` is by old row, less `first`."""
        out = np.empty(len(places), bool)
        for i, (_, _, start, stop) in enumerate(self.groups):
            lo, hi = np.searchsorted(places, [start, stop]).tolist()
            if lo < hi:
                out[lo:hi] = stays[self._group(i)[places[lo:hi] - start] - first].all(axis=1)
        return out

    def _group(self, i: int) -> Rows:
        """Neighbours of one row group; the last one that was read is kept."""
        if self._last[0] != i:
            name, group, start, stop = self.groups[i]
            with pq.ParquetFile(self.folder / name) as file:
                lists = file.read_row_group(group, columns=["neighbours"])["neighbours"]
            self._last = i, pc.list_flatten(lists).to_numpy().reshape(stop - start, -1)
        return self._last[1]


MOST = 0.5
"""Share of all comparisons up to which an update is worth while."""


@dataclass(frozen=True, eq=False)
class Plan:
    """What of an older table is kept.

    Attributes
    ----------
    kept : (Qk,) int64
        Numbers of queries whose old neighbours still stand, ascending.
    places : (Qk,) int64
        Where each of them is in the old table, ascending.
    moved : (R,) int32
        Row of each old caption now; -1 if it is gone or changed. By old row, less `first`.
    first : int
    added : (A,) int32
        Candidates that are new or changed, ascending.
    """

    kept: Numbers
    places: Numbers
    moved: Rows
    first: int
    added: Rows

    def save(self, work: Work) -> None:
        """Write the plan for all workers."""
        for name, values in vars(self).items():
            work.file(f"{name}.npy", lambda path, v=values: _save(path, np.asarray(v)))  # type: ignore[misc]

    @classmethod
    def load(cls, folder: Path) -> Plan:
        """Read a plan that `save` wrote."""
        kept, places, moved, first, added = (np.load(folder / f"{name}.npy") for name in cls.__dataclass_fields__)
        return cls(kept, places, moved, int(first), added)


def old_table(folder: Path, semantic: dict[str, Any], values: str) -> Manifest | str:
    """Read the manifest of the table that is to be replaced, or say why nothing of it can be kept.

    Parameters
    ----------
    folder : Path
    semantic : dict
        Of the new table; where its rows are and how they are cut may differ.
    values : str
        See `row_digests.shared`.
    """
    try:
        manifest = open_artefact(folder, "neighbours")
    except RelabelError:
        return "there is no older table"
    for name, value in semantic.items():
        if name not in ("rows", "rows_per_shard") and manifest.semantic.get(name) != value:
            return f"{name} was {manifest.semantic.get(name)}"
    if manifest.facts.get("values") != values or KEYS not in manifest.files:
        return "what all values share has changed (parameters, model, document frequencies)"
    return manifest


def plan_update(folder: Path, manifest: Manifest, of: Of, search: Search, keys: pa.Table) -> Plan | str:
    """Decide what of an older table is kept, or say why nothing is.

    Parameters
    ----------
    folder, manifest
        The older table.
    of : "captions" or "images"
    search : Search
        What is looked for now.
    keys : pyarrow.Table
        Keys of the candidates now, in row order.
    """
    old = read_keys(folder)
    was = _was(old, keys)
    moved = np.full(len(old), -1, np.int32)
    moved[was[was >= 0]] = search.candidates[was >= 0]
    stay = moved[moved >= 0]
    if (np.diff(stay) <= 0).any():
        return "captions stand in another order, so that ties do"
    first, lists = int(old["row"][0].as_py()), OldLists(folder, manifest)
    if not np.array_equal(old["row"].to_numpy(), first + np.arange(len(old))):
        return "its rows have gaps"
    origin = np.full(int(search.candidates[-1]) + 1, -1, np.int64)
    origin[search.candidates] = was
    kept, numbers = (_kept_captions if of == "captions" else _kept_images)(search, origin, old)
    places = lists.places(numbers)
    if len(stay) < len(old):
        stands = lists.stands(places, moved >= 0, first)
        kept, places = kept[stands], places[stands]
    added = search.candidates[was < 0]
    every, rest = len(search.queries), len(search.queries) - len(kept)
    cost = len(kept) * len(added) + rest * len(search.candidates)
    if cost > MOST * every * len(search.candidates):
        return f"{len(added):,} of {len(search.candidates):,} captions are new or changed, which is too many"
    return Plan(kept, places, moved, first, added)


def _was(old: pa.Table, new: pa.Table) -> Numbers:
    """Where each caption stands in the old keys; -1 if it is not there, or its encoding is another."""
    at = pc.index_in(new["caption_id"], value_set=old["caption_id"].combine_chunks())
    was = np.asarray(pc.fill_null(at, -1).to_numpy(), np.int64)
    there = was >= 0
    same = pc.equal(new["digest"].filter(pa.array(there)), old["digest"].take(pa.array(was[there])))
    was[np.flatnonzero(there)[~same.to_numpy()]] = -1
    return was


def _kept_captions(search: Search, origin: Numbers, old: pa.Table) -> tuple[Numbers, Numbers]:
    """Numbers of queries whose caption stays, and what column `row` of the old table calls it."""
    was = origin[search.queries.rows]
    kept = np.flatnonzero(was >= 0)
    return kept, old["row"].to_numpy()[was[kept]].astype(np.int64)


def _kept_images(search: Search, origin: Numbers, old: pa.Table) -> tuple[Numbers, Numbers]:
    """Numbers of queries whose references are, one for one, those of an old image; and that image's old number."""
    sets, image = search.queries, old["image"].to_numpy()
    starts, sizes = sets.indptr[:-1], np.diff(sets.indptr)
    was = origin[sets.rows]
    _, first, count = np.unique(image, return_index=True, return_counts=True)
    begins, counts = (np.repeat(v, count) for v in (first, count))  # of each old caption's image
    expected = np.repeat(np.where(was[starts] >= 0, begins[was[starts]], 0), sizes)
    place = np.arange(len(was)) - np.repeat(starts, sizes)
    same = np.logical_and.reduceat((was >= 0) & (was == expected + place), starts)
    kept = np.flatnonzero(same & (sizes == np.minimum(REFERENCES, counts[was[starts]])))
    return kept, image[was[starts[kept]]].astype(np.int64)


def _save(path: Path, values: NDArray[Any]) -> None:
    save_array(path, values)


_PAIRS = 1 << 17  # scored at once


class UpdatedFinder(Finder):
    """Neighbours after a plan. See Finder.

    Parameters
    ----------
    relevance : Relevance
    search : Search
    pooling : Pooling
    runtime : Runtime
    plan : Plan
    old : OldLists
    name : str
        Inner folder for what its own finders share.
    """

    def __init__(
        self,
        relevance: Relevance,
        search: Search,
        pooling: Pooling,
        runtime: Runtime,
        plan: Plan,
        old: OldLists,
        name: str,
    ) -> None:
        self.relevance, self.search, self.pooling, self.runtime = relevance, search, pooling, runtime
        self.plan, self.old, self.name = plan, old, name

    @cached_property
    def rest(self) -> Numbers:
        """Numbers of the queries that are searched anew, ascending."""
        return np.setdiff1d(np.arange(len(self.search.queries)), self.plan.kept)

    @cached_property
    def finders(self) -> dict[str, Finder]:
        """Finder of the kept queries among what was added, and of the rest among all; none where nothing is asked."""
        plan, search, found = self.plan, self.search, {}
        if len(plan.kept) and len(plan.added):
            nothing = np.full(len(plan.kept), -1, np.int32)
            found["added"] = Search(search.queries.take(plan.kept), nothing, plan.added, search.k)
        if len(self.rest):
            itself = search.exclude[self.rest]
            found["rest"] = Search(search.queries.take(self.rest), itself, search.candidates, search.k)
        runtime = replace(self.runtime, memory=self.runtime.memory // max(1, len(found)))
        return {n: self.relevance.finder(asked, self.pooling, runtime) for n, asked in found.items()}

    def preliminary(self, work: Work) -> TaskGroup | None:
        """See Finder.preliminary: what both finders need, in one group."""
        groups = {n: finder.preliminary(self._inner(work, n)) for n, finder in self.finders.items()}
        found = {n: group for n, group in groups.items() if group is not None}
        if not found:
            return None
        tasks = [Task(f"{self.name}/{n}/{u.file}", u.size) for n, group in found.items() for u in group.tasks]
        any_of = next(iter(found.values()))
        return TaskGroup(any_of.title, any_of.measure, tasks)

    def prepare(self, work: Work, task: Task, advance: Advance) -> None:
        """See Finder.prepare."""
        which, file = task.file.removeprefix(f"{self.name}/").split("/", 1)
        self.finders[which].prepare(self._inner(work, which), Task(file, task.size), advance)

    def find(self, work: Work, queries: range, advance: Advance) -> tuple[Rows, Scores]:
        """See Finder.find."""
        shape = (len(queries), self.search.width)
        rows, scores = np.empty(shape, np.int32), np.empty(shape)
        for which, numbers in (("added", self.plan.kept), ("rest", self.rest)):
            lo, hi = np.searchsorted(numbers, [queries.start, queries.stop]).tolist()
            if lo < hi:
                find = self._merged if which == "added" else self._anew
                at = numbers[lo:hi] - queries.start
                rows[at], scores[at] = find(work, range(lo, hi), advance)
        return rows, scores

    def _anew(self, work: Work, some: range, advance: Advance) -> tuple[Rows, Scores]:
        return self.finders["rest"].find(self._inner(work, "rest"), some, advance)

    def _merged(self, work: Work, some: range, advance: Advance) -> tuple[Rows, Scores]:
        """Merge the old neighbours of some kept queries with the best of what was added."""
        part = slice(some.start, some.stop)
        rows = self.plan.moved[self.old.neighbours(self.plan.places[part]) - self.plan.first]
        scores = self._scores(self.plan.kept[part], rows)
        if "added" in self.finders:
            more = self.finders["added"].find(self._inner(work, "added"), some, advance)
            rows, scores = np.hstack([rows, more[0]]), np.hstack([scores, more[1]])
            order = np.lexsort((rows, -scores))[:, : self.search.width]
            rows, scores = np.take_along_axis(rows, order, 1), np.take_along_axis(scores, order, 1)
        else:
            advance(len(some))
        return rows, scores

    def _scores(self, numbers: Numbers, rows: Rows) -> Scores:
        """Score the old neighbours again: the table holds them rounded, and roundings can tie."""
        scores, step = np.empty(rows.shape), max(1, _PAIRS // max(1, rows.shape[1]))
        for a in range(0, len(rows), step):
            asked = self.search.queries.take(np.repeat(numbers[a : a + step], rows.shape[1]))
            found = self.relevance.pairs(asked, rows[a : a + step].reshape(-1), self.pooling)
            scores[a : a + step] = found.reshape(-1, rows.shape[1])
        return scores

    def _inner(self, work: Work, which: str) -> SubfolderWork:
        return work.subfolder(f"{self.name}/{which}")
