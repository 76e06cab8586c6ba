"""Contract: drawn pairs are of the kind that they are named for, and uniform; shares equal counts over the pairs.

Judged pairs are a seeded sample of the pairs that all labels scored, joined by id. Agreement is the rho of Spearman,
and the largest disagreements are those of a sort by difference of ranks.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import rankdata, spearmanr

from relabel.core.types import Pooling, Rows, Scores
from relabel.corpus import Corpus, References
from relabel.corpus.table import Caption
from relabel.datasets.cxc import HumanScores, Task
from relabel.judge.cxc import ScoredPairs
from relabel.judge.cxc_figures import PairScores
from relabel.judge.report import JudgedLabel
from relabel.page import charts
from relabel.page.captions import Nearest, PageCaptions, choose_captions, draw_scores
from relabel.page.charts import JudgedPairs, distribution, headline, scatter
from relabel.sources.relevance import Relevance


def captions_of(sizes: list[int]) -> PageCaptions:
    captions = [
        Caption(f"c:{i}-{j}", f"i:{i}", "test", f"{i} {j}") for i, size in enumerate(sizes) for j in range(size)
    ]
    corpus = Corpus.from_captions(captions)
    return choose_captions(corpus, range(len(corpus)))


class Numbers(Relevance):
    """Relevance of a caption: its number as a reference, in thousands, and as a candidate."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus, self.rows, self.pooling = corpus, range(len(corpus)), "max"

    def pairs(self, references: References, captions: Rows, pooling: Pooling | None = None) -> Scores:
        return references.rows * 1000.0 + captions

    def query(self, text: str, captions: Rows) -> Scores:
        return np.zeros(len(captions))


def test_drawn_pairs_are_of_their_kind_and_equally_likely() -> None:
    captions = captions_of([3, 2] * 20)
    every = [(i, j) for i in range(100) for j in range(100) if i != j]
    near = np.array([pair for pair in every if sum(pair) % 7 == 0]).T
    drawn = draw_scores(Numbers(captions.corpus), captions, Nearest(near[0], near[1], near[0] * 1000.0 + near[1]))
    for kind, same in (("same_image", True), ("neighbours", False), ("random", False)):
        a, b = np.divmod(drawn[kind].astype(int), 1000)
        assert len(a) > 50
        assert (a != b).all()
        assert ((captions.image[a] == captions.image[b]) == same).all()
    assert set(drawn["neighbours"]) <= {1000.0 * a + b for a, b in near.T}
    threes = captions_of([3] * 300)
    several = draw_scores(Numbers(threes.corpus), threes, None)["same_image"]
    a, b = np.divmod(several.astype(int), 1000)
    steps = Counter(zip((a % 3).tolist(), ((b - a) % 3).tolist(), strict=True))
    assert len(steps) == 6
    assert all(count == pytest.approx(len(several) / 6, rel=0.15) for count in steps.values())


def test_a_distribution_counts_the_pairs() -> None:
    rng = np.random.default_rng(0)
    scores = {kind: rng.random(500) ** power for kind, power in (("same_image", 1), ("neighbours", 2), ("random", 6))}
    scores["random"][:7] = np.nan
    figure = distribution(scores, "var(--label-0)")
    every = np.concatenate([*scores.values(), [0]])
    edges = np.linspace(0, np.nanquantile(every, 0.99), 41)
    for trace, values in zip(figure["data"], scores.values(), strict=True):
        assert trace["x"] == pytest.approx(edges)
        finite = values[~np.isnan(values)]
        for i, share in enumerate(trace["y"][:-1]):
            last = i == len(edges) - 2
            inside = (finite >= edges[i]) & ((finite < edges[i + 1]) | last)
            assert share == pytest.approx(inside.mean())


PAIRS = 300


@pytest.fixture(scope="module")
def captions() -> PageCaptions:
    captions = [Caption(f"coco:{i}", f"coco:1{i // 5:03d}", "test", f"caption {i}") for i in range(100)]
    corpus = Corpus.from_captions(captions)
    return choose_captions(corpus, range(len(corpus)))


