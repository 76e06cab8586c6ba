"""Search of all candidates among all candidates, one pair of groups at a time; each product serves both of its sides.

The file of a pair of groups (a, b) holds, for each row of a, its best candidates of b by exact score, and the other way
round. It leaves out candidates below the k-th score of the row in the files that are already written. Their presence
changes the content of a file and no result, because a candidate is left out only if k better ones are in other files.

For C candidates in G groups the files take about 12 * keep * H(G) * C bytes, H(G) = 1 + 1/2 + ... + 1/G. Workers that
run at the same time leave out less, so that the bound is 12 * keep * G * C bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from relabel.core.runtime import Runtime
from relabel.store.workdir import Step, Task, Work
from relabel.topk import scan
from relabel.topk.blocking import GroupLayout, buffer_capacity, load_or_choose_blocking, read_blocking
from relabel.topk.exact_scores import Sets
from relabel.topk.merge import TopK, kth_scores, merge_sorted
from relabel.topk.scan import Mode, Side, make_side, raise_floors, scan_tiles, write_best
from relabel.topk.screen import Screen, Screened, fastest_screen, screen

F4 = NDArray[np.float32]
F8 = NDArray[np.float64]
I4 = NDArray[np.int32]
I8 = NDArray[np.int64]
BATCH_LISTS = 4096  # lists per record batch
_SCHEMA = pa.schema([("number", pa.large_list(pa.int32())), ("score", pa.large_list(pa.float64()))])


def write_lists(path: Path, pieces: Iterable[TopK]) -> None:
    """Write lists, one record batch per piece; every piece but a group's last holds `BATCH_LISTS`."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, _SCHEMA) as writer:
        for piece in pieces:
            valid = np.arange(piece.numbers.shape[1]) < piece.sizes[:, None]
            offsets = np.zeros(len(piece.sizes) + 1, np.int64)
            np.cumsum(piece.sizes, out=offsets[1:])
            values = [pa.array(column[valid]) for column in (piece.numbers, piece.scores)]
            columns = [pa.LargeListArray.from_arrays(pa.array(offsets), column) for column in values]
            writer.write_batch(pa.record_batch(columns, schema=_SCHEMA))


def merge_file(best: TopK, path: Path, skip: int, rows: range) -> None:
    """Merge the lists of consecutive queries of a file into `best`.

    `best`: one list per row of `rows`. `skip`: record batches that precede those of the queries. `rows`: queries to
    read, counted within their group.
    """
    for batch, lo, hi in batches_of(rows):
        offsets, numbers, scores = _read(path, skip + batch)
        # The Arrow offsets of a slice stay relative to the values of the complete batch.
        merge_sorted(best, batch * BATCH_LISTS + lo - rows.start, offsets[lo : hi + 1], numbers, scores)


