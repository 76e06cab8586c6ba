"""Contract: the agreement of labels and people on a page is the rho of Spearman over the pairs that it shows; that of a
constant is undefined.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.stats import spearmanr
from tests.relabel.page.page_of_captions import corpus_of, scored_pairs

from relabel.page.captions import choose_captions
from relabel.page.charts import ChartPairs


def test_agreement_is_spearmans_rho() -> None:
    corpus = corpus_of(90)
    labels, page = scored_pairs(corpus, "sits", 90), choose_captions(corpus, range(80))
    pairs = labels[0].tasks["sits"]
    shown = np.arange(80)  # the page lacks the captions of the last pairs
    two_images = shown[pairs.method[:80] == "c2i_intrasim"]
    for rho, chosen in zip(ChartPairs(labels, "sits", page).agreement().values(), (shown, two_images), strict=True):
        series = [*(one.tasks["sits"].relevance[chosen] for one in labels), pairs.human.score[chosen]]
        for i, j in product(range(4), repeat=2):
            constant = min(len(set(series[i])), len(set(series[j]))) == 1  # same_image is 0 for pairs of two images
            expected = None if constant else pytest.approx(spearmanr(series[i], series[j]).statistic, abs=1e-4)
            assert rho[i][j] == expected
