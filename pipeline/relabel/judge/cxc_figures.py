"""Figures of a label's scores of CxC's pairs: coefficients, sampled Spearman correlations and a calibration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.statistics import round_relative
from relabel.core.runtime import SILENT, Progress
from relabel.datasets.cxc import METHODS, SIDES, TASKS, HumanScores, JudgedSplit, Task, human_scores
from relabel.datasets.evaluation_sets import ALL, Statistic
from relabel.judge import JudgeParams
from relabel.judge.cxc import ScoredPairs, read_cxc
from relabel.judge.figures import estimate
from relabel.judge.report import BASELINE, JudgedLabel, LabelFigures, Record

OWN = ("c2c_cocaption", "c2i_original")
"""Sampling methods whose pairs are of one image (GT)."""
NON_GT = "c2i_intrasim"
"""Sampling method of the caption-image pairs of two images."""
SAMPLED: dict[tuple[Task, str], str] = {
    ("sts", ALL): "STS",
    ("sis", ALL): "SIS",
    ("sits", ALL): "SITS all",
    ("sits", NON_GT): "SITS non-GT",
}
"""Task and subset of each sampled correlation, with its title."""
_NAMES: dict[Statistic, tuple[str, str]] = {
    "pearson": ("pearson", ""),
    "spearman": ("spearman", "spearman_"),
    "tau_b": ("kendall", "kendall_"),
}
"""Statistic to the name of its figure in records, and what the names of the ends of its interval begin with."""
_SHOWN = 5  # pairs without a score that a record names
_BINS = 20
DRAWS = 1000
"""Draws of the sampled Spearman correlation, as in Parekh et al., EACL 2021."""


@dataclass(frozen=True, eq=False)
class PairScores:
    """A label's relevance for the judged pairs of a split, by task.

    `leave_one_out`: whether the judged caption is left out of its own image's references; the papers keep it.
    """

    about: JudgedLabel
    split: JudgedSplit
    tasks: dict[Task, ScoredPairs]
    leave_one_out: bool = False

    @classmethod
    def open(cls, folder: Path, about: JudgedLabel, split: JudgedSplit, leave_one_out: bool) -> PairScores:
        """Read the files that `score_cxc` wrote."""
        return cls(about, split, read_cxc(folder, split), leave_one_out)

    @property
    def label(self) -> str:
        """Name of the label."""
        return self.about.label


def baseline(scored: PairScores) -> PairScores:
    """Return the scores of same_image for the pairs of another label."""
    # The sampling method says if both items are of one image, so no image ids are needed.
    tasks = {
        task: replace(pairs, relevance=np.isin(pairs.method, OWN).astype(np.float64), missing=[None] * len(pairs.human))
        for task, pairs in scored.tasks.items()
    }
    return replace(
        scored, about=JudgedLabel(label=BASELINE, params={"source": BASELINE, "pooling": "max"}), tasks=tasks
    )


def compare(
    scored: PairScores, params: JudgeParams, progress: Progress = SILENT, threads: int = 1, draws: int = DRAWS
) -> LabelFigures:
    """Compare a label's scores with the human scores.

    The bootstrap and the draws take the same images and items for every label, so that two labels can be compared.
    """
    jobs = [(task, subset) for task in TASKS if task in scored.tasks for subset in subsets(task)]
    records = []
    with progress.bar(f"correlate {scored.label}", len(jobs), "rows") as bar:
        for task, subset in jobs:
            records.append(_agreement(scored, task, subset, params, threads))
            bar.advance()
    sampled = [
        _sampled(scored, task, subset, draws, params.seed) for task, subset in SAMPLED if draws and task in scored.tasks
    ]
    return LabelFigures(scored.about, records + sampled, list(calibration_points(scored)))


def subsets(task: Task) -> tuple[str, ...]:
    """Return "all", then each sampling method if there is more than one."""
    return (ALL, *METHODS[task]) if len(METHODS[task]) > 1 else (ALL,)


def _agreement(scored: PairScores, task: Task, subset: str, params: JudgeParams, threads: int) -> Record:
    """Correlate the pairs of a subset. Pairs that were not scored are counted apart, and the first ones are named."""
    pairs, human = scored.tasks[task], scored.tasks[task].human
    in_subset = pairs.subset(subset)
    chosen, missing = in_subset & pairs.scored, np.flatnonzero(in_subset & ~pairs.scored)
    first = [f"{human.left[i]} {human.right[i]}: {pairs.missing[i]}" for i in missing[:_SHOWN]]
    record: Record = {"task": task, "split": scored.split, "subset": subset, "n": int(chosen.sum())}
    record |= {"missing": len(missing), "first_missing": "; ".join(first) or None}
    x, y = round_relative(pairs.relevance[chosen]), human.score[chosen]
    for name, found in estimate(tuple(_NAMES), x, y, pairs.cluster[chosen], params, threads).items():
        record |= found.record(*_NAMES[name])
    return record | {"leave_one_out": scored.leave_one_out if task == "sits" else None}


def _sampled(scored: PairScores, task: Task, subset: str, draws: int, seed: int) -> Record:
    # It takes numba, and figures that exist need none of it.
    from relabel.judge.rank_bootstrap import SampledSpearman, sampled_spearman

    pairs = scored.tasks[task]
    chosen = pairs.subset(subset) & pairs.scored
    human = human_scores(task, scored.split)
    # SITS pairs are drawn by their image, the others by their left item.
    units = np.array(human.right if task == "sits" else human.left)[chosen]
    found = sampled_spearman(pairs.relevance[chosen], pairs.human.score[chosen], units, draws, seed)
    figures = found._asdict() if found else dict.fromkeys(SampledSpearman._fields)
    return {"task": f"{task}_sampled", "split": scored.split, "subset": subset, **figures}


def pair_images(human: HumanScores) -> NDArray[np.int64]:
    """Return the number of an image of each judged pair, (P,): the only one of SITS, else that of the left item."""
    names = human.right if human.task == "sits" else human.left
    if SIDES[human.task][0] == "caption" and human.task != "sits":
        names = [_image_of(human.split)[i] for i in names]
    return np.unique(np.array(names), return_inverse=True)[1].astype(np.int64)


@cache
def _image_of(split: JudgedSplit) -> dict[str, str]:
    """Image of every caption of a split: SITS judges each caption with its own image."""
    sits = human_scores("sits", split)
    return {c: i for c, i, method in zip(sits.left, sits.right, sits.method, strict=True) if method != NON_GT}


class Bins(NamedTuple):
    """Pairs in at most B bins of equal size, by relevance.

    `relevance`: (B,) float64; mean relevance of each bin, ascending.
    `mean`, `spread`: (B,) float64; mean and standard deviation of the human scores, 0..5.
    `n`: (B,) int64; number of pairs in each bin.
    """

    relevance: NDArray[np.float64]
    mean: NDArray[np.float64]
    spread: NDArray[np.float64]
    n: NDArray[np.int64]


def bin_pairs(relevance: NDArray[np.float64], human: NDArray[np.float64], bins: int = _BINS) -> Bins:
    """Cut pairs into bins of equal size by relevance. Pairs of equal relevance share a bin."""
    # Index, in order of relevance, of the last pair of each bin but the last one; -1 where there are fewer pairs than
    # bins.
    last = len(relevance) * np.arange(1, bins) // bins - 1
    edges = np.unique(np.sort(relevance)[last[last >= 0]])
    # A pair that equals an edge belongs to the bin that ends with it, so no tie is divided between two bins.
    index = np.searchsorted(edges, relevance, side="left")
    n = np.bincount(index, minlength=len(edges) + 1)
    # The last bin is empty where the largest edge is also the largest relevance. Its 0 / 0 is left out below.
    with np.errstate(invalid="ignore"):
        x, mean = (np.bincount(index, v, len(n)) / n for v in (relevance, human))
        variance = np.bincount(index, (human - mean[index]) ** 2, len(n)) / n
    nonempty = n > 0
    return Bins(x[nonempty], mean[nonempty], np.sqrt(variance[nonempty]), n[nonempty])


def calibration_points(scored: PairScores, bins: int = _BINS) -> Iterator[Record]:
    """Yield the mean human score at each level of relevance, for pairs of two images; x is `relevance`, y is `human`.

    `bins`: most levels per task. Pairs of one image are rated high at any relevance and would bend the line.
    """
    for task, pairs in scored.tasks.items():
        chosen = ~np.isin(pairs.method, OWN) & pairs.scored
        levels = bin_pairs(pairs.relevance[chosen], pairs.human.score[chosen], bins)
        for level in zip(*levels, strict=True):
            x, mean, spread = (round(float(value), 4) for value in level[:3])
            point = {"relevance": x, "human": mean, "spread": spread, "n": int(level[3])}
            yield {"label": scored.label, "task": task, **point}
