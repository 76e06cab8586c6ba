"""Incremental update of a table of neighbours: lists that are still valid are kept, and only the others are searched.

A caption is kept if its id is still in the corpus with the same encoding. A query is kept if its captions and all of
its previous neighbours are kept. Its neighbours are then the best of the previous ones and of the new or changed
captions. All other queries are searched among all captions. The result equals a complete search, to the byte.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from relabel.core.errors import RelabelError
from relabel.core.runtime import Advance, Runtime
from relabel.core.types import Of, Pooling, Rows, Scores
from relabel.corpus import REFERENCES
from relabel.neighbours.row_digests import KEYS, read_keys
from relabel.sources.finder import Finder, Search
from relabel.sources.relevance import Relevance
from relabel.store.arrays import save_array
from relabel.store.manifest import Manifest, open_artefact
from relabel.store.tasks import Task, TaskGroup
from relabel.store.workdir import SubfolderWork, Work

I8 = NDArray[np.int64]

MAX_COST = 0.5
"""Largest share of all comparisons for which an update is worthwhile."""
_PAIRS = 1 << 17  # pairs scored per call


class PreviousTable:
    """A table of neighbours from an earlier run, read by row groups."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest
        self._cached: tuple[int, Rows] = (-1, np.empty((0, 0), np.int32))

    @cached_property
    def groups(self) -> list[tuple[str, int, int, int]]:
        """File, row group, first position and last position (exclusive) of every row group, in order."""
        groups, start = [], 0
        for name in self.manifest.parts:
            with pq.ParquetFile(self.folder / name) as file:
                for group in range(file.num_row_groups):
                    rows = file.metadata.row_group(group).num_rows
                    groups.append((name, group, start, start + rows))
                    start += rows
        return groups

    def positions(self, numbers: I8) -> I8:
        """Return the positions of values of the column `row`, all of which are in the table."""
        row = np.concatenate([pq.read_table(self.folder / n, columns=["row"])["row"] for n in self.manifest.parts])
        order = np.argsort(row, kind="stable")
        positions: I8 = order[np.searchsorted(row, numbers, sorter=order)]
        return positions

    def neighbours(self, positions: I8) -> Rows:
        """Return the neighbours at ascending positions, (q, width) int32, as rows of the earlier corpus."""
        width = int(self.manifest.facts["width"])
        out = np.empty((len(positions), width), np.int32)
        for i, (_, _, start, stop) in enumerate(self.groups):
            lo, hi = np.searchsorted(positions, [start, stop]).tolist()
            if lo < hi:
                out[lo:hi] = self._group(i)[positions[lo:hi] - start]
        return out

    def still_valid(self, positions: I8, kept: NDArray[np.bool_], first: int) -> NDArray[np.bool_]:
        """Return which lists at ascending positions have kept neighbours only.

        `positions`: (q,) int64. `kept`: (R,) bool; by earlier row, minus `first`.
        """
        out = np.empty(len(positions), bool)
        for i, (_, _, start, stop) in enumerate(self.groups):
            lo, hi = np.searchsorted(positions, [start, stop]).tolist()
            if lo < hi:
                out[lo:hi] = kept[self._group(i)[positions[lo:hi] - start] - first].all(axis=1)
        return out

    def _group(self, i: int) -> Rows:
        """Return the neighbours of one row group."""
        # The latest group is cached: consecutive queries mostly lie in one.
        if self._cached[0] != i:
            name, group, start, stop = self.groups[i]
            with pq.ParquetFile(self.folder / name) as file:
                lists = file.read_row_group(group, columns=["neighbours"])["neighbours"]
            self._cached = i, pc.list_flatten(lists).to_numpy().reshape(stop - start, -1)
        return self._cached[1]


@dataclass(frozen=True, eq=False)
class UpdatePlan:
    """Division of the queries into those whose lists are updated and those that are searched.

    `kept`: (Qk,) int64; numbers of queries whose previous neighbours are all kept, ascending.
    `positions`: (Qk,) int64; their positions in the previous table, ascending.
    `row_map`: (R,) int32; present row of each previous caption, by previous row minus `first`; -1 if it is gone or
        changed.
    `first`: first row of the previous table.
    `added`: (A,) int32; candidates that are new or changed, ascending.
    """

    kept: I8
    positions: I8
    row_map: Rows
    first: int
    added: Rows

    def save(self, work: Work) -> None:
        """Write the plan for all workers."""
        for name, values in vars(self).items():
            work.file(f"{name}.npy", partial(_save, np.asarray(values)))

    @classmethod
    def load(cls, folder: Path) -> UpdatePlan:
        """Read a plan that `save` has written."""
        kept, positions, row_map, first, added = (np.load(folder / f"{name}.npy") for name in cls.__dataclass_fields__)
        return cls(kept, positions, row_map, int(first), added)


