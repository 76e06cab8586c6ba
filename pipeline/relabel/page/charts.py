"""Data of a page's charts: distributions of relevance, and human-judged pairs.

A distribution covers pairs of captions of one image, neighbours of two images, and random pairs. Judged pairs give a
sample for the charts, the agreement between labels, and the largest disagreements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.statistics import pearson, round_relative
from relabel.core.types import Scores
from relabel.corpus import References
from relabel.datasets.cxc import SIDES, Side, Task
from relabel.judge.calibration import calibration_points
from relabel.judge.cxc_report import OWN, PairScores
from relabel.page.captions import Nearest, PageCaptions
from relabel.sources.relevance import Relevance

PAIRS = 5_000
"""Pairs of each kind."""
_BINS = 40


@dataclass(frozen=True, eq=False)
class CaptionPairs:
    """Pairs of captions by their numbers on the page: references and candidates, (P,) int64 each."""

    references: NDArray[np.int64]
    candidates: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.references)


@dataclass(frozen=True, eq=False)
class Distribution:
    """Relevance of one label for the three kinds of pairs.

    `edges`: (B + 1,) float64; bins of equal width, shared by all kinds.
    `shares`: dict of str to (B,) float64; share of the pairs of a kind in each bin; pairs beyond the last edge count in
        the last bin.
    `counts`: pairs with a score.
    `close`: share of neighbours of two images that are at least as relevant as the median pair of one image.
    """

    edges: NDArray[np.float64]
    shares: dict[str, NDArray[np.float64]]
    medians: dict[str, float]
    counts: dict[str, int]
    close: float | None


def draw_pairs(captions: PageCaptions, most: int = PAIRS) -> dict[str, CaptionPairs]:
    """Draw pairs of captions of one image ("same_image") and of two images ("random").

    References are drawn uniformly, and the candidate of each uniformly from those of the kind. A kind that the captions
    lack is left out.

    `most`: most pairs of each kind; no more than twice the captions are drawn.
    """
    # A few captions have a few pairs, and a slow label need not score them again and again.
    most = min(most, 2 * len(captions))
    rng = np.random.default_rng(0)
    first, size = captions.starts[:-1][captions.image], np.diff(captions.starts)[captions.image]
    pairs = {}
    several = np.flatnonzero(size > 1)
    if len(several):
        references = rng.choice(several, most)
        # A step of 1 to size - 1 within the image never leads back to the reference.
        step = rng.integers(1, size[references])
        offset = (references - first[references] + step) % size[references]
        pairs["same_image"] = CaptionPairs(references, first[references] + offset)
    candidate_counts = len(captions) - size
    if candidate_counts.min() > 0:
        references = rng.integers(0, len(captions), most)
        candidates = rng.integers(0, candidate_counts[references])
        # Captions after the image of the reference are moved by its size.
        candidates += np.where(candidates >= first[references], size[references], 0)
        pairs["random"] = CaptionPairs(references, candidates)
    return pairs


def draw_neighbours(captions: PageCaptions, nearest: Nearest, most: int = PAIRS) -> Scores:
    """Draw the relevance of captions and their neighbours of other images.

    Returns (P,) float64, P at most `most`.
    """
    image = np.append(captions.image, -1)
    valid = nearest.positions < len(captions)
    scores = nearest.scores[valid & (image[nearest.positions] != captions.image[:, None])].astype(np.float64)
    return np.random.default_rng(0).permutation(scores)[:most]


def score_pairs(relevance: Relevance, captions: PageCaptions, pairs: CaptionPairs) -> Scores:
    """Score pairs of captions, each with one caption as the only reference; NaN where a caption has no encoding."""
    references = References.single(captions.rows[pairs.references])
    return relevance.pairs(references, captions.rows[pairs.candidates], "paired")


def distribution(scores: dict[str, Scores]) -> Distribution:
    """Summarise the relevance of pairs by kind.

    `scores`: dict of str to (P,) float64; by kind: "same_image", "neighbours", "random". NaN is left out, and a kind
    without scores, too.
    """
    finite = {kind: values[~np.isnan(values)] for kind, values in scores.items()}
    finite = {kind: values for kind, values in finite.items() if len(values)}
    pooled = np.concatenate([*finite.values(), np.zeros(1)])
    # Few pairs reach the end of a range such as CIDEr-D's, which would leave most bins empty.
    low, high = float(pooled.min()), float(np.quantile(pooled, 0.99))
    edges = np.linspace(low, high if high > low else low + 1, _BINS + 1)
    shares = {kind: np.histogram(np.minimum(v, edges[-1]), edges)[0] / len(v) for kind, v in finite.items()}
    medians = {kind: float(np.median(values)) for kind, values in finite.items()}
    close = None
    if "same_image" in finite and "neighbours" in finite:
        close = float((finite["neighbours"] >= medians["same_image"]).mean())
    return Distribution(edges, shares, medians, {kind: len(v) for kind, v in finite.items()}, close)


POINTS = 2_000
"""Judged pairs in a chart."""
WORST = 50
"""Pairs of the largest disagreement, for each label."""

_ORDER: tuple[Task, ...] = ("sits", "sts", "sis")
"""Tasks in the order of the tables."""


def judged_data(labels: Sequence[PairScores], captions: PageCaptions, seed: int = 0) -> dict[str, Any]:
    """Return the data of all judged tasks, JSON-able.

    `labels`: of one split, in the order of the page. `captions`: pairs with an item that the page lacks are left out.
    `seed`: seed of the sample. Returns dict: by task: `sides`; `n`, the number of pairs that every label has scored;
    `sample` and `worst`, pairs with the human score and the relevance under each label; `agreement` of labels and
    people ("people" comes last), by subset; and `calibration`, the mean human score by relevance of pairs of two
    images.
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
