"""How many pairs will be refined and how long that takes, said before it starts; too many are refused."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from relabel.core.errors import UsageError
from relabel.core.tables import duration
from relabel.store.atomic import make_folder
from relabel.store.workdir import DONE, Work

if TYPE_CHECKING:
    from relabel.sources.bert_sts.relevance import BertStsRelevance, Keys
    from relabel.sources.relevance import Relevance

_PROBE, _WARM = 192, 16  # pairs


def log_cost(relevance: BertStsRelevance, pairs: int, sample: Keys, title: str) -> float:
    """Note an estimate; return its seconds.

    Parameters
    ----------
    relevance : BertStsRelevance
    pairs : int
        Pairs of texts that are to be refined, about.
    sample : (S,) int64
        Keys of some of them.
    title : str
        Work that they are refined for.

    Raises
    ------
    UsageError
        If they are more than `max_pairs`.
    """
    most = relevance.max_pairs
    if not pairs:
        return 0.0
    seconds = pairs * seconds_a_pair(relevance, sample)
    said = f"{title}: about {pairs:,} pairs to refine ({relevance.gate.said()}), about {duration(seconds)}"
    if most is not None and pairs > most:
        todo = "Raise `max_pairs` or `threshold`, name another `gate`, or ask for fewer captions."
        raise UsageError(f"{said}; max_pairs is {most:,}", todo=todo)
    relevance.runtime.progress.note(said)
    return seconds


def log_cost_of(relevance: BertStsRelevance, run: Callable[[Relevance, Work], None], title: str) -> None:
    """Let `run` go through the gate alone, in a folder that is thrown away; then log the cost of refining."""
    twin = relevance.counting()
    with TemporaryDirectory(prefix="relabel-") as folder:
        work = Work(Path(folder))
        make_folder(work.folder / DONE)
        run(twin, work)
    log_cost(relevance, twin.tally["refined"], twin.sample, title)


def seconds_a_pair(relevance: BertStsRelevance, sample: Keys) -> float:
    """Time a few pairs, drawn with a seed, once the model is warm."""
    keys = np.random.default_rng(0).permutation(sample)[:_PROBE]
    before = dict(relevance.tally)
    relevance.refine(keys[:_WARM])
    started = time.perf_counter()
    relevance.refine(keys)
    relevance.tally.update(before)
    return (time.perf_counter() - started) / max(1, len(keys))
