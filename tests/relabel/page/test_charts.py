"""Contract: drawn pairs are of the kind that they are named for, and uniform; shares, medians and the share of close
neighbours equal counts over the pairs.

Judged pairs are a seeded sample of the pairs that all labels scored, joined by id. Agreement is the rho of Spearman,
and the largest disagreements are those of a sort by difference of ranks.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy.stats import rankdata, spearmanr

from relabel.corpus import Corpus
from relabel.corpus.table import Caption
from relabel.datasets.cxc import HumanScores, Task
from relabel.judge.cxc import ScoredPairs
from relabel.judge.cxc_figures import PairScores
from relabel.judge.report import JudgedLabel
from relabel.page import charts
from relabel.page.captions import Nearest, PageCaptions, choose_captions
from relabel.page.charts import distribution, draw_neighbours, draw_pairs, judged_data
from relabel.stages import Project


def captions_of(sizes: list[int]) -> PageCaptions:
    captions = [
        Caption(f"c:{i}-{j}", f"i:{i}", "test", f"{i} {j}") for i, size in enumerate(sizes) for j in range(size)
    ]
    corpus = Corpus.from_captions(captions)
    return choose_captions(corpus, range(len(corpus)))


def test_drawn_pairs_are_of_their_kind() -> None:
    captions = captions_of([1 + i % 4 for i in range(300)])
    pairs = draw_pairs(captions, most=1000)
    for kind, same in (("same_image", True), ("random", False)):
        a, b = pairs[kind].references, pairs[kind].candidates
        assert len(a) == 1000
        assert (a != b).all()
        assert ((captions.image[a] == captions.image[b]) == same).all()


def test_every_pair_of_a_kind_is_equally_likely() -> None:
    captions = captions_of([3, 2] * 2000)
    pairs = draw_pairs(captions, most=20_000)["same_image"]
    steps = Counter()
    for a, b in zip(pairs.references.tolist(), pairs.candidates.tolist(), strict=True):
        start = int(captions.starts[captions.image[a]])
        steps[int(captions.starts[captions.image[a] + 1]) - start, a - start, b - start] += 1
    assert len(steps) == 6 + 2
    expected = {3: 20_000 * 0.6 / 6, 2: 20_000 * 0.4 / 2}
    for (size, *_), count in steps.items():
        assert count == pytest.approx(expected[size], rel=0.1)
    random = draw_pairs(captions, most=20_000)["random"]
    assert np.mean(random.candidates > random.references) == pytest.approx(0.5, abs=0.02)
    assert random.candidates.max() > len(captions) - 20
    assert random.candidates.min() < 20


def test_a_kind_that_the_captions_lack_is_left_out() -> None:
    assert set(draw_pairs(captions_of([1, 1, 1]))) == {"random"}
    assert set(draw_pairs(captions_of([4]))) == {"same_image"}


def test_neighbours_are_of_other_images(small_project: Project) -> None:
    captions = captions_of([2, 2, 1])
    positions = np.array([[1, 2], [2, 4], [3, 0], [5, 5], [0, 1]], np.int32)
    scores = np.arange(10, dtype=np.float32).reshape(5, 2)
    neighbours_drawn = draw_neighbours(captions, Nearest(positions, scores))
    # Captions 0 and 1, and 2 and 3, are of one image; 5 stands for no caption.
    assert sorted(neighbours_drawn.tolist()) == [1, 2, 3, 5, 8, 9]
    assert len(draw_neighbours(captions, Nearest(positions, scores), most=4)) == 4


def test_a_summary_counts_the_pairs() -> None:
    rng = np.random.default_rng(0)
    scores = {kind: rng.random(500) ** power for kind, power in (("random", 6), ("same_image", 1), ("neighbours", 2))}
    scores["random"][:7] = np.nan
    result = distribution(scores)
    assert list(result["counts"].items()) == [("same_image", 500), ("neighbours", 500), ("random", 493)]
    every = np.concatenate(list(scores.values()))
    edges = np.linspace(0, np.nanquantile([*every, 0], 0.99), len(result["edges"]))
    assert result["edges"] == pytest.approx(edges, abs=5e-5)
    for kind, values in scores.items():
        finite = values[~np.isnan(values)]
        assert result["medians"][kind] == np.median(finite)
        for i, share in enumerate(result["shares"][kind]):
            last = i == len(edges) - 2
            inside = (finite >= edges[i]) & ((finite < edges[i + 1]) | last)
            assert share == pytest.approx(inside.mean(), abs=1e-5)
        assert sum(result["shares"][kind]) == pytest.approx(1, abs=len(edges) * 5e-6)
    assert result["close"] == np.mean(scores["neighbours"] >= np.median(scores["same_image"]))


def test_kinds_without_scores_are_left_out() -> None:
    result = distribution(
        {"same_image": np.array([0.0, 0.0]), "neighbours": np.array([]), "random": np.full(3, np.nan)}
    )
    assert set(result["shares"]) == {"same_image"}
    assert result["close"] is None
    assert np.isfinite(result["edges"]).all()


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
    data = judged_data(labels, captions)["sits"]
    assert data["n"] == PAIRS - 2  # without the missing pair and the pair of another corpus
    sample = data["sample"]
    assert len(sample["human"]) == 40
    human = labels[0].tasks["sits"].human
    rows = {key: i for i, key in enumerate(zip(human.left, human.right, human.score, strict=True))}
    corpus = captions.corpus
    for i in range(40):
        key = corpus.caption_ids[sample["left"][i]], corpus.image_ids[sample["right"][i]], sample["human"][i]
        row = rows[key]
        assert row not in (3, PAIRS - 1)
        assert sample["one_image"][i] == (human.method[row] == "c2i_original")
        for one in labels:
            expected = one.tasks["sits"].relevance[row]
            assert sample["relevance"][one.label][i] == pytest.approx(expected, abs=1e-4)
    assert judged_data(labels, captions)["sits"]["sample"] == sample
    assert judged_data(labels, captions, seed=1)["sits"]["sample"] != sample


def test_agreement_is_spearmans_rho(captions: PageCaptions) -> None:
    labels = [scored("a", 1), scored("b", 2)]
    pairs = labels[0].tasks["sits"]
    for subset, rho in judged_data(labels, captions)["sits"]["agreement"].items():
        chosen = np.arange(PAIRS - 1)
        if subset == "two_images":
            chosen = chosen[pairs.method[:-1] == "c2i_intrasim"]
        series = [one.tasks["sits"].relevance[chosen] for one in labels]
        series.append(pairs.human.score[chosen])
        for i in range(3):
            for j in range(3):
                assert rho[i][j] == pytest.approx(spearmanr(series[i], series[j]).statistic, abs=1e-4)


def test_the_largest_disagreements_are_those_of_a_sort(captions: PageCaptions) -> None:
    labels = [scored("a", 1), scored("b", 2)]
    data = judged_data(labels, captions)["sits"]["worst"]
    for one in labels:
        pairs = one.tasks["sits"]
        x, y = pairs.relevance[:-1], pairs.human.score[:-1]
        gap = (rankdata(x) - rankdata(y)) / len(x)
        order = sorted(range(len(x)), key=lambda i: (-abs(gap[i]), i))[:50]
        worst = data[one.label]
        ids = [captions.corpus.caption_ids[i] for i in worst["left"]]
        assert ids == [pairs.human.left[i] for i in order]
        assert worst["gap"] == pytest.approx([100 * gap[i] for i in order], abs=0.051)
        assert worst["human"] == y[order].tolist()
        assert worst["relevance"][one.label] == pytest.approx(x[order], abs=1e-4)
