"""Cost of a batch plan before it is written: exact bytes, pairs, and seconds from a timed sample."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from relabel.core.errors import PartialError, UsageError
from relabel.export.plan.blocks import PAIR_BYTES, Pairs, block_of
from relabel.export.plan.spec import PlanSpec
from relabel.sources.relevance import Relevance

_PAIRS = 4096  # pairs per round of a timed sample
_ROUNDS, _SECONDS = 8, 12.0  # most rounds, and the time after which no other begins
_BLOCKS = 4  # blocks of a timed sample


@dataclass(frozen=True)
class Estimate:
    """Cost of a batch plan.

    Attributes
    ----------
    batches, batch_size, shards : int
    bytes, work_bytes : int
        Bytes of the plan without its manifest, and of the temporary files beside it.
    pairs : int
        Pairs that are scored: the distinct ones if the source scores pair by pair, otherwise those of all batches.
    seconds : float
        Estimate for this machine at its present load, without opening the encoding.

    Examples
    --------
    >>> from relabel.export.plan.estimate import Estimate
    >>> Estimate(300, 128, 1, 19_700_000, 0, 4_915_200, 3.0).describe()
    '300 batches of 128 in 1 shards, 19.7 MB, 4,915,200 pairs to score, about 3 s'
    """

    batches: int
    batch_size: int
    shards: int
    bytes: int
    work_bytes: int
    pairs: int
    seconds: float

    def describe(self) -> str:
        """Return the estimate as one line of text."""
        duration = f"{self.seconds / 60:.1f} min" if self.seconds >= 100 else f"{self.seconds:.0f} s"
        temporary = f" (and {_size(self.work_bytes)} of temporary files)" if self.work_bytes else ""
        shape = f"{self.batches:,} batches of {self.batch_size} in {self.shards:,} shards"
        return f"{shape}, {_size(self.bytes)}{temporary}, {self.pairs:,} pairs to score, about {duration}"


def check_size_limit(spec: PlanSpec) -> None:
    """Check that the blocks are no larger than `max_bytes`, before anything is drawn or scored.

    Raises
    ------
    UsageError
        If they are larger.
    """
    size, limit = spec.block_bytes, spec.params.most_bytes
    if size > limit:
        shape = spec.shape
        message = f"{shape.batches:,} batches of {shape.batch_size} take {_size(size)}, more than {_size(limit)}"
        todo = "Plan fewer epochs or --batches, or allow it with --max-bytes; a lookup answers any batch in less space."
        raise UsageError(message, where="export.plan", todo=todo)


def check_disk_space(estimate: Estimate, folder: Path, written: int) -> None:
    """Check that the disk has room for the plan, of which `written` bytes exist already.

    Raises
    ------
    PartialError
        If it has not.
    """
    existing = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    free, needed = shutil.disk_usage(existing).free, estimate.bytes + estimate.work_bytes - written
    if needed > free:
        message = f"the plan needs {_size(needed)} more, {_size(free)} are free"
        todo = "Free some space and run the command again; finished files are kept."
        raise PartialError(message, where=str(existing), todo=todo)


def estimate(spec: PlanSpec, relevance: Relevance) -> Estimate:
    """Count the pairs and bytes of a plan, and time a sample of its pairs."""
    shape, batches = spec.shape, spec.batches
    if spec.source.is_pairwise():
        pairs = Pairs(spec.corpus, batches, spec.pooling)
        count, work = pairs.distinct, pairs.distinct * PAIR_BYTES
        # A relevance whose pairs differ widely in cost estimates them itself.
        estimated = relevance.estimate_seconds(*pairs.unpack(pairs.sample(_PAIRS * _ROUNDS)), count, "plan")
        seconds = count * _seconds_per_pair(pairs, relevance) if estimated is None else estimated
    else:
        sizes = (batches >= 0).sum(axis=1, dtype=np.int64)
        count, work = int(sizes @ sizes), 0  # a batch of B captions has B * B pairs
        seconds = len(batches) * _seconds_per_block(spec, relevance)
    return Estimate(shape.batches, shape.batch_size, len(shape.shards), spec.bytes, work, count, round(seconds, 1))


def _seconds_per_pair(pairs: Pairs, relevance: Relevance) -> float:
    """Time one pair; the pairs of the sample are scored again with their part."""
    keys = pairs.sample(_PAIRS * _ROUNDS)
    begun, best = time.perf_counter(), float("inf")
    for a in range(0, len(keys), _PAIRS):
        references, captions = pairs.unpack(keys[a : a + _PAIRS])
        started = time.perf_counter()
        relevance.pairs(references, captions, pairs.pooling)
        # The fastest round counts: a Java process is slow until its code is compiled.
        best = min(best, (time.perf_counter() - started) / len(captions))
        if time.perf_counter() - begun > _SECONDS:
            break
    return best


def _seconds_per_block(spec: PlanSpec, relevance: Relevance) -> float:
    batches = spec.batches
    # The first block also compiles and loads.
    block_of(relevance, batches[0][batches[0] >= 0], spec.pooling)
    sample = batches[np.linspace(0, len(batches) - 1, _BLOCKS).astype(int)]
    started = time.perf_counter()
    for rows in sample:
        block_of(relevance, rows[rows >= 0], spec.pooling)
    return (time.perf_counter() - started) / len(sample)


def _size(count: float) -> str:
    for task in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if task == "B" else f"{count:.1f} {task}"
        count /= 1000
    return f"{count:.1f} TB"
