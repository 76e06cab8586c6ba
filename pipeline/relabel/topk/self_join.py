"""Search of all candidates among all candidates, by pairs of groups. Each product is used for both of its rows.

The file of a pair of groups (a, b) holds, for each row of a, its best candidates of b by exact score, and vice versa.
Candidates below the row's k-th score in the files written so far are omitted. The content of a file therefore depends
on the order of the files, but the result does not: k better candidates are in other files.

For C candidates in G groups, the files take about 12 * keep * H(G) * C bytes, H(G) = 1 + 1/2 + ... + 1/G. Concurrent
workers omit fewer candidates; the bound is then 12 * keep * G * C bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from relabel.core.runtime import Runtime
from relabel.store.workdir import Step, Task, Work
from relabel.topk.blocking import GroupLayout, buffer_capacity, load_or_choose_blocking, read_blocking
from relabel.topk.exact_scores import Sets
from relabel.topk.merge import TopK, kth_scores, merge_lists
from relabel.topk.scan import Side, count_products, make_side, raise_floors, scan_tiles, write_best
from relabel.topk.screen import Screen, fastest_screen, screen

F4 = NDArray[np.float32]
I8 = NDArray[np.int64]
_LISTS = 4096  # lists per read or write
_ENTRY = np.dtype([("score", np.float64), ("number", np.int32)])


def write_lists(path: Path, sides: Sequence[TopK]) -> None:
    """Write the lists of one or two groups, n in total: (n + 1,) int64 offsets, then the entries of all lists."""
    with path.open("wb") as file:
        file.write(np.cumsum(np.concatenate([[0], *(lists.sizes for lists in sides)])).data)
        for lists in sides:
            for start in range(0, len(lists.sizes), _LISTS):
                numbers, scores, sizes = (column[start : start + _LISTS] for column in lists)
                valid = np.arange(numbers.shape[1]) < sizes[:, None]
                entries = np.empty(int(sizes.sum()), _ENTRY)
                entries["score"], entries["number"] = scores[valid], numbers[valid]
                file.write(entries.data)


@dataclass(eq=False)
class SelfJoin:
    """Exact search for the best candidates of every candidate, including the candidate itself.

    `vectors`: (N, D) float32.
    `positions`: (C,) int64; ascending positions of the candidates in `vectors`. Their vectors are finite. The number of
        a candidate is its index in this array.
    `keep`: results per candidate.
    `kind`: precision of the screen; by default, the fastest on this machine. It does not change the result.
    """

    vectors: F4
    positions: I8
    keep: int
    runtime: Runtime
    kind: Screen | None = None

    def step(self, work: Work) -> Step:
        """Divide the candidates into groups; return one task per pair of groups."""
        blocking = load_or_choose_blocking(work, len(self.positions), self.keep, self.vectors.shape[1], self.runtime)
        tasks = []
        for a, b in blocking.pairs:
            products = count_products(len(blocking[a]), len(blocking[b]), a == b)
            tasks.append(Task(blocking.file((a, b)), partial(self._write, work, blocking, a, b), products))
        return Step("pairs of groups", "products", tasks)

    def _write(self, work: Work, blocking: GroupLayout, a: int, b: int, path: Path) -> None:
        """Write the file of one pair of groups."""
        keep, threads = self.keep, self.runtime.threads
        # The rows of group a come first in the file, then those of b. A pair of a group with itself has one side.
        groups = {a: b, b: a}
        sides = {g: self._side(work, blocking, g, len(blocking[other])) for g, other in groups.items()}
        for g, other in groups.items():
            raise_floors(sides[g], sides[other].vectors, len(blocking[other]), keep, threads)
        scan_tiles(sides[a], sides[b], True, 0, keep, threads, self.runtime.progress.advance)
        best = [write_best(sides[g], [(0, sides[o])], keep, blocking[o], threads) for g, o in groups.items()]
        write_lists(path, best)

    def read(self, work: Work, numbers: I8) -> TopK:
        """Read the lists of the given candidates from the files of all pairs of groups.

        `numbers`: (q,) int64; ascending numbers of candidates.
        """
        blocking = read_blocking(work, len(self.positions))
        lists = TopK.empty(len(numbers), self.keep)
        for g in range(blocking.groups):
            group = blocking[g]
            # Read in chunks, to bound the memory if the numbers span a large range.
            for start in range(group.start, group.stop, _LISTS):
                lo, hi = np.searchsorted(numbers, [start, min(start + _LISTS, group.stop)]).tolist()
                if lo < hi:
                    rows = range(int(numbers[lo]), int(numbers[hi - 1]) + 1)
                    merged, index = self._merge_files(work, blocking, g, rows), numbers[lo:hi] - rows.start
                    lists.assign(slice(lo, hi), merged.take(index))
        return lists

    def _merge_files(self, work: Work, blocking: GroupLayout, g: int, rows: range) -> TopK:
        """Merge the lists of `rows` of a group over all files written so far."""
        best = TopK.empty(len(rows), self.keep)
        for other in range(blocking.groups):
            pair = min(g, other), max(g, other)
            if not work.done(blocking.file(pair)):
                continue
            # If g is the second group of the pair, its lists follow those of the first group.
            first = rows.start - blocking[g].start + (len(blocking[other]) if other < g else 0)
            path, lists = work.folder / blocking.file(pair), sum(len(blocking[group]) for group in {*pair})
            # Read instead of memory-mapped: the memory is released after use and counts towards the limit.
            offsets = np.fromfile(path, np.int64, len(rows) + 1, offset=8 * first)
            place = 8 * (lists + 1) + _ENTRY.itemsize * int(offsets[0])
            entries = np.fromfile(path, _ENTRY, int(offsets[-1] - offsets[0]), offset=place)
            columns = entries["number"].copy(), entries["score"].copy()
            offsets -= offsets[0]
            merge_lists(best, np.arange(len(rows)), offsets[:-1], offsets[1:], *columns, len(self.positions))
        return best

    def _side(self, work: Work, blocking: GroupLayout, g: int, others: int) -> Side:
        """Prepare the candidates of a group as queries among `others` candidates."""
        # Finished files already hold `keep` candidates with these scores: lower ones need not be written.
        known = kth_scores(self._merge_files(work, blocking, g, blocking[g]))
        positions = self.positions[blocking[g].start : blocking[g].stop]
        held = screen(self.vectors, self.kind or fastest_screen(), positions)
        return make_side(held, Sets.single(self.vectors, positions), known, buffer_capacity(self.keep, others))