def batches_of(rows: range) -> Iterator[tuple[int, int, int]]:
    """List the record batches that hold some rows, each with its first and last row (exclusive) within the batch."""
    for batch in range(rows.start // BATCH_LISTS, -(-rows.stop // BATCH_LISTS)):
        start = batch * BATCH_LISTS
        yield batch, max(rows.start, start) - start, min(rows.stop, start + BATCH_LISTS) - start


def batch_count(lists: int) -> int:
    """Return the number of record batches that hold so many lists."""
    return -(-lists // BATCH_LISTS)


def _read(path: Path, batch: int) -> tuple[I8, I4, F8]:
    # Read rather than memory-mapped, so that the memory is released after use and counts towards the limit.
    with pa.OSFile(str(path)) as file:
        lists = pa.ipc.open_file(file).get_batch(batch)
    number, score = lists.column("number"), lists.column("score")
    return number.offsets.to_numpy(), number.values.to_numpy(), score.values.to_numpy()


@dataclass(eq=False)
class SelfJoin:
    """Exact search for the best candidates of every candidate, itself included.

    `vectors`: (N, D) float32.
    `positions`: (C,) int64; positions of the candidates in `vectors`, ascending, all of them finite. The number of a
        candidate is its index in this array.
    `keep`: results per candidate.
    `kind`: changes the speed and no result; the fastest screen on this machine by default.
    """

    vectors: F4
    positions: I8
    keep: int
    runtime: Runtime
    kind: Screen | None = None

    def step(self, work: Work) -> Step:
        """Divide the candidates into groups; return one task per pair of groups."""
        blocking = load_or_choose_blocking(work, len(self.positions), self.keep, self.vectors.shape[1], self.runtime)
        tasks = [
            Task(blocking.file(pair), partial(self._write, work, blocking, *pair), _count_products(blocking, pair))
            for pair in blocking.pairs
        ]
        return Step("pairs of groups", "products", tasks)

    def _write(self, work: Work, blocking: GroupLayout, a: int, b: int, path: Path) -> None:
        """Write the file of one pair of groups."""
        kind, keep, threads = self.kind or fastest_screen(), self.keep, self.runtime.threads
        vectors = {g: screen(self.vectors[self._select(blocking[g])], kind) for g in {a, b}}
        # Scores that the finished files already guarantee: candidates below them are not written again.
        known = {g: kth_scores(self._merge_files(work, blocking, g, blocking[g])) for g in {a, b}}
        sides = {g: self._side(blocking, vectors, known[g], g, b if g == a else a) for g in {a, b}}
        pairs = ((a, b), (b, a))[: 1 + (a != b)]
        for g, other in pairs:
            raise_floors(sides[g], vectors[other], len(blocking[other]), keep, threads)
        mode: Mode = "itself" if a == b else "both ways"
        scan_tiles(sides[a], sides[b], mode, 0, keep, threads, self.runtime.progress.advance)
        # The rows of group a come first in the file, then those of b; a pair of a group with itself has one side.
        pieces = (
            piece for g, other in pairs for piece in self._lists(sides[g], known[g], sides[other], blocking[other])
        )
        write_lists(path, pieces)

    def read(self, work: Work, numbers: I8) -> TopK:
        """Read the lists of some candidates from the files of all pairs of groups.

        `numbers`: (q,) int64; numbers of candidates, ascending.
        """
        blocking = read_blocking(work, len(self.positions))
        lists = TopK.empty(len(numbers), self.keep)
        starts = [blocking[g].start for g in range(blocking.groups)]
        edges = np.searchsorted(numbers, [*starts, len(self.positions)])
        for g, (lo, hi) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
            if lo == hi:
                continue
            span = range(int(numbers[lo]), int(numbers[hi - 1]) + 1)
            # Record batch by record batch, so that memory does not grow with the span.
            for start in range(span.start, span.stop, BATCH_LISTS):
                rows = range(start, min(start + BATCH_LISTS, span.stop))
                part = slice(*np.searchsorted(numbers, [rows.start, rows.stop]).tolist())
                if part.start < part.stop:
                    merged = self._merge_files(work, blocking, g, rows)
                    index = numbers[part] - rows.start
                    lists.numbers[part], lists.scores[part] = merged.numbers[index], merged.scores[index]
                    lists.sizes[part] = merged.sizes[index]
        return lists

    def _merge_files(self, work: Work, blocking: GroupLayout, g: int, rows: range) -> TopK:
        """Merge the lists of some rows of a group over all files that are written."""
        best = TopK.empty(len(rows), self.keep)
        within = range(rows.start - blocking[g].start, rows.stop - blocking[g].start)
        for other in range(blocking.groups):
            name = blocking.file((min(g, other), max(g, other)))
            if not work.done(name):
                continue
            # If g is the second group of the pair, its lists follow those of the first.
            skip = batch_count(len(blocking[other])) if other < g else 0
            merge_file(best, work.folder / name, skip, within)
        return best

    def _select(self, numbers: range) -> I8 | slice:
        """Return the positions of candidates; as a slice, which copies nothing, if they are contiguous."""
        positions = self.positions[numbers.start : numbers.stop]
        contiguous = len(positions) > 0 and positions[-1] - positions[0] == len(positions) - 1
        return slice(int(positions[0]), int(positions[-1]) + 1) if contiguous else positions

    def _side(self, blocking: GroupLayout, vectors: dict[int, Screened], known: F8, g: int, other: int) -> Side:
        """Prepare the candidates of a group as queries among those of another."""
        sets = Sets.single(self.vectors, self.positions[blocking[g].start : blocking[g].stop])
        capacity = buffer_capacity(self.keep, len(blocking[other]))
        return make_side(vectors[g], sets, vectors[other], known, capacity, self.vectors.shape[1])

    def _lists(self, side: Side, known: F8, other: Side, candidates: range) -> Iterator[TopK]:
        """Yield the final lists of a side, one record batch at a time."""
        for start in range(0, len(side), BATCH_LISTS):
            rows = range(start, min(start + BATCH_LISTS, len(side)))
            lists = TopK.empty(len(rows), self.keep)
            write_best(side, known, lambda: [(0, other)], lists, rows, candidates, self.runtime.threads)
            yield lists


def _count_products(blocking: GroupLayout, pair: tuple[int, int]) -> int:
    """Return the number of products of a pair of groups, as `scan_tiles` reports them.

    A group with itself takes the tiles on and above the diagonal, those on the diagonal in full.
    """
    m, n = (len(blocking[g]) for g in pair)
    if pair[0] != pair[1]:
        return m * n
    edge = scan.TILE_EDGE
    full, rest = divmod(m, edge)
    # Full tiles on and above the diagonal, the column of tiles of width `rest`, and the last tile of the diagonal.
    return (full * (full + 1) // 2) * edge * edge + rest * (m - rest) + rest * rest
