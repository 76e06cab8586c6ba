"""Figures of a label on CxC's pairs: correlation coefficients, sampled Spearman correlations and calibration points."""

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
"""Sampling methods that pair items of one image (GT)."""
NON_GT = "c2i_intrasim"
"""Sampling method that pairs captions with other images."""
SAMPLED: dict[tuple[Task, str], str] = {
    ("sts", ALL): "STS",
    ("sis", ALL): "SIS",
    ("sits", ALL): "SITS all",
    ("sits", NON_GT): "SITS non-GT",
}
"""Task, subset and title of each sampled correlation."""
_NAMES: dict[Statistic, tuple[str, str]] = {
    "pearson": ("pearson", ""),
    "spearman": ("spearman", "spearman_"),
    "tau_b": ("kendall", "kendall_"),
}
"""For each statistic, the name of its figure in records, and the prefix of the names of its interval."""
_SHOWN = 5  # maximum number of pairs without a score that a record names
_BINS = 20
DRAWS = 1000
"""Number of draws of the sampled Spearman correlation, as in Parekh et al., EACL 2021."""


@dataclass(frozen=True, eq=False)
class PairScores:
    """A label's relevance for the judged pairs of a split, by task.

    `leave_one_out`: True if the judged caption is removed from its image's references; the papers keep it.
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
    # The sampling method tells if both items belong to one image.
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

    For comparable figures, the bootstrap and the draws use the same images and items for every label.
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
    """Correlate the pairs of a subset. Pairs without a score are counted separately, and the first ones are named."""
    pairs, human = scored.tasks[task], scored.tasks[task].human
    in_subset = pairs.subset(subset)
    chosen, missing = in_subset & pairs.scored, np.flatnonzero(in_subset & ~pairs.scored)
    first = [f"{human.left[i]} {human.right[i]}: {pairs.missing[i]}" for i in missing[:_SHOWN]]
    record: Record = {"task": task, "split": scored.split, "subset": subset, "n": int(chosen.sum())}
    record |= {"missing": len(missing), "first_missing": "; ".join(first) or None}
    x, y = round_relative(pairs.relevance[chosen]), human.score[chosen]
    for name, value in estimate(tuple(_NAMES), x, y, pairs.cluster[chosen], params, threads).items():
        record |= value.record(*_NAMES[name])
    return record | {"leave_one_out": scored.leave_one_out if task == "sits" else None}


def _sampled(scored: PairScores, task: Task, subset: str, draws: int, seed: int) -> Record:
    # This module imports numba, and figures that exist already do not need it.
    from relabel.judge.rank_bootstrap import SampledSpearman, sampled_spearman

    pairs = scored.tasks[task]
    chosen = pairs.subset(subset) & pairs.scored
    human = human_scores(task, scored.split)
    # SITS draws pairs by image, the other tasks by the left item.
    units = np.array(human.right if task == "sits" else human.left)[chosen]
    sampled = sampled_spearman(pairs.relevance[chosen], pairs.human.score[chosen], units, draws, seed)
    figures = sampled._asdict() if sampled else dict.fromkeys(SampledSpearman._fields)
    return {"task": f"{task}_sampled", "split": scored.split, "subset": subset, **figures}


def pair_images(human: HumanScores) -> NDArray[np.int64]:
    """Return the image number of each judged pair, (P,): of the image (SITS) or of the left item (STS, SIS)."""
    names = human.right if human.task == "sits" else human.left
    if SIDES[human.task][0] == "caption" and human.task != "sits":
        names = [_image_of(human.split)[i] for i in names]
    return np.unique(np.array(names), return_inverse=True)[1].astype(np.int64)


@cache
def _image_of(split: JudgedSplit) -> dict[str, str]:
    """Return the image of every caption of a split. SITS contains each caption with its own image."""
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
    """Divide pairs into bins of equal size by relevance. Pairs of equal relevance share a bin."""
    # Index, in order of relevance, of the last pair of each bin except the last. -1 if there are fewer pairs than bins.
    last = len(relevance) * np.arange(1, bins) // bins - 1
    edges = np.unique(np.sort(relevance)[last[last >= 0]])
    # A pair that equals an edge belongs to the bin below it, so ties stay together.
    index = np.searchsorted(edges, relevance, side="left")
    n = np.bincount(index, minlength=len(edges) + 1)
    # If the maximum relevance is also an edge, the last bin is empty, and its mean 0 / 0 is removed below.
    with np.errstate(invalid="ignore"):
        x, mean = (np.bincount(index, v, len(n)) / n for v in (relevance, human))
        variance = np.bincount(index, (human - mean[index]) ** 2, len(n)) / n
    nonempty = n > 0
    return Bins(x[nonempty], mean[nonempty], np.sqrt(variance[nonempty]), n[nonempty])


def calibration_points(scored: PairScores, bins: int = _BINS) -> Iterator[Record]:
    """Yield points of mean `relevance` (x) and mean `human` score (y), over pairs of two images.

    `bins`: maximum number of points per task. Pairs of one image are left out, because people rate them high at any
    relevance.
    """
    for task, pairs in scored.tasks.items():
        chosen = ~np.isin(pairs.method, OWN) & pairs.scored
        levels = bin_pairs(pairs.relevance[chosen], pairs.human.score[chosen], bins)
        for level in zip(*levels, strict=True):
            x, mean, spread = (round(float(value), 4) for value in level[:3])
            point = {"relevance": x, "human": mean, "spread": spread, "n": int(level[3])}
            yield {"label": scored.label, "task": task, **point}
