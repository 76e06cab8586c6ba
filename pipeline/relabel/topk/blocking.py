"""Candidates cut into groups; the plan of it lies in the work folder, so that a resumed run cuts the same way."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

from relabel.core.runtime import Runtime
from relabel.store.workdir import Work
from relabel.topk.candidate_buffer import buffer_bytes
from relabel.topk.merge import topk_bytes

PLAN = "groups.json"
_MAX_GROUP = 1 << 17  # rows of a group: a task then takes a minute or two at most, which is what a killed run loses
_MIN_GROUP = 256
_FIXED_BYTES = 24 << 20  # bytes, about, of pieces in passing
_THREAD_BYTES = 4 << 20  # bytes a thread takes, about, for a tile and the product that fills it
_TASKS_EACH = 3  # tasks a worker has at least, so that all end together; more would score more that comes to nothing


def room_for(keep: int, candidates: int) -> int:
    """Candidates a query holds while it is screened: several times what it keeps, so that it seldom has to choose."""
    return max(1, min(candidates, 3 * keep + 64))


def bytes_of(rows: int, keep: int, width: int) -> int:
    """Bytes that the queries of one group take while they are screened.

    Parameters
    ----------
    rows, keep : int
    width : int
        Numbers a vector has.
    """
    return rows * (buffer_bytes(room_for(keep, rows)) + topk_bytes(keep) + 4 * width + 64)


@dataclass(frozen=True)
class Groups:
    """Numbers 0..count-1 cut into `groups` ranges of nearly the same size."""

    count: int
    groups: int

    def __getitem__(self, g: int) -> range:
        """Numbers of group g."""
        return range(self.count * g // self.groups, self.count * (g + 1) // self.groups)

    def holding(self, number: int) -> int:
        """Group of a number."""
        return ((number + 1) * self.groups - 1) // self.count

    @property
    def largest(self) -> int:
        """Rows of the largest group."""
        return -(-self.count // self.groups)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Every pair of groups once, those of the first group first."""
        return [(a, b) for a in range(self.groups) for b in range(a, self.groups)]

    def file(self, pair: tuple[int, int]) -> str:
        """Name of the file of a pair."""
        return f"pairs-{pair[0]:05d}-{pair[1]:05d}-of-{self.groups:05d}.arrow"


def fitting(count: int, keep: int, width: int, runtime: Runtime) -> Groups:
    """Cut so that two groups fit into the memory of a run, and every worker has several pairs of groups."""
    room = max(0, runtime.memory - _FIXED_BYTES - runtime.threads * _THREAD_BYTES) // 2
    low, high = _MIN_GROUP, max(_MIN_GROUP, min(_MAX_GROUP, count))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if bytes_of(middle, keep, width) <= room else (low, middle - 1)
    tasks = _TASKS_EACH * max(1, runtime.workers) if count > 8 * _MIN_GROUP else 1
    wanted = math.ceil((math.sqrt(8 * tasks + 1) - 1) / 2)  # G groups have G (G + 1) / 2 pairs
    return Groups(count, max(1, -(-count // low), wanted))


def planned(work: Work, count: int, keep: int, width: int, runtime: Runtime) -> Groups:
    """Return the groups of an earlier run if two of them fit into memory, else cut anew and drop what that run made."""
    fits = fitting(count, keep, width, runtime)
    if work.done(PLAN):
        before = read_plan(work, count)
        if before.largest <= fits.largest or before.groups >= fits.groups:
            return before
        for pair in before.pairs:
            work.drop(before.file(pair))
        work.drop(PLAN)
    body = json.dumps({"groups": fits.groups})
    work.file(PLAN, lambda path: path.write_text(body, encoding="utf-8"))
    return fits


def read_plan(work: Work, count: int) -> Groups:
    """Read what `planned` wrote."""
    return Groups(count, int(json.loads((work.folder / PLAN).read_text(encoding="utf-8"))["groups"]))