def find_previous_table(folder: Path, semantic: dict[str, Any], values: str) -> Manifest | str:
    """Read the manifest of the table that is to be replaced, or return the reason why nothing of it can be kept.

    `semantic`: parameters of the new table. Its rows and the size of its shards may differ from the previous table's.
    `values`: see `row_digests.shared_digest`.
    """
    try:
        manifest = open_artefact(folder, "neighbours")
    except RelabelError:
        return "there is no previous table"
    for name, value in semantic.items():
        if name not in ("rows", "rows_per_shard") and manifest.semantic.get(name) != value:
            return f"{name} was {manifest.semantic.get(name)}"
    if manifest.facts.get("values") != values or KEYS not in manifest.files:
        return "parameters, model or document frequencies have changed"
    return manifest


def plan_update(folder: Path, manifest: Manifest, of: Of, search: Search, keys: pa.Table) -> UpdatePlan | str:
    """Plan which lists of a previous table are kept, or return the reason why none is.

    `folder`, `manifest`: previous table. `search`: the new search. `keys`: keys of its candidates, in row order.
    """
    old = read_keys(folder)
    matches = _match_rows(old, keys)
    row_map = np.full(len(old), -1, np.int32)
    row_map[matches[matches >= 0]] = search.candidates[matches >= 0]
    still = row_map[row_map >= 0]
    # Equal scores are ordered by row. If the order of rows has changed, so may the order and the choice of neighbours.
    if (np.diff(still) <= 0).any():
        return "captions are in another order, which changes ties"
    first, table = int(old["row"][0].as_py()), PreviousTable(folder, manifest)
    if not np.array_equal(old["row"].to_numpy(), first + np.arange(len(old))):
        return "its rows have gaps"
    # Previous key of every present row, or -1.
    origin = np.full(int(search.candidates[-1]) + 1, -1, np.int64)
    origin[search.candidates] = matches
    kept, numbers = (_kept_captions if of == "captions" else _kept_images)(search, origin, old)
    positions = table.positions(numbers)
    # If no caption is gone, every previous neighbour is kept, and the table need not be read.
    if len(still) < len(old):
        valid = table.still_valid(positions, row_map >= 0, first)
        kept, positions = kept[valid], positions[valid]
    added = search.candidates[matches < 0]
    queries, searched = len(search.queries), len(search.queries) - len(kept)
    cost = len(kept) * len(added) + searched * len(search.candidates)
    if cost > MAX_COST * queries * len(search.candidates):
        return f"{len(added):,} of {len(search.candidates):,} captions are new or changed, which is too many"
    return UpdatePlan(kept, positions, row_map, first, added)


def _match_rows(old: pa.Table, new: pa.Table) -> I8:
    """Return the position of each new key among the old ones; -1 for a new caption or a changed encoding."""
    positions = pc.index_in(new["caption_id"], value_set=old["caption_id"].combine_chunks())
    matches = np.asarray(pc.fill_null(positions, -1).to_numpy(), np.int64)
    present = matches >= 0
    same = pc.equal(new["digest"].filter(pa.array(present)), old["digest"].take(pa.array(matches[present])))
    matches[np.flatnonzero(present)[~same.to_numpy()]] = -1
    return matches


def _kept_captions(search: Search, origin: I8, old: pa.Table) -> tuple[I8, I8]:
    """Return the queries whose caption is kept, and their values of the previous column `row`."""
    matches = origin[search.queries.rows]
    kept = np.flatnonzero(matches >= 0)
    return kept, old["row"].to_numpy()[matches[kept]].astype(np.int64)


def _kept_images(search: Search, origin: I8, old: pa.Table) -> tuple[I8, I8]:
    """Return the queries whose references are exactly those of a previous image, and that image's previous number."""
    sets, image = search.queries, old["image"].to_numpy()
    starts, sizes = sets.indptr[:-1], np.diff(sets.indptr)
    matches = origin[sets.rows]
    # First key and number of captions of each previous image, repeated for each of its captions.
    _, first, count = np.unique(image, return_index=True, return_counts=True)
    begins, counts = (np.repeat(v, count) for v in (first, count))
    # The references must be the first captions of the image that the first reference belonged to, in the same order.
    expected = np.repeat(np.where(matches[starts] >= 0, begins[matches[starts]], 0), sizes)
    offset = np.arange(len(matches)) - np.repeat(starts, sizes)
    same = np.logical_and.reduceat((matches >= 0) & (matches == expected + offset), starts)
    # As many as before: an image that had fewer than five may have got one more, or lost one.
    kept = np.flatnonzero(same & (sizes == np.minimum(REFERENCES, counts[matches[starts]])))
    return kept, image[matches[starts[kept]]].astype(np.int64)


def _save(values: NDArray[Any], path: Path) -> None:
    save_array(path, values)


