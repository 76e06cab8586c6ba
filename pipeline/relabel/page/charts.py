"""Charts of a page: data of human-judged pairs, and figures for plotly's JavaScript.

A figure has traces (`data`), axis titles and options of the y axis. The page adds colours and layout. Arrays are
written as JSON lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relabel.core.numeric.statistics import pearson, round_relative
from relabel.core.types import Scores
from relabel.datasets.cxc import SIDES, Task
from relabel.datasets.evaluation_sets import ALL
from relabel.judge.calibration import Reliability
from relabel.judge.cxc_figures import NON_GT, OWN, PairScores, bin_pairs
from relabel.judge.report import Record
from relabel.page.captions import PageCaptions, positions_in
from relabel.sources.judged import find_pairs

Figure = dict[str, Any]
TASKS: dict[Task, str] = {"sits": "caption and image", "sts": "two captions", "sis": "two images"}
"""Tasks in the order of the tables, with descriptions of their pairs."""
POINTS = 2_000
"""Maximum number of judged pairs in a chart."""
WORST = 50
"""Number of pairs with the maximum disagreement per label."""
_BINS = 40


class ChartPairs:
    """Judged pairs of one task that are on the page and have a score by every label.

    `left`, `right`: numbers on the page. `sample`: random sample of pairs for the charts.
    """

    def __init__(self, labels: Sequence[PairScores], task: Task, captions: PageCaptions) -> None:
        pairs, first = {label.label: label.tasks[task] for label in labels}, labels[0].tasks[task]
        self.task, self.sides = task, SIDES[task]
        places = {"caption": captions.rows, "image": captions.images}
        pairs_of = zip(self.sides, find_pairs(first.human, captions.corpus), strict=True)
        left, right = (positions_in(places[side], numbers) for side, numbers in pairs_of)
        scored = np.logical_and.reduce([scores.scored for scores in pairs.values()])
        index = np.flatnonzero((left >= 0) & (right >= 0) & scored)
        self.left, self.right, self.human = left[index], right[index], first.human.score[index]
        self.one_image = np.isin(first.method[index], OWN)
        # Scores of equal texts differ by float32 rounding, but must be ties in ranks.
        self.relevance = {label: round_relative(scores.relevance[index]) for label, scores in pairs.items()}
        self.sample = np.sort(np.random.default_rng(0).permutation(len(index))[:POINTS])

    def records(self, index: NDArray[np.int64]) -> dict[str, Any]:
        """Return columns with the page numbers of pairs."""
        return {"left": self.left[index], "right": self.right[index], "one_image": self.one_image[index]}

    def data(self, colours: Mapping[str, str]) -> dict[str, Any]:
        """Return the charts and tables of the task. `colours`: colour of each label."""
        names = [*self.relevance, "people"]
        return {
            "name": TASKS[self.task],
            "sides": self.sides,
            "note": f"A random sample of {len(self.sample):,} of {len(self.human):,} pairs, the same for every label.",
            "sample": self.records(self.sample),
            "scatter": {label: scatter(self, label, colours[label]) for label in self.relevance},
            "matrices": {title: matrix(rho, names) for title, rho in self.agreement().items()},
            "worst": {label: self.worst(label) for label in self.relevance},
        }

    def worst(self, label: str) -> dict[str, Any]:
        """Return the pairs with the maximum rank difference between label and people, in percent of all ranks."""
        # Imported here to keep the command line fast.
        from scipy.stats import rankdata

        # Ranks are multiples of 0.5, so equal differences are exactly equal.
        gap = rankdata(self.relevance[label]) - rankdata(self.human)
        order = np.argsort(-np.abs(gap), kind="stable")[:WORST]
        figures = {"gap": 100 * gap / len(gap), "relevance": self.relevance[label], "human": self.human}
        return self.records(order) | {name: np.round(values[order], 4) for name, values in figures.items()}

    def agreement(self) -> dict[str, list[list[float | None]]]:
        """Return matrices of Spearman's rho between all labels and people (last); None if one is constant."""
        series, subsets = np.stack([*self.relevance.values(), self.human]), {"All pairs": self.human >= 0}
        if self.one_image.any() and not self.one_image.all():
            subsets["Pairs of two images (non-GT)"] = ~self.one_image
        return {title: _spearman(series[:, mask]) for title, mask in subsets.items()}


def _spearman(series: NDArray[np.float64]) -> list[list[float | None]]:
    from scipy.stats import rankdata

    ranks = rankdata(series, axis=1)
    return [[None if (rho := pearson(a, b)) is None else round(rho, 4) for b in ranks] for a in ranks]


def _trace(mode: str, x: Sequence[float] | Scores, y: Sequence[str] | Scores, **options: Any) -> Figure:
    return {"type": "scatter", "mode": mode, "x": x, "y": y, **options}


