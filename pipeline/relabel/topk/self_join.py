"""All candidates against all candidates: a pair of groups at a time, every product looked at from both its sides.

A pair's file holds, for the rows of either group, the best of the other by exact score, but for those that are not
among the best of the row as far as earlier files tell. Which files were there changes what a file holds, and no result:
a candidate is left out only where `keep` better ones stand in other files. For C candidates in G groups that is about
12 * keep * H(G) * C bytes, H(G) = 1 + 1/2 + ... + 1/G; many workers at once leave more, up to 12 * keep * G * C.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.jit import jit
from relabel.core.progress import Advance
from relabel.core.runtime import Runtime
from relabel.store.tasks import Task, TaskGroup
from relabel.store.workdir import Work
from relabel.topk.blocking import Groups, planned, read_plan, room_for
from relabel.topk.bounded_matmul import Arithmetic, BoundedMatmul, MaxNorms, QuantizedVectors, fastest_arithmetic
from relabel.topk.candidate_buffer import CandidateBuffer, make_buffer, rescore_and_truncate
from relabel.topk.exact_scores import PAIRED, ExactOperands
from relabel.topk.files import TOGETHER, batches, merge_file, write_lists
from relabel.topk.merge import TopK, floors
from relabel.topk.tiled_scan import Side, raise_floors, screen

F4 = NDArray[np.float32]
F8 = NDArray[np.float64]
I8 = NDArray[np.int64]


@dataclass(eq=False)
class SelfJoin:
    """The best candidates of every candidate, itself among them.

    Attributes
    ----------
    vectors : (N, D) float32
    places : (C,) int64
        The candidates, ascending, all finite; a candidate's number is its position here.
    keep : int
        Candidates a list holds.
    runtime : Runtime
    arithmetic : Arithmetic, optional
        Changes nothing but the time; the fastest here where none is given.
    """

    vectors: F4
    places: I8
    keep: int
    runtime: Runtime
    arithmetic: Arithmetic | None = None
    _whole: set[str] = field(default_factory=set)

    def task_group(self, work: Work) -> TaskGroup:
        """Cut into groups; list their pairs."""
        groups = planned(work, len(self.places), self.keep, self.vectors.shape[1], self.runtime)
        tasks = [Task(groups.file(pair), _products(groups, pair)) for pair in groups.pairs]
        return TaskGroup("pairs of groups", "products", tasks)

    def make(self, work: Work, task: Task, advance: Advance) -> None:
        """Make the file of one pair."""
        groups = read_plan(work, len(self.places))
        a, b = next(pair for pair in groups.pairs if groups.file(pair) == task.file)
        products = BoundedMatmul(self.arithmetic or fastest_arithmetic(self.vectors.shape[1]))
        held = {g: products.quantize(self.vectors[self._places(groups[g])]) for g in {a, b}}
        before = {g: floors(self._merged(work, groups, g, groups[g])) for g in {a, b}}
        sides = {g: self._side(products, groups, held, before[g], g, b if g == a else a) for g in {a, b}}
        mode = "itself" if a == b else "both ways"
        for g, other in ((a, b), (b, a)):
            raise_floors(products, sides[g], held[other].values, self.keep, self.runtime.threads)
        screen(products, sides[a], sides[b], mode, 0, self.keep, self.runtime.threads, advance)
        pieces = (
            piece
            for g, other in ((a, b), (b, a))[: 1 + (a != b)]
            for piece in self._settled(sides[g], held[g].length, before[g], groups[other])
        )
        work.file(task.file, lambda path: write_lists(path, pieces))

    def read(self, work: Work, numbers: I8) -> TopK:
        """Read the lists of some candidates, ascending."""
        groups = read_plan(work, len(self.places))
        found = TopK.empty(len(numbers), self.keep)
        edges = np.searchsorted(numbers, [groups[g].start for g in range(groups.groups)] + [len(self.places)])
        for g, (lo, hi) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
            if lo == hi:
                continue
            span = range(int(numbers[lo]), int(numbers[hi - 1]) + 1)
            for start in range(span.start, span.stop, TOGETHER):
                rows = range(start, min(start + TOGETHER, span.stop))
                some = slice(*np.searchsorted(numbers, [rows.start, rows.stop]).tolist())
                if some.start < some.stop:
                    merged = self._merged(work, groups, g, rows)
                    at = numbers[some] - rows.start
                    found.numbers[some], found.scores[some] = merged.numbers[at], merged.scores[at]
                    found.sizes[some] = merged.sizes[at]
        return found

    def _merged(self, work: Work, groups: Groups, g: int, rows: range) -> TopK:
        """Merge what the finished files say of some rows of a group."""
        best = TopK.empty(len(rows), self.keep)
        within = range(rows.start - groups[g].start, rows.stop - groups[g].start)
        for other in range(groups.groups):
            pair = (min(g, other), max(g, other))
            name = groups.file(pair)
            if name not in self._whole and not work.done(name):
                continue
            self._whole.add(name)
            merge_file(best, work.folder / name, batches(len(groups[other])) if other < g else 0, within)
        return best

    def _places(self, numbers: range) -> I8 | slice:
        """Where candidates lie; a slice, which copies nothing, where they lie together."""
        some = self.places[numbers.start : numbers.stop]
        together = len(some) > 0 and some[-1] - some[0] == len(some) - 1
        return slice(int(some[0]), int(some[-1]) + 1) if together else some

    def _side(
        self, products: BoundedMatmul, groups: Groups, held: dict[int, QuantizedVectors], before: F8, g: int, other: int
    ) -> Side:
        mine, theirs = (self.places[groups[x].start : groups[x].stop] for x in (g, other))
        exact = ExactOperands(self.vectors, np.arange(len(mine) + 1), mine, theirs, PAIRED)
        slack = products.error_bound(held[g], MaxNorms.of(held[other]), self.vectors.shape[1])
        floor = np.where(held[g].length > 0, before, np.inf)  # all are 0 for a zero vector: see _settle_all
        kept = make_buffer(slack, floor, room_for(self.keep, len(theirs)), products.tile, products.rounding)
        return Side(held[g].values, kept, exact)

    def _settled(self, side: Side, length: F8, before: F8, candidates: range) -> Iterator[TopK]:
        """Settle the lists of a side, a piece at a time."""
        for start in range(0, len(length), TOGETHER):
            rows = range(start, min(start + TOGETHER, len(length)))
            lists = TopK.empty(len(rows), self.keep)
            rescore_queries(side, length, before, rows, lists, candidates, self.runtime.threads)
            yield lists


def rescore_queries(
    side: Side, length: F8, before: F8, rows: range, lists: TopK, candidates: range, threads: int
) -> None:
    """Settle some queries of a side: their best by exact score, but for those below what was known `before`.

    Parameters
    ----------
    side : Side
    length : (n,) float64
        0 where a query has zero vectors alone: the first candidates are then its best.
    before : (n,) float64
    rows : range
        Queries to settle.
    lists : TopK
        Filled.
    candidates : range
        Numbers of the candidates.
    threads : int
    """
    step = -(-len(rows) // (4 * threads))

    def run(lo: int) -> None:
        first, stop = candidates.start, candidates.stop
        hi = min(lo + step, rows.stop)
        _settle_all(side.kept, side.exact, length, before, lo, hi, rows.start, lists, first, stop)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(run, range(rows.start, rows.stop, step)))


@jit
def _settle_all(
    kept: CandidateBuffer,
    exact: ExactOperands,
    length: F8,
    before: F8,
    lo: int,
    hi: int,
    start: int,
    lists: TopK,
    first: int,
    stop: int,
) -> None:
    keep = lists.numbers.shape[1]
    for i in range(lo, hi):
        row, n = i - start, 0
        if length[i] == 0.0:
            n = min(keep, stop - first)
            for e in range(n):
                lists.numbers[row, e], lists.scores[row, e] = first + e, 0.0
        else:
            scores = rescore_and_truncate(kept, exact, i, keep)
            while n < len(scores) and scores[n] >= before[i]:
                lists.numbers[row, n], lists.scores[row, n] = first + kept.columns[i, n], scores[n]
                n += 1
        lists.sizes[row] = n


def _products(groups: Groups, pair: tuple[int, int]) -> int:
    """Products that a pair of groups takes, in whole tiles of one side where it is a group with itself."""
    from relabel.topk.tiled_scan import TILE_EDGE

    m, n = (len(groups[g]) for g in pair)
    if pair[0] != pair[1]:
        return m * n
    whole, rest = divmod(m, TILE_EDGE)
    return (whole * (whole + 1) // 2) * TILE_EDGE * TILE_EDGE + rest * (m - rest) + rest * rest
