"""Division of the candidates of a self-join into groups that fit into memory.

The division is written into the work folder, so that a resumed run divides in the same way.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

from relabel.core.runtime import Runtime
from relabel.store.workdir import Work
from relabel.topk.merge import topk_bytes

BLOCKING = "groups.json"
_MAX_GROUP = 3 << 15  # candidates per group: an interrupted run loses the ten seconds or so of a pair of groups
_MIN_GROUP = 256
_FIXED_BYTES = 24 << 20  # estimate of temporary arrays
_THREAD_BYTES = 4 << 20  # estimate of a thread's tile and of the product that fills it
_TASKS_PER_WORKER = 3  # enough for workers to finish together; more tasks would rescore more candidates in vain


def buffer_capacity(keep: int, candidates: int) -> int:
    """Return the number of candidates that a query's buffer holds during the scan.

    It is about twice `keep`: a larger one is cut less often, and a smaller one raises the floors earlier.
    """
    return max(1, min(candidates, 2 * keep + 32))


def buffer_bytes(capacity: int) -> int:
    """Return the bytes that the buffer of one query takes."""
    return 12 * capacity + 40


def group_bytes(rows: int, keep: int, width: int) -> int:
    """Return the bytes that one group takes during the scan.

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
        """Size of the largest group."""
        return -(-self.count // self.groups)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Every unordered pair of groups once, ordered by its first group."""
        return [(a, b) for a in range(self.groups) for b in range(a, self.groups)]

    def file(self, pair: tuple[int, int]) -> str:
        """Return the name of the file of a pair of groups."""
        return f"pairs-{pair[0]:05d}-{pair[1]:05d}-of-{self.groups:05d}.arrow"


def choose_blocking(count: int, keep: int, width: int, runtime: Runtime) -> GroupLayout:
    """Choose groups such that two of them fit into memory and every worker has several pairs of groups.

    `count`: candidates. `keep`: results per candidate. `width`: dimensions of a vector.
    """
    # A worker makes this choice again, and would replace groups that do not fit into its share of the memory.
    worker = runtime.of_worker()
    # A task holds two groups, hence half of the memory that temporary arrays leave.
    memory = max(0, worker.memory - _FIXED_BYTES - worker.threads * _THREAD_BYTES) // 2
    # `group_bytes` grows with the rows: bisect for the largest group that fits.
    low, high = _MIN_GROUP, max(_MIN_GROUP, min(_MAX_GROUP, count))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if group_bytes(middle, keep, width) <= memory else (low, middle - 1)
    # Fewer groups screen better: a search without workers, or a small one, is one task if it fits.
    tasks = max(1, _TASKS_PER_WORKER * runtime.workers) if count > 8 * _MIN_GROUP else 1
    # G groups have G (G + 1) / 2 pairs, so G is the root of that quadratic, rounded up.
    enough_for_workers = math.ceil((math.sqrt(8 * tasks + 1) - 1) / 2)
    return GroupLayout(count, max(1, -(-count // low), enough_for_workers))


def load_or_choose_blocking(work: Work, count: int, keep: int, width: int, runtime: Runtime) -> GroupLayout:
    """Return the groups of an earlier run if they still fit into memory; otherwise choose groups and write them.

    If the earlier groups are too large, the files made with them are deleted, except by a share of the work: other
    processes work with the same groups.
    """
    blocking = choose_blocking(count, keep, width, runtime)
    if work.done(BLOCKING):
        previous = read_blocking(work, count)
        fits = previous.largest <= blocking.largest or previous.groups >= blocking.groups
        if fits or runtime.shard is not None:
            return previous
        # Files of pairs of other groups could not be merged with new ones.
        for name in (*map(previous.file, previous.pairs), BLOCKING):
            (work.folder / name).unlink(missing_ok=True)
    body = json.dumps({"groups": blocking.groups})
    work.file(BLOCKING, lambda path: path.write_text(body, encoding="utf-8"))
    return blocking


def read_blocking(work: Work, count: int) -> GroupLayout:
    """Read the groups that `load_or_choose_blocking` has written."""
    return GroupLayout(count, int(json.loads((work.folder / BLOCKING).read_text(encoding="utf-8"))["groups"]))
