"""Contract: the agreement of labels and people on a page is the rho of Spearman; that of a constant is undefined."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr

from relabel.corpus import Corpus
from relabel.corpus.table import Caption
from relabel.datasets.cxc import HumanScores, Task
from relabel.judge.cxc import ScoredPairs
from relabel.judge.cxc_figures import PairScores
from relabel.judge.report import JudgedLabel
from relabel.page.captions import PageCaptions, choose_captions
from relabel.page.charts import JudgedPairs

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
