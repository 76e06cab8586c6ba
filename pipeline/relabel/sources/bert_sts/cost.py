"""Cost of refining pairs, logged before the work starts. Too many pairs are an error."""

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

_PROBE, _WARM = 192, 16  # pairs that are timed, and that warm up the model


def log_cost(relevance: BertStsRelevance, pairs: int, sample: Keys, title: str) -> float:
    """Log the estimated cost of refining pairs.

    Parameters
    ----------
    relevance : BertStsRelevance
    pairs : int
        Estimated number of pairs of texts to refine.
    sample : (S,) int64
        Keys of some of the pairs.
    title : str
        Title of the work that needs them.

    Returns
    -------
    float
        Estimated seconds.

    Raises
    ------
    UsageError
        If there are more pairs than `max_pairs`.
    """
    limit = relevance.max_pairs
    if not pairs:
        return 0.0
    seconds = pairs * seconds_per_pair(relevance, sample)
    message = f"{title}: about {pairs:,} pairs to refine ({relevance.gate.describe()}), about {duration(seconds)}"
    if limit is not None and pairs > limit:
        todo = "Raise `max_pairs` or `threshold`, name another `gate`, or ask for fewer captions."
        raise UsageError(f"{message}; max_pairs is {limit:,}", todo=todo)
    relevance.runtime.progress.note(message)
    return seconds


def log_run_cost(relevance: BertStsRelevance, run: Callable[[Relevance, Work], None], title: str) -> None:
    """Count the pairs of `run` by running it with the gate alone, in a temporary folder, and log their cost."""
    counter = relevance.dry_run()
    with TemporaryDirectory(prefix="relabel-") as folder:
        work = Work(Path(folder))
        make_folder(work.folder / DONE)
        run(counter, work)
    log_cost(relevance, counter.counts["refined"], counter.sample, title)


def seconds_per_pair(relevance: BertStsRelevance, sample: Keys) -> float:
    """Time some pairs, drawn with a fixed seed, after a few to warm up the model."""
    keys = np.random.default_rng(0).permutation(sample)[:_PROBE]
    counts = dict(relevance.counts)
    relevance.refine(keys[:_WARM])
    started = time.perf_counter()
    relevance.refine(keys)
    # Timed pairs are no part of the artefact's counts.
    relevance.counts.update(counts)
    return (time.perf_counter() - started) / max(1, len(keys))
