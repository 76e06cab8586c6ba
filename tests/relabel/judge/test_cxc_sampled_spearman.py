"""Contract: each draw of the sampled Spearman correlation takes half of the units and one pair of each, and equals an
explicit loop over the same random numbers. It is seeded, and undefined if nothing can be correlated.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from relabel.judge.cxc_sampled import sampled_spearman

P = 60
RNG = np.random.default_rng(7)
HUMAN = RNG.integers(0, 6, P) / 2
RELEVANCE = np.round(HUMAN + RNG.normal(size=P), 1)
LEFT, RIGHT = RNG.integers(0, 21, P) * 10, RNG.integers(0, 21, P) * 10


def by_loop(units: list[np.ndarray], draws: int, seed: int) -> list[float]:
    """Compute the draws by explicit loops, from the random numbers of a single batch."""
    pairs_of = {
        u: [p for p in range(P) if any(side[p] == u for side in units)] for u in sorted({*np.concatenate(units)})
    }
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


@pytest.mark.parametrize("units", [[LEFT], [LEFT, RIGHT]])
def test_equals_an_explicit_loop(units: list[np.ndarray]) -> None:
    expected = by_loop(units, 40, 3)
    result = sampled_spearman(RELEVANCE, HUMAN, tuple(units), 40, 3)
    assert result is not None
    assert result.mean == pytest.approx(np.mean(expected), abs=1e-12)
    assert result.deviation == pytest.approx(np.std(expected), abs=1e-12)
    assert (result.units, result.draws) == (len({*np.concatenate(units)}), 40)


def test_a_pair_of_one_unit_on_both_sides_counts_once() -> None:
    one_side, two = sampled_spearman(RELEVANCE, HUMAN, [LEFT], 30), sampled_spearman(RELEVANCE, HUMAN, [LEFT, LEFT], 30)
    assert one_side == two


def test_seeded_and_the_same_in_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    first = sampled_spearman(RELEVANCE, HUMAN, [LEFT], 500, 1)
    assert first == sampled_spearman(RELEVANCE, HUMAN, [LEFT], 500, 1)
    other = sampled_spearman(RELEVANCE, HUMAN, [LEFT], 500, 2)
    assert first is not None
    assert other is not None
    assert first != other
    assert first.mean == pytest.approx(other.mean, abs=0.05)
    monkeypatch.setattr("relabel.judge.cxc_sampled._CELLS", 600)
    batches = sampled_spearman(RELEVANCE, HUMAN, [LEFT], 500, 1)
    assert batches is not None
    assert batches.mean == pytest.approx(first.mean, abs=0.05)
    assert batches.draws == 500


def test_undefined() -> None:
    assert sampled_spearman(np.ones(P), HUMAN, [LEFT], 10) is None
    assert sampled_spearman(RELEVANCE, HUMAN, [LEFT], 0) is None
    assert sampled_spearman(RELEVANCE[:3], HUMAN[:3], [np.arange(3)], 10) is None