class IncrementalFinder(Finder):
    """Search for neighbours that follows an update plan.

    `name`: subfolder of the work folder for the shared files of its two finders.
    """

    def __init__(
        self,
        relevance: Relevance,
        search: Search,
        pooling: Pooling,
        runtime: Runtime,
        plan: UpdatePlan,
        table: PreviousTable,
        name: str,
    ) -> None:
        self.relevance, self.search, self.pooling, self.runtime = relevance, search, pooling, runtime
        self.plan, self.table, self.name = plan, table, name

    @cached_property
    def changed(self) -> I8:
        """Numbers of the queries that are searched among all candidates, ascending."""
        return np.setdiff1d(np.arange(len(self.search.queries)), self.plan.kept)

    @cached_property
    def finders(self) -> dict[str, Finder]:
        """Two finders: kept queries against added captions, and changed queries against all; omitted if empty."""
        plan, search, searches = self.plan, self.search, {}
        if len(plan.kept) and len(plan.added):
            # A kept query is not among the added captions, so there is nothing to exclude.
            nothing = np.full(len(plan.kept), -1, np.int32)
            searches["added"] = Search(search.queries.take(plan.kept), nothing, plan.added, search.k)
        if len(self.changed):
            exclude = search.exclude[self.changed]
            searches["rest"] = Search(search.queries.take(self.changed), exclude, search.candidates, search.k)
        runtime = replace(self.runtime, memory=self.runtime.memory // max(1, len(searches)))
        return {name: self.relevance.finder(part, self.pooling, runtime) for name, part in searches.items()}

    def preliminary(self, work: Work) -> TaskGroup | None:
        """Return the preliminary tasks of both finders as one group."""
        groups = {name: finder.preliminary(self._subfolder(work, name)) for name, finder in self.finders.items()}
        needed = {name: group for name, group in groups.items() if group is not None}
        if not needed:
            return None
        tasks = [Task(f"{self.name}/{n}/{u.file}", u.size) for n, group in needed.items() for u in group.tasks]
        # Both finders are of one source, so their groups have one title and one measure.
        either = next(iter(needed.values()))
        return TaskGroup(either.title, either.measure, tasks)

    def prepare(self, work: Work, task: Task, advance: Advance) -> None:
        """Make one preliminary task's file in its finder's subfolder."""
        name, file = task.file.removeprefix(f"{self.name}/").split("/", 1)
        self.finders[name].prepare(self._subfolder(work, name), Task(file, task.size), advance)

    def has_cheap_calls(self) -> bool:
        """Return True if both finders have cheap calls."""
        return all(finder.has_cheap_calls() for finder in self.finders.values())

    def find(self, work: Work, queries: range, advance: Advance) -> tuple[Rows, Scores]:
        """Find the neighbours of some queries, each by update or by search."""
        shape = (len(queries), self.search.width)
        rows, scores = np.empty(shape, np.int32), np.empty(shape)
        for numbers, find in ((self.plan.kept, self._update), (self.changed, self._search)):
            lo, hi = np.searchsorted(numbers, [queries.start, queries.stop]).tolist()
            if lo < hi:
                part = numbers[lo:hi] - queries.start
                rows[part], scores[part] = find(work, range(lo, hi), advance)
        return rows, scores

    def _search(self, work: Work, queries: range, advance: Advance) -> tuple[Rows, Scores]:
        """Search some changed queries among all candidates."""
        return self.finders["rest"].find(self._subfolder(work, "rest"), queries, advance)

    def _update(self, work: Work, queries: range, advance: Advance) -> tuple[Rows, Scores]:
        """Merge the previous neighbours of some kept queries with the best of the added captions."""
        part = slice(queries.start, queries.stop)
        rows = self.plan.row_map[self.table.neighbours(self.plan.positions[part]) - self.plan.first]
        scores = self._score(self.plan.kept[part], rows)
        if "added" in self.finders:
            more = self.finders["added"].find(self._subfolder(work, "added"), queries, advance)
            rows, scores = np.hstack([rows, more[0]]), np.hstack([scores, more[1]])
            order = np.lexsort((rows, -scores))[:, : self.search.width]
            rows, scores = np.take_along_axis(rows, order, 1), np.take_along_axis(scores, order, 1)
        else:
            advance(len(queries))
        return rows, scores

    def _score(self, numbers: I8, rows: Rows) -> Scores:
        """Score previous neighbours again: the table holds rounded scores, and rounding can produce ties."""
        scores, step = np.empty(rows.shape), max(1, _PAIRS // max(1, rows.shape[1]))
        for a in range(0, len(rows), step):
            sets = self.search.queries.take(np.repeat(numbers[a : a + step], rows.shape[1]))
            flat = self.relevance.pairs(sets, rows[a : a + step].reshape(-1), self.pooling)
            scores[a : a + step] = flat.reshape(-1, rows.shape[1])
        return scores

    def _subfolder(self, work: Work, name: str) -> SubfolderWork:
        return work.subfolder(f"{self.name}/{name}")
