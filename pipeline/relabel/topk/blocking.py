"""Division of the candidates of a self-join into groups that fit into memory.

The division is written to the work folder, and a resumed run reads it.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

from relabel.core.runtime import Runtime
from relabel.store.workdir import Work
from relabel.topk.merge import topk_bytes

BLOCKING = "groups.json"
_MAX_GROUP = 3 << 15  # candidates per group: an interrupted run loses about ten seconds, a pair of groups
_MIN_GROUP = 256
_FIXED_BYTES = 24 << 20  # estimate of temporary arrays
_THREAD_BYTES = 4 << 20  # estimate of a thread's tile and of the product that fills it
_TASKS_PER_WORKER = 3  # enough for workers to finish together; with more tasks, more candidates are scored in vain


def buffer_capacity(keep: int, candidates: int) -> int:
    """Return the number of candidates that a query's buffer holds during the scan, about twice `keep`.

    A larger buffer is cut less often; a smaller one raises the floor earlier.
    """
    return max(1, min(candidates, 2 * keep + 32))


def buffer_bytes(capacity: int) -> int:
    """Return the size of one query's buffer in bytes."""
    return 12 * capacity + 40


def group_bytes(rows: int, keep: int, width: int) -> int:
    """Return the memory of one group during the scan in bytes.

    `rows`, `keep`: queries of the group and results per query. `width`: dimensions of a vector.
    """
    return rows * (buffer_bytes(buffer_capacity(keep, rows)) + topk_bytes(keep) + 4 * width + 64)


@dataclass(frozen=True)
class GroupLayout:
    """Numbers 0..count-1 divided into `groups` ranges of nearly equal size."""

    count: int
    groups: int

    def __getitem__(self, group: int) -> range:
        """Return the numbers of a group."""
        return range(self.count * group // self.groups, self.count * (group + 1) // self.groups)

    @property
    def largest(self) -> int:
        """Maximum size of a group."""
        return -(-self.count // self.groups)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """All unordered pairs of groups, ordered by their first group."""
        return [(a, b) for a in range(self.groups) for b in range(a, self.groups)]

    def file(self, pair: tuple[int, int]) -> str:
        """Return the name of the file of a pair of groups."""
        return f"pairs-{pair[0]:05d}-{pair[1]:05d}-of-{self.groups:05d}.arrow"


def choose_blocking(count: int, keep: int, width: int, runtime: Runtime) -> GroupLayout:
    """Choose groups of which two fit into memory, with several pairs of groups per worker.

    `count`: candidates. `keep`: results per candidate. `width`: dimensions of a vector.
    """
    # Workers repeat this choice with their share of the memory, and would replace groups that do not fit.
    worker = runtime.of_worker()
    # A task holds two groups: each gets half of the memory that temporary arrays leave.
    memory = max(0, worker.memory - _FIXED_BYTES - worker.threads * _THREAD_BYTES) // 2
    # Bisect for the maximum size that fits, because `group_bytes` increases with the rows.
    low, high = _MIN_GROUP, max(_MIN_GROUP, min(_MAX_GROUP, count))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if group_bytes(middle, keep, width) <= memory else (low, middle - 1)
    # Fewer groups screen better: without workers, or with few candidates, the search is one task if it fits.
    tasks = max(1, _TASKS_PER_WORKER * runtime.workers) if count > 8 * _MIN_GROUP else 1
    # G groups have G (G + 1) / 2 pairs: solve for G and round up.
    enough_for_workers = math.ceil((math.sqrt(8 * tasks + 1) - 1) / 2)
    return GroupLayout(count, max(1, -(-count // low), enough_for_workers))


def load_or_choose_blocking(work: Work, count: int, keep: int, width: int, runtime: Runtime) -> GroupLayout:
    """Return the groups of an earlier run if they fit into memory; otherwise choose groups and write them.

    If the earlier groups are too large, their files are deleted. With `shard` set, they are used anyway, because other
    processes work with the same groups.
    """
    blocking = choose_blocking(count, keep, width, runtime)
    if work.done(BLOCKING):
        previous = read_blocking(work, count)
        fits = previous.largest <= blocking.largest or previous.groups >= blocking.groups
        if fits or runtime.shard is not None:
            return previous
        # Files of different groups cannot be merged.
        for name in (*map(previous.file, previous.pairs), BLOCKING):
            (work.folder / name).unlink(missing_ok=True)
    body = json.dumps({"groups": blocking.groups})
    work.file(BLOCKING, lambda path: path.write_text(body, encoding="utf-8"))
    return blocking


def read_blocking(work: Work, count: int) -> GroupLayout:
    """Read the groups that `load_or_choose_blocking` wrote."""
    return GroupLayout(count, int(json.loads((work.folder / BLOCKING).read_text(encoding="utf-8"))["groups"]))
