"""Contract: figures on CxC are the coefficients of the scored pairs of each task and subset; other pairs are counted
and named. same_image has its known figures.

A draw of the sampled Spearman correlation takes half of the units and one pair of each, and equals an explicit loop
over the same random numbers.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr
from tests.relabel.judge.conftest import Odd

from relabel.core.numeric.statistics import kendall, pearson, round_relative, spearman
from relabel.corpus import Corpus
from relabel.judge import JudgeParams
from relabel.judge.cxc import score_cxc
from relabel.judge.cxc_figures import PairScores, compare
from relabel.judge.rank_bootstrap import sampled_spearman
from relabel.judge.report import JudgedLabel, LabelFigures
from relabel.sources.relevance import Relevance
from relabel.sources.same_image import SameImageRelevance
from relabel.store.workdir import Work


def scored_by(relevance: Relevance, corpus: Corpus, label: str, folder: Path) -> PairScores:
    score_cxc(corpus, relevance, label == "same_image", "test", Work(folder))
    return PairScores.open(folder, JudgedLabel(label=label, params={"source": label, "pooling": "max"}), "test", False)


def test_same_image_has_the_known_figures(cxc_test: Corpus, tmp_path: Path) -> None:
    relevance = SameImageRelevance(cxc_test, range(len(cxc_test)), "max")
    judged = compare(scored_by(relevance, cxc_test, "same_image", tmp_path), JudgeParams(resamples=200), draws=300)
    rows = {(record["task"], record["subset"]): record for record in judged.records}
    all_pairs = rows["sits", "all"]
    assert all_pairs["n"] == 44_833
    assert all_pairs["pearson"] == pytest.approx(0.7115, abs=5e-5)
    assert 0.705 < all_pairs["low"] < 0.7115 < all_pairs["high"] < 0.718
    other = rows["sits", "c2i_intrasim"]
    assert (other["n"], other["pearson"], other["low"]) == (19_833, None, None)
    assert rows["sts", "all"]["pearson"] == pytest.approx(0.712, abs=5e-4)
    assert rows["sis", "all"]["pearson"] is None
    sampled = {key: row["sampled_spearman"] for key, row in rows.items() if key[0].endswith("_sampled")}
    assert sampled == {
        ("sts_sampled", "all"): pytest.approx(0.699, abs=0.0015),
        ("sis_sampled", "all"): None,  # constant relevance
        ("sits_sampled", "all"): pytest.approx(0.784, abs=0.0015),
        ("sits_sampled", "c2i_intrasim"): None,
    }
    assert [rows[key]["units"] for key in sampled] == [25_000, None, 5_000, None]


def test_figures_are_those_of_the_scored_pairs(few: Corpus, tmp_path: Path) -> None:
    partial_label = scored_by(Odd(few, range(len(few))), few, "odd", tmp_path / "pairs")  # of 300 images alone
    judged = compare(partial_label, JudgeParams(resamples=20), draws=5)
    judged.write(Work(tmp_path / "figures"))
    kept = LabelFigures.read(tmp_path / "figures")
    assert (kept.records, kept.calibration) == (judged.records, judged.calibration)
    assert vars(kept.label) == vars(judged.label) | {"image_vectors": []}
    pairs = partial_label.tasks["sits"]
    for subset in ("all", "c2i_original", "c2i_intrasim"):
        (row,) = [r for r in kept.records if (r["task"], r["subset"]) == ("sits", subset)]
        inside = [i for i, method in enumerate(pairs.human.method) if subset in ("all", method)]
        scored = [i for i in inside if not np.isnan(pairs.relevance[i])]
        x, y = round_relative(pairs.relevance[scored]), pairs.human.score[scored]
        assert (row["n"], row["missing"]) == (len(scored), len(inside) - len(scored))
        assert (row["pearson"], row["spearman"], row["kendall"]) == (pearson(x, y), spearman(x, y), kendall(x, y))
        first = next(i for i in inside if np.isnan(pairs.relevance[i]))
        assert row["first_missing"].startswith(f"{pairs.human.left[first]} {pairs.human.right[first]}: ")
        assert row["first_missing"].count("; ") == 4


P = 60
RNG = np.random.default_rng(7)
HUMAN = RNG.integers(0, 6, P) / 2
RELEVANCE = np.round(HUMAN + RNG.normal(size=P), 1)
UNITS = RNG.integers(0, 21, P) * 10


def by_loop(units: np.ndarray, draws: int, seed: int) -> list[float]:
    """Compute the draws by explicit loops, from the random numbers of a single batch."""
    pairs_of = {u: [p for p in range(P) if units[p] == u] for u in sorted({*units})}
    names, half = list(pairs_of), len(pairs_of) // 2
    generator = np.random.default_rng(seed)
    keys, shares = generator.random((draws, len(names))), generator.random((draws, half))
    correlations = []
    for d in range(draws):
        units_drawn = sorted(sorted(range(len(names)), key=lambda u, d=d: keys[d, u])[:half])
        picked = [
            pairs_of[names[u]][int(share * len(pairs_of[names[u]]))]
            for u, share in zip(units_drawn, shares[d], strict=True)
        ]
        correlations.append(spearmanr(RELEVANCE[picked], HUMAN[picked])[0])
    return correlations


def test_sampled_spearman_equals_an_explicit_loop() -> None:
    expected = by_loop(UNITS, 40, 3)
    result = sampled_spearman(RELEVANCE, HUMAN, UNITS, 40, 3)
    assert result is not None
    assert result.sampled_spearman == pytest.approx(np.mean(expected), abs=1e-12)
    assert result.sampled_deviation == pytest.approx(np.std(expected), abs=1e-12)
    assert (result.units, result.draws) == (len({*UNITS}), 40)