def headline(records: Sequence[Record], colours: Mapping[str, str]) -> Figure:
    """Draw Pearson's r for CxC's pairs of a caption and an image. Hollow points: pairs of two images."""
    data = []
    for subset, title, symbol in ((ALL, "all pairs", "circle"), (NON_GT, "pairs of two images", "circle-open")):
        of_subset = [r for r in records if (r["task"], r["subset"]) == ("sits", subset) and r["pearson"] is not None]
        r, low, high = ([record[name] for record in of_subset] for name in ("pearson", "low", "high"))
        # Without a bootstrap, the bounds are None.
        above, below = ([abs((end or x) - x) for end, x in zip(ends, r, strict=True)] for ends in (high, low))
        error = {"type": "data", "symmetric": False, "array": above, "arrayminus": below, "color": "var(--muted)"}
        marker = {"size": 11, "symbol": symbol, "color": [colours[record["label"]] for record in of_subset]}
        options = {"marker": marker, "error_x": error, "hovertemplate": f"%{{y}}, {title}: %{{x:.3f}}<extra></extra>"}
        data.append(_trace("markers", r, [record["label"] for record in of_subset], **options))
    return {"data": data, "x": "Pearson's r", "y": "", "options": {"autorange": "reversed"}}


def scatter(pairs: ChartPairs, label: str, colour: str) -> Figure:
    """Draw relevance against human score: a sample (hollow: pairs of one image), and the mean of non-GT pairs."""
    x, y, data = pairs.relevance[label], pairs.human, []
    for one_image, symbol in ((False, "circle"), (True, "circle-open")):
        numbers = np.flatnonzero(pairs.one_image[pairs.sample] == one_image)
        index = pairs.sample[numbers]
        marker = {"size": 5, "symbol": symbol, "color": colour, "opacity": 0.5}
        hover = f"human %{{y}}, {label} %{{x:.3f}}<br>%{{text}}<extra></extra>"
        more = {"meta": pairs.task, "customdata": numbers, "hovertemplate": hover}
        data.append(_trace("markers", np.round(x[index], 4), y[index], marker=marker, **more))
    bins = bin_pairs(x[~pairs.one_image], y[~pairs.one_image])
    data.append(_trace("lines", bins.relevance, bins.mean, line={"color": "var(--ink)"}, hoverinfo="skip"))
    return {"data": data, "x": "relevance", "y": "human score (0 to 5)", "options": {"range": [-0.2, 5.2], "dtick": 1}}


def diagram(found: Reliability, colour: str) -> Figure:
    """Draw the probabilities that a curve states against the actual shares, with the diagonal."""
    dotted = {"color": "var(--muted)", "dash": "dot"}
    data = [_trace("lines", np.arange(2.0), np.arange(2.0), line=dotted, hoverinfo="skip")]
    hover = "stated %{x:.1%}, actual %{y:.1%} of %{customdata:,} pairs<extra></extra>"
    more = {"line": {"color": colour}, "customdata": found.sizes, "hovertemplate": hover}
    data.append(_trace("lines+markers", np.round(found.stated, 4), np.round(found.actual, 4), **more))
    return {"data": data, "x": "stated probability", "y": "actual share", "options": {"range": [-0.03, 1.03]}}


def matrix(rho: Sequence[Sequence[float | None]], names: Sequence[str]) -> Figure:
    """Draw a matrix of correlations. Undefined values are empty."""
    trace = {"type": "heatmap", "x": names, "y": names, "z": rho, "zmin": 0, "zmax": 2, "showscale": False}
    trace |= {"colorscale": [[0, "var(--surface)"], [1, "var(--accent)"]], "texttemplate": "%{z:.2f}"}
    return {"data": [trace | {"hoverinfo": "skip"}], "x": "", "y": "", "options": {"autorange": "reversed"}}


def bin_scores(scores: Mapping[str, Scores]) -> tuple[Scores, dict[str, Scores]]:
    """Return the edges of shared bins, and for each kind that has pairs, the share of its pairs in each bin.

    The last bin ends at the 99th percentile and includes higher scores. Otherwise CIDEr-D would have many empty bins.
    """
    finite = {kind: values[~np.isnan(values)] for kind, values in scores.items()}
    pooled = np.concatenate([*finite.values(), np.zeros(1)])
    low, high = float(pooled.min()), float(np.quantile(pooled, 0.99))
    edges = np.linspace(low, high if high > low else low + 1, _BINS + 1)
    counts = {kind: np.histogram(np.minimum(values, edges[-1]), edges)[0] for kind, values in finite.items()}
    return edges, {kind: count / count.sum() for kind, count in counts.items() if count.sum()}


def distribution(scores: Mapping[str, Scores], colour: str) -> Figure:
    """Draw the distribution of relevance for each kind of pairs from `draw_scores`, in shared bins."""
    colours, data, top = {"same_image": colour, "neighbours": "var(--ink)", "random": "var(--baseline)"}, [], 0.02
    edges, binned = bin_scores(scores)
    for kind, shares in binned.items():
        # Nearly all random pairs may be in one bin, if they share no n-gram. It would flatten all other bins.
        top = top if kind == "random" else max(top, float(shares.max()))
        line = {"color": colours[kind], "shape": "hv", "dash": "dot" if kind == "neighbours" else "solid"}
        hover = f"{kind}: %{{y:.1%}} at %{{x:.2f}}<extra></extra>"
        points = _trace("lines", edges, np.append(shares, shares[-1]), line=line, hovertemplate=hover)
        data.append(points | {"name": kind})
    return {
        "data": data,
        "x": "relevance",
        "y": "share of pairs",
        "options": {"tickformat": ".0%", "range": [0, 1.15 * top]},
    }
