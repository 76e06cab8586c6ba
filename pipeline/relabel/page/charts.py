"""Data of a page's charts: distributions of relevance, and human-judged pairs.

A distribution covers pairs of captions of one image, neighbours of two images, and random pairs. Judged pairs give a
sample for the charts, the agreement between labels, and the largest disagreements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.statistics import pearson, round_relative
from relabel.core.types import Scores
from relabel.datasets.cxc import SIDES, Side, Task
from relabel.datasets.judged import ALL
from relabel.judge.cxc_figures import NON_GT, OWN, PairScores, calibration_points
from relabel.page.captions import Nearest, PageCaptions, positions_in

PAIRS = 5_000
"""Pairs of each kind."""
KINDS = ("same_image", "neighbours", "random")
"""Pairs of captions of one image, neighbours of two images, and random pairs of two images."""
_BINS = 40
_SUBSETS = {ALL: "all", NON_GT: "two_images"}
"""Subset of CxC's pairs of a caption and an image to its name on the page."""


class CaptionPairs(NamedTuple):
    """Pairs of captions by their numbers on the page: references and candidates, (P,) int64 each."""

    references: NDArray[np.int64]
    candidates: NDArray[np.int64]


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


def distribution(scores: Mapping[str, Scores]) -> dict[str, Any]:
    """Summarise the relevance of a label for pairs by kind, JSON-able.

    `scores`: by kind of `KINDS`, (P,) float64. NaN is left out, and a kind without scores, too. Returns dict: `edges`,
    of bins of equal width that all kinds share; by kind, `shares` of the pairs in each bin (the last one counts all
    pairs beyond it), `medians`, and `counts` of pairs with a score; and `close`, the share of neighbours of two images
    that are at least as relevant as the median pair of one image.
    """
    finite = {kind: scores[kind][~np.isnan(scores[kind])] for kind in KINDS if kind in scores}
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
    return {
        "edges": np.round(edges, 4).tolist(),
        "shares": {kind: np.round(values, 5).tolist() for kind, values in shares.items()},
        "medians": medians,
        "counts": {kind: len(values) for kind, values in finite.items()},
        "close": close,
    }


def headline(records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return Pearson's r of CxC's pairs of a caption and an image, by label and subset.

    `records`: of the reports of a page.
    """
    return [
        {"label": r["label"], "subset": _SUBSETS[r["subset"]], "r": r["pearson"], "low": r["low"], "high": r["high"]}
        for r in records
        if r["task"] == "sits" and r["subset"] in _SUBSETS
    ]


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
    lines = [point for scored in labels for point in calibration_points(scored)]
    data: dict[str, Any] = {}
    for task in _ORDER:
        if not all(task in scored.tasks for scored in labels):
            continue
        pairs = _TaskPairs(labels, task, captions)
        if not pairs.count:
            continue
        drawn = np.random.default_rng(seed).choice(pairs.count, min(POINTS, pairs.count), replace=False)
        points = [point for point in lines if point["task"] == task]
        data[task] = {
            "sides": SIDES[task],
            "n": pairs.count,
            "sample": pairs.export(np.sort(drawn)),
            "worst": {label: pairs.worst(label) for label in pairs.relevance},
            "agreement": pairs.agreement(),
            "calibration": {
                label: [[point["relevance"], point["human"]] for point in points if point["label"] == label]
                for label in pairs.relevance
            },
        }
    return data


class _TaskPairs:
    """Pairs of one task that all labels have scored and the page shows."""

    def __init__(self, labels: Sequence[PairScores], task: Task, captions: PageCaptions) -> None:
        pairs = {scored.label: scored.tasks[task] for scored in labels}
        first = labels[0].tasks[task]
        names = zip((first.human.left, first.human.right), SIDES[task], strict=True)
        sides = [_locate(ids, side, captions) for ids, side in names]
        complete = (sides[0] >= 0) & (sides[1] >= 0)
        for one in pairs.values():
            complete &= one.scored
        index = np.flatnonzero(complete)
        self.count = len(index)
        self.left, self.right = (side[index] for side in sides)
        self.human = first.human.score[index]
        self.one_image = np.isin(first.method[index], OWN)
        # Equal texts score 1 up to float32 rounding; a rank must see them as ties.
        self.relevance = {label: round_relative(one.relevance[index]) for label, one in pairs.items()}

    def worst(self, label: str) -> dict[str, Any]:
        """Return the pairs whose ranks by label and by people differ most, with the differences in percent."""
        gap = _ranks(self.relevance[label]) - _ranks(self.human)
        order = np.lexsort((np.arange(self.count), -np.abs(gap)))[:WORST]
        return self.export(order) | {"gap": np.round(100 * (gap[order] / self.count), 1).tolist()}

    def export(self, pairs: NDArray[np.int64]) -> dict[str, Any]:
        return {
            "left": self.left[pairs].tolist(),
            "right": self.right[pairs].tolist(),
            "human": np.round(self.human[pairs], 2).tolist(),
            "one_image": self.one_image[pairs].astype(int).tolist(),
            "relevance": {label: np.round(values[pairs], 4).tolist() for label, values in self.relevance.items()},
        }

    def agreement(self) -> dict[str, list[list[float | None]]]:
        """Return Spearman's rho of all pairs of labels, people last, over all pairs and over pairs of two images."""
        series = [*self.relevance.values(), self.human]
        subsets = {"all": np.full(self.count, True)}
        if self.one_image.any() and not self.one_image.all():
            subsets["two_images"] = ~self.one_image
        return {name: _spearman([values[pairs] for values in series]) for name, pairs in subsets.items()}


def _locate(ids: Sequence[str], side: Side, captions: PageCaptions) -> NDArray[np.int64]:
    """Return the positions of ids on the page; -1 where the page lacks one."""
    corpus, of_caption = captions.corpus, side == "caption"
    numbers = corpus.row_of if of_caption else corpus.image_of
    values = np.fromiter((numbers.get(i, -1) for i in ids), np.int32, len(ids))
    return positions_in(captions.rows if of_caption else captions.images, values)


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
