"""What a plan will take, before it is begun: bytes to the byte, pairs, and seconds by a timed sample."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from relabel.core.errors import PartialError, UsageError
from relabel.export.plan.blocks import PAIR_BYTES, Pairs, block_of, references_of
from relabel.export.plan.spec import Outline
from relabel.sources.relevance import Relevance

_PAIRS, _ROUNDS, _SECONDS, _BLOCKS = 4096, 8, 12.0, 4


@dataclass(frozen=True)
class Estimate:
    """What a plan takes.

    Attributes
    ----------
    batches, batch_size, shards : int
    bytes, work_bytes : int
        Of the plan, its manifest aside; and of what is on disk beside it meanwhile.
    pairs : int
        Pairs scored: distinct ones where a source scores pair by pair, else all of all batches.
    seconds : float
        About, on this machine as it is now; reading the encoding aside.
    """

    batches: int
    batch_size: int
    shards: int
    bytes: int
    work_bytes: int
    pairs: int
    seconds: float

    def line(self) -> str:
        """Say it in a line."""
        took = f"{self.seconds / 60:.1f} min" if self.seconds >= 100 else f"{self.seconds:.0f} s"
        meanwhile = f" ({_size(self.work_bytes)} more meanwhile)" if self.work_bytes else ""
        shape = f"{self.batches:,} batches of {self.batch_size} in {self.shards:,} shards"
        return f"{shape}, {_size(self.bytes)}{meanwhile}, {self.pairs:,} pairs to score, about {took}"


def refuse_absurd(outline: Outline) -> None:
    """Refuse more bytes of blocks than `max_bytes`, before anything is drawn or scored.

    Raises
    ------
    UsageError
        With the size and what to change.
    """
    needed, most = outline.block_bytes, outline.params.most_bytes
    if needed > most:
        shape = outline.shape
        what = f"{shape.batches:,} batches of {shape.batch_size} take {_size(needed)}, more than {_size(most)}"
        todo = "Plan fewer epochs or --batches, or allow it with --max-bytes; a lookup answers any batch in less space."
        raise UsageError(what, where="export.plan", todo=todo)


def refuse_full_disk(estimate: Estimate, folder: Path, there: int) -> None:
    """Refuse what does not fit on the disk; `there` bytes of it are written already.

    Raises
    ------
    PartialError
    """
    place = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    free, needed = shutil.disk_usage(place).free, estimate.bytes + estimate.work_bytes - there
    if needed > free:
        what = f"the plan needs {_size(needed)} more, {_size(free)} are free"
        raise PartialError(what, where=str(place), todo="Free some space and run it again; finished files are kept.")


def estimate(outline: Outline, relevance: Relevance) -> Estimate:
    """Count what a plan takes and time a sample of it."""
    shape, batches = outline.shape, outline.batches
    if outline.source.is_pairwise():
        pairs = Pairs(outline.corpus, batches, outline.pooling)
        count, work = pairs.distinct, pairs.distinct * PAIR_BYTES
        estimated = _estimated(pairs, relevance)
        seconds = count * _pair_seconds(pairs, relevance) if estimated is None else estimated
    else:
        count, work = int((batches >= 0).sum(axis=1, dtype=np.int64) @ (batches >= 0).sum(axis=1)), 0
        seconds = len(batches) * _block_seconds(outline, relevance)
    return Estimate(shape.batches, shape.batch_size, len(shape.shards), outline.bytes, work, count, round(seconds, 1))


def _pair_seconds(pairs: Pairs, relevance: Relevance) -> float:
    """Time one pair. Java takes seconds to come to its pace, so the fastest of a few rounds counts.

    The pairs of the sample are scored once more when their part is.
    """
    keys = pairs.sample(_PAIRS * _ROUNDS)
    rounds = [keys[a : a + _PAIRS] for a in range(0, len(keys), _PAIRS)]
    begun, best = time.perf_counter(), float("inf")
    for some in rounds:
        references = references_of(pairs.corpus, some >> 32, pairs.pooling)
        started = time.perf_counter()
        relevance.pairs(references, (some & 0xFFFFFFFF).astype(np.int32), pairs.pooling)
        best = min(best, (time.perf_counter() - started) / len(some))
        if time.perf_counter() - begun > _SECONDS:
            break
    return best


def _estimated(pairs: Pairs, relevance: Relevance) -> float | None:
    """Return the relevance's own estimate for the distinct pairs of a plan, from a sample of them."""
    keys = pairs.sample(_PAIRS * _ROUNDS)
    references = references_of(pairs.corpus, keys >> 32, pairs.pooling)
    return relevance.estimate_seconds(references, (keys & 0xFFFFFFFF).astype(np.int32), pairs.distinct, "plan")


def _block_seconds(outline: Outline, relevance: Relevance) -> float:
    batches = outline.batches
    block_of(relevance, batches[0][batches[0] >= 0], outline.pooling)
    some = batches[np.linspace(0, len(batches) - 1, _BLOCKS).astype(int)]
    started = time.perf_counter()
    for rows in some:
        block_of(relevance, rows[rows >= 0], outline.pooling)
    return (time.perf_counter() - started) / len(some)


def _size(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
