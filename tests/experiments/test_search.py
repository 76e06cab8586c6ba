"""Contract: a row's learning rate, then its main parameter, have the best mean score over seeds among the best settings
of the first seed. The grid of rates grows while its best is at an edge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest

from experiments.fit_table.search import Setting, choose_setting

LRS, VALUES, SEEDS = (1e-3, 2e-3, 4e-3), (1.0, 0.5, 3.0), (0, 7)
Score = Callable[[Setting, int], float]


def search(
    score: Score,
    extend: int = 0,
    values: tuple[float, ...] = (),
    seeds: tuple[int, ...] = (0,),
    finalists: int = 2,
    lrs: tuple[float, ...] = LRS,
) -> tuple[Setting, list[tuple[Setting, int]]]:
    """Return the chosen setting, and the trainings in their order."""
    trained: dict[tuple[Setting, int], float] = {}

    def train(settings: Sequence[Setting], some: Sequence[int]) -> dict[Setting, float]:
        trained.update({(setting, seed): score(setting, seed) for setting in settings for seed in some})
        return {setting: sum(trained[setting, seed] for seed in some) / len(some) for setting in settings}

    return choose_setting(lrs, values, extend, finalists, seeds, train), list(trained)


def test_rates_first_then_values() -> None:
    chosen, trained = search(lambda s, _: -abs(math.log(s.lr / 2e-3)) - (s.value != 3.0), 2, VALUES)
    assert chosen == Setting(2e-3, 3.0)
    rates = [Setting(lr, 1.0) for lr in LRS]
    assert [s for s, _ in trained] == [*rates, Setting(2e-3, 0.5), Setting(2e-3, 3.0)]


@pytest.mark.parametrize(
    ("best", "more"), [(8e-3, [8e-3, 1.6e-2]), (5e-4, [5e-4, 2.5e-4]), (2e-3, []), (1.0, [8e-3, 1.6e-2])]
)
def test_the_grid_grows_at_its_edges(best: float, more: list[float]) -> None:
    _, trained = search(lambda s, _: -abs(math.log(s.lr / best)), extend=2)
    assert [s.lr for s, _ in trained][len(LRS) :] == more
    assert len(search(lambda s, _: s.lr, extend=0)[1]) == len(LRS)


def test_the_best_settings_are_compared_by_their_mean_over_seeds() -> None:
    """Check a rate that fails with the second seed, and a value that does."""

    def score(setting: Setting, seed: int) -> float:
        fails = seed == 7 and (setting.lr == 4e-3 or setting.value == 3.0)
        return -9.0 if fails else 100 * setting.lr + (setting.value or 0)

    chosen, trained = search(score, values=VALUES, seeds=SEEDS)
    assert chosen == Setting(2e-3, 1.0)
    finalists = {Setting(4e-3, 1.0), Setting(2e-3, 1.0), Setting(2e-3, 3.0)}
    assert {s for s, seed in trained if seed == 7} == finalists
    # With one finalist, the first seed decides, and no other one is trained.
    chosen, trained = search(score, values=VALUES, seeds=SEEDS, finalists=1)
    assert chosen == Setting(4e-3, 3.0)
    assert {seed for _, seed in trained} == {0}


def test_a_rate_that_diverges_is_not_chosen() -> None:
    assert search(lambda s, _: -math.inf if s.lr > 1e-3 else 100.0)[0].lr == 1e-3
    late = search(lambda s, seed: -math.inf if seed == 7 and s.lr > 1e-3 else 100 * s.lr, seeds=SEEDS, finalists=3)
    assert late[0].lr == 1e-3