def scored(label: str, seed: int, missing: int | None = None) -> PairScores:
    """Scores of caption-image pairs in a random order; the last pair is of an image that no corpus has."""
    rng, order = np.random.default_rng(5), np.random.default_rng(seed)
    caption, image = rng.integers(0, 100, PAIRS), rng.integers(0, 20, PAIRS)
    human = np.round(rng.random(PAIRS) * 5, 1)
    relevance = np.round(human / 5 + order.normal(0, 0.3, PAIRS), 2)
    images = [f"coco:1{i:03d}" for i in image]
    images[-1] = "coco:9999"
    if missing is not None:
        relevance[missing] = np.nan
    method = ["c2i_original" if c // 5 == i else "c2i_intrasim" for c, i in zip(caption, image, strict=True)]
    pairs = HumanScores("sits", "test", [f"coco:{i}" for i in caption], images, human, method)
    tasks: dict[Task, ScoredPairs] = {"sits": ScoredPairs(pairs, relevance, [None] * PAIRS, image.astype(np.int32))}
    return PairScores(JudgedLabel(label=label, params={"source": label, "pooling": "max"}), "test", tasks)


def test_a_sample_holds_the_pairs_of_all_labels_by_id(captions: PageCaptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charts, "POINTS", 40)
    labels = [scored("a", 1), scored("b", 2, missing=3)]
    pairs = JudgedPairs(labels, "sits", captions)
    assert len(pairs.human) == PAIRS - 2  # without the missing pair and the pair of another corpus
    assert len(set(pairs.sample.tolist())) == 40
    assert pairs.sample.tolist() == JudgedPairs(labels, "sits", captions).sample.tolist()
    human = labels[0].tasks["sits"].human
    rows = {key: i for i, key in enumerate(zip(human.left, human.right, human.score, strict=True))}
    corpus = captions.corpus
    for i in pairs.sample:
        row = rows[corpus.caption_ids[pairs.left[i]], corpus.image_ids[pairs.right[i]], pairs.human[i]]
        assert row not in (3, PAIRS - 1)
        assert pairs.one_image[i] == (human.method[row] == "c2i_original")
        for one in labels:
            assert pairs.relevance[one.label][i] == pytest.approx(one.tasks["sits"].relevance[row], abs=1e-4)
    of_two, of_one, line = scatter(pairs, "a", "red")["data"]
    for trace, one_image in ((of_two, False), (of_one, True)):
        index = pairs.sample[trace["customdata"]]
        assert (pairs.one_image[index] == one_image).all()
        assert trace["x"] == pytest.approx(pairs.relevance["a"][index], abs=1e-4)
        assert trace["y"].tolist() == pairs.human[index].tolist()
    assert len(of_two["x"]) + len(of_one["x"]) == 40
    assert list(line["x"]) == sorted(line["x"])


def test_agreement_is_spearmans_rho(captions: PageCaptions) -> None:
    labels = [scored("a", 1), scored("b", 2)]
    pairs = labels[0].tasks["sits"]
    of_all, of_two = JudgedPairs(labels, "sits", captions).agreement().values()
    everything = np.arange(PAIRS - 1)
    for rho, chosen in ((of_all, everything), (of_two, everything[pairs.method[:-1] == "c2i_intrasim"])):
        series = [one.tasks["sits"].relevance[chosen] for one in labels] + [pairs.human.score[chosen]]
        for i in range(3):
            for j in range(3):
                assert rho[i][j] == pytest.approx(spearmanr(series[i], series[j]).statistic, abs=1e-4)
    constant = replace(labels[0], tasks={"sits": replace(pairs, relevance=np.ones(PAIRS))})
    rho = JudgedPairs([constant, labels[1]], "sits", captions).agreement()["All pairs"]
    assert rho[0] == [None, None, None]
    assert rho[1][1] == 1


def test_one_pair_has_no_correlation_and_no_warning(recwarn: pytest.WarningsRecorder) -> None:
    assert charts._spearman(np.ones((2, 1))) == [[None, None], [None, None]]
    assert not recwarn.list


def test_the_largest_disagreements_are_those_of_a_sort(captions: PageCaptions) -> None:
    labels = [scored("a", 1), scored("b", 2)]
    judged = JudgedPairs(labels, "sits", captions)
    for one in labels:
        pairs = one.tasks["sits"]
        x, y = pairs.relevance[:-1], pairs.human.score[:-1]
        gap = (rankdata(x) - rankdata(y)) / len(x)
        order = sorted(range(len(x)), key=lambda i: (-abs(gap[i]), i))[:50]
        worst = judged.worst(one.label)
        assert [captions.corpus.caption_ids[i] for i in worst["left"]] == [pairs.human.left[i] for i in order]
        assert worst["gap"] == pytest.approx([100 * gap[i] for i in order], abs=1e-3)
        assert worst["human"].tolist() == y[order].tolist()
        assert worst["relevance"] == pytest.approx(x[order], abs=1e-4)


def test_the_headline_has_the_defined_figures() -> None:
    rows = [
        {"label": "a", "task": "sits", "subset": "all", "pearson": 0.7, "low": 0.6, "high": 0.75},
        {"label": "b", "task": "sits", "subset": "all", "pearson": 0.5, "low": None, "high": None},
        {"label": "a", "task": "sits", "subset": "c2i_intrasim", "pearson": None, "low": None, "high": None},
        {"label": "a", "task": "sts", "subset": "all", "pearson": 0.1, "low": None, "high": None},
    ]
    of_all, of_two = headline(rows, {"a": "red", "b": "blue"})["data"]
    assert (of_all["x"], of_all["y"], of_all["marker"]["color"]) == ([0.7, 0.5], ["a", "b"], ["red", "blue"])
    assert of_all["error_x"]["array"] == pytest.approx([0.05, 0])
    assert of_all["error_x"]["arrayminus"] == pytest.approx([0.1, 0])
    assert of_two["x"] == []
