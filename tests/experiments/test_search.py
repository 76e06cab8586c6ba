"""Contract: a row's learning rate, then its main parameter, have the best score among all that were asked for; the grid
of rates grows while its best is at an edge.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from experiments.fit_table.search import Setting, best_setting, finalists, missing_settings

LRS, VALUES = (1e-3, 2e-3, 4e-3), (1.0, 0.5, 3.0)


def search(score: Callable[[Setting], float], extend: int, values: tuple[float, ...] = VALUES) -> dict[Setting, float]:
    """Train what is asked for until nothing is, and return the scores in the order of training."""
    scores: dict[Setting, float] = {}
    while missing := missing_settings(LRS, values, extend, scores):
        assert not set(missing) & set(scores), "a setting is trained twice"
        scores |= {setting: score(setting) for setting in missing}
    return scores


def test_rates_first_then_values() -> None:
    scores = search(lambda s: -abs(math.log(s.lr / 2e-3)) - (s.value != 3.0), extend=2)
    assert [s for s in scores if s.value == 1.0] == [Setting(lr, 1.0) for lr in LRS]
    assert [s for s in scores if s.value != 1.0] == [Setting(2e-3, 0.5), Setting(2e-3, 3.0)]
    assert finalists(scores, 1) == [Setting(2e-3, 3.0)]


@pytest.mark.parametrize(
    ("best", "more"), [(8e-3, [8e-3, 1.6e-2]), (5e-4, [5e-4, 2.5e-4]), (2e-3, []), (1.0, [8e-3, 1.6e-2])]
)
def test_the_grid_grows_at_its_edges(best: float, more: list[float]) -> None:
    scores = search(lambda s: -abs(math.log(s.lr / best)), extend=2, values=())
    assert [s.lr for s in scores][len(LRS) :] == more
    assert not search(lambda s: s.lr, extend=0, values=()).keys() - {Setting(lr, None) for lr in LRS}


def test_a_rate_that_diverges_is_not_chosen() -> None:
    scores = search(lambda s: -math.inf if s.lr > 1e-3 else 100.0, extend=0)
    assert finalists(scores, 1)[0].lr == 1e-3
    assert best_setting({Setting(1e-3, None): [9.0, 10.0], Setting(2e-3, None): [99.0, -math.inf]}).lr == 1e-3


def test_equal_scores_choose_the_first() -> None:
    assert finalists(search(lambda s: 1.0, extend=2), 1) == [Setting(1e-3, 1.0)]
    assert best_setting({Setting(2e-3, None): [1.0], Setting(1e-3, None): [1.0]}) == Setting(2e-3, None)
