"""How long a search takes, from searches among a few captions."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from relabel.corpus import References
from relabel.neighbours.base import Search
from relabel.runtime import Runtime
from relabel.sources.base import Relevance
from relabel.sources.vectors import VectorRelevance
from relabel.store.work import Work


def search_seconds(relevance: Relevance, captions: int, k: int, runtime: Runtime) -> float:
    """Time one search of the first so many encoded captions among themselves, nothing kept."""
    rows = np.arange(relevance.rows.start, relevance.rows.start + captions, dtype=np.int32)
    with TemporaryDirectory(prefix="relabel-") as folder:
        work = Work(Path(folder))
        started = time.perf_counter()
        finder = relevance.finder(Search(References.single(rows), rows, rows, k), "paired", runtime)
        phase = finder.preliminary(work)
        for unit in phase.units if phase is not None else ():
            finder.prepare(work, unit, _unheard)
        finder.find(work, range(captions), _unheard)
        return time.perf_counter() - started


def many_like(relevance: VectorRelevance, captions: int) -> VectorRelevance:
    """Make more vectors of the kind that are there: each a real one, moved at random by half its length."""
    draw = np.random.default_rng(0)
    real = relevance.vectors[np.arange(captions) % len(relevance.vectors)]
    noise = draw.standard_normal(real.shape, dtype=np.float32)
    vectors = real + 0.5 * noise / np.sqrt(np.float32(real.shape[1]))
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    return replace(relevance, rows=range(captions), vectors=vectors)


def line(small: tuple[int, float], large: tuple[int, float], count: int) -> float:
    """Extend seconds that are a constant plus a multiple of the count through two measurements."""
    slope = max(0.0, (large[1] - small[1]) / max(1, large[0] - small[0]))
    return max(0.0, large[1] - slope * large[0]) + slope * count


def power(small: tuple[int, float], large: tuple[int, float], count: int) -> float:
    """Extend what grows with a power of the count, no more than the count itself, through two measurements."""
    if large[0] <= small[0] or not 0 < small[1] < large[1]:
        return large[1] * count / large[0]
    exponent = min(1.0, math.log(large[1] / small[1]) / math.log(large[0] / small[0]))
    return float(large[1] * (count / large[0]) ** exponent)


def _unheard(_: int) -> None:
    """Drop what is told of progress."""
