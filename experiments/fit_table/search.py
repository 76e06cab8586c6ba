"""Choice of a learning rate and of a loss's main parameter, by the RSUM on the validation split.

The learning rate is chosen at the default of the main parameter, then the main parameter at this rate. While the best
rate is the first or the last one, a further rate is tried beyond it. In both steps every setting is trained with one
seed and the best ones with further seeds, since a large rate may succeed with one seed and fail with the next. The
table has seeds of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Setting(NamedTuple):
    """Learning rate, and value of a row's main parameter; None for a row without one."""

    lr: float
    value: float | None


Scores = Mapping[tuple[Setting, int], float]
"""RSUM on the validation split by setting and seed; -inf if the loss was not finite."""
Missing = list[tuple[Setting, int]]
"""Settings and seeds to train next."""


def choose_setting(
    lrs: Sequence[float], values: Sequence[float], extend: int, finalists: int, seeds: Sequence[int], scores: Scores
) -> tuple[Setting | None, Missing]:
    """Return the chosen setting, or None and the trainings that the choice depends on next.

    Parameters
    ----------
    lrs : sequence of float
        Ascending.
    values : sequence of float
        Values of the main parameter, the default first; may be empty.
    extend : int
        Largest number of further learning rates.
    finalists : int
        Number of rates, and of values at the chosen rate, that are trained with all seeds. Their best mean is chosen.
    seeds : sequence of int
        The first one is that of every setting.
    scores : mapping of (Setting, seed) to float
        RSUM on the validation split of what has been trained; -inf if the loss was not finite.

    Examples
    --------
    >>> from experiments.fit_table.search import Setting, choose_setting
    >>> rates, values = [0.1, 0.2], [5, 7]
    >>> choose_setting(rates, values, 1, 1, [0], {})
    (None, [(Setting(lr=0.1, value=5), 0), (Setting(lr=0.2, value=5), 0)])
    >>> scores = {(Setting(0.1, 5), 0): 300.0, (Setting(0.2, 5), 0): 310.0}
    >>> choose_setting(rates, values, 1, 1, [0], scores)  # the best rate is the last one
    (None, [(Setting(lr=0.4, value=5), 0)])
    >>> scores[Setting(0.4, 5), 0] = 305.0
    >>> choose_setting(rates, values, 1, 1, [0], scores)
    (None, [(Setting(lr=0.2, value=7), 0)])
    >>> scores[Setting(0.2, 7), 0] = 320.0
    >>> choose_setting(rates, values, 1, 1, [0], scores)
    (Setting(lr=0.2, value=7), [])
    """
    default = values[0] if values else None
    settings = [Setting(lr, default) for lr in lrs]
    for _ in range(extend):
        if missing := _missing(settings, seeds[:1], scores):
            return None, missing
        best = max(settings, key=lambda setting: scores[setting, seeds[0]])
        if len(settings) < 2 or best not in (settings[0], settings[-1]):
            break
        settings = sorted([*settings, Setting(_beyond([s.lr for s in settings], best.lr), default)])
    chosen, missing = _best(settings, finalists, seeds, scores)
    if chosen is None or len(values) < 2:
        return chosen, missing
    return _best([Setting(chosen.lr, value) for value in values], finalists, seeds, scores)


def _best(
    settings: Sequence[Setting], finalists: int, seeds: Sequence[int], scores: Scores
) -> tuple[Setting | None, Missing]:
    """Return the best setting, of equal ones the first; or None and the trainings that are missing."""
    if missing := _missing(settings, seeds[:1], scores):
        return None, missing
    finals = sorted(settings, key=lambda setting: -scores[setting, seeds[0]])[:finalists]
    # A single setting needs no comparison.
    compared = seeds if len(finals) > 1 else seeds[:1]
    if missing := _missing(finals, compared, scores):
        return None, missing
    return max(finals, key=lambda setting: sum(scores[setting, seed] for seed in compared)), []


def _missing(settings: Sequence[Setting], seeds: Sequence[int], scores: Scores) -> Missing:
    return [(setting, seed) for setting in settings for seed in seeds if (setting, seed) not in scores]


def _beyond(grid: Sequence[float], edge: float) -> float:
    """Return the next rate beyond an edge of the grid, at the ratio of the last two, to two significant digits."""
    near = grid[1] if edge == grid[0] else grid[-2]
    return float(f"{edge * edge / near:.2g}")
