"""Human-judged pairs on a page: a sample for the charts, agreement between labels, and the largest disagreements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.statistics import pearson, round_relative
from relabel.datasets.cxc import SIDES, Side, Task
from relabel.judge.calibration import calibration_points
from relabel.judge.cxc_report import OWN, PairScores
from relabel.page.captions import PageCaptions

POINTS = 2_000
"""Judged pairs in a chart."""
WORST = 50
"""Pairs of the largest disagreement, for each label."""

_ORDER: tuple[Task, ...] = ("sits", "sts", "sis")
"""Tasks in the order of the tables."""


def judged_data(labels: Sequence[PairScores], captions: PageCaptions, seed: int = 0) -> dict[str, Any]:
    """Return the data of all judged tasks, JSON-able.

    Parameters
    ----------
    labels : sequence of PairScores
        Of one split, in the order of the page.
    captions : PageCaptions
        Pairs with an item that the page lacks are left out.
    seed : int
        Seed of the sample.

    Returns
    -------
    dict
        By task: `sides`; `n`, the number of pairs that every label has scored; `sample` and `worst`, pairs with the
        human score and the relevance under each label; `agreement` of labels and people ("people" comes last), by
        subset; and `calibration`, the mean human score by relevance of pairs of two images.
    """
    tasks = [task for task in _ORDER if all(task in scored.tables for scored in labels)]
    lines = calibration_points(labels)
    data: dict[str, Any] = {}
    for task in tasks:
        pairs = _TaskPairs(labels, task, captions)
        if pairs.count:
            data[task] = {
                "sides": SIDES[task],
                "n": pairs.count,
                "sample": pairs.export(pairs.sample(seed)),
                "worst": {scored.label: pairs.export(*pairs.worst(scored.label)) for scored in labels},
                "agreement": pairs.agreement(),
                "calibration": {
                    scored.label: [
                        [point["relevance"], point["human"]]
                        for point in lines
                        if point["label"] == scored.label and point["task"] == task
                    ]
                    for scored in labels
                },
            }
    return data


class _TaskPairs:
    """Pairs of one task that all labels have scored and the page shows."""

    def __init__(self, labels: Sequence[PairScores], task: Task, captions: PageCaptions) -> None:
        columns = {scored.label: scored.columns[task] for scored in labels}
        table, first = labels[0].tables[task], columns[labels[0].label]
        sides = [
            _locate(table[name].to_pylist(), side, captions)
            for name, side in zip(("left", "right"), SIDES[task], strict=True)
        ]
        complete = (sides[0] >= 0) & (sides[1] >= 0)
        for column in columns.values():
            complete &= ~np.isnan(column.relevance)
        self.index = np.flatnonzero(complete)
        self.left, self.right = (side[self.index] for side in sides)
        self.human = first.human[self.index]
        self.one_image = np.isin(first.method[self.index], OWN)
        # Equal texts score 1 up to float32 rounding; a rank must see them as ties.
        self.relevance = {label: round_relative(column.relevance[self.index]) for label, column in columns.items()}

    @property
    def count(self) -> int:
        return len(self.index)

    def sample(self, seed: int) -> NDArray[np.int64]:
        """Return the numbers of a random sample of pairs, ascending."""
        drawn = np.random.default_rng(seed).choice(self.count, min(POINTS, self.count), replace=False)
        return np.sort(drawn)

    def worst(self, label: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the pairs whose ranks by label and by people differ most, and the differences, -1..1."""
        gap = _ranks(self.relevance[label]) - _ranks(self.human)
        order = np.lexsort((np.arange(self.count), -np.abs(gap)))[:WORST]
        return order, gap[order] / self.count

    def export(self, pairs: NDArray[np.int64], gap: NDArray[np.float64] | None = None) -> dict[str, Any]:
        data: dict[str, Any] = {
            "left": self.left[pairs].tolist(),
            "right": self.right[pairs].tolist(),
            "human": np.round(self.human[pairs], 2).tolist(),
            "one_image": self.one_image[pairs].astype(int).tolist(),
            "relevance": {label: np.round(values[pairs], 4).tolist() for label, values in self.relevance.items()},
        }
        return data if gap is None else data | {"gap": np.round(100 * gap, 1).tolist()}

    def agreement(self) -> dict[str, list[list[float | None]]]:
        """Return Spearman's rho of all pairs of labels, people last, over all pairs and over pairs of two images."""
        series = [*self.relevance.values(), self.human]
        subsets = {"all": np.full(self.count, True)}
        if self.one_image.any() and not self.one_image.all():
            subsets["two_images"] = ~self.one_image
        return {name: _spearman([values[pairs] for values in series]) for name, pairs in subsets.items()}


def _locate(ids: Sequence[str], side: Side, captions: PageCaptions) -> NDArray[np.int64]:
    """Return the positions of ids on the page; -1 where the page lacks one."""
    corpus = captions.corpus
    numbers = corpus.row_of if side == "caption" else corpus.image_of
    values = np.fromiter((numbers.get(i, -1) for i in ids), np.int32, len(ids))
    return captions.positions(values) if side == "caption" else captions.image_positions(values)


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rank of each value; ties share their mean rank."""
    from scipy.stats import rankdata

    # Multiples of 0.5, so that equal differences of ranks are equal numbers.
    return np.asarray(rankdata(values), np.float64)


def _spearman(series: Sequence[NDArray[np.float64]]) -> list[list[float | None]]:
    """Return Spearman's rho of every two series; None where one of them is constant."""
    # Pearson's r of ranks, so that each series is sorted once.
    ranks = [_ranks(values) for values in series]
    rho = [[pearson(left, right) for right in ranks] for left in ranks]
    return [[None if value is None else round(value, 4) for value in row] for row in rho]
