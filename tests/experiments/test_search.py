"""Contract: the best mean over the seeds decides. Every setting is trained with the first seed, the best ones with all,
and a single setting not at all.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments.fit_table.search import Setting, choose_setting

SCORES = {(0.001, 0): 300.0, (0.002, 0): 340.0, (0.005, 0): 350.0, (0.005, 1): 100.0, (0.002, 1): 330.0}


def test_a_rate_that_succeeds_with_one_seed_only_is_not_chosen() -> None:
    trained: list[tuple[float, int]] = []

    def train(settings: Sequence[Setting], seeds: Sequence[int]) -> dict[Setting, float]:
        trained.extend((setting.lr, seed) for setting in settings for seed in seeds)
        return {s: sum(SCORES[s.lr, seed] for seed in seeds) / len(seeds) for s in settings}

    assert choose_setting((0.001, 0.002, 0.005), (), 0, 2, (0, 1), train) == Setting(0.002, None)
    assert (0.001, 1) not in trained
    assert choose_setting((0.001, 0.002, 0.005), (), 0, 1, (0, 1), train) == Setting(0.005, None)
    trained.clear()
    assert choose_setting((0.003,), (0.2,), 0, 2, (0, 1), train) == Setting(0.003, 0.2)
    assert not trained
