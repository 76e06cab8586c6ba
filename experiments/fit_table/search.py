"""Choice of a learning rate and of a loss's main parameter, by the RSUM on the validation split.

The learning rate is chosen at the default of the main parameter, then the main parameter at this rate. While the best
rate is the first or the last one, a further rate is tried beyond it. The best settings are trained again with other
seeds, since a large rate may succeed with one seed and fail with the next. The table has seeds of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Setting(NamedTuple):
    """Learning rate, and value of a row's main parameter; None for a row without one."""

    lr: float
    value: float | None


def missing_settings(
    lrs: Sequence[float], values: Sequence[float], extend: int, scores: Mapping[Setting, float]
) -> list[Setting]:
    """Return the settings to train next; an empty list if `best_setting` can choose.

    Parameters
    ----------
    lrs : sequence of float
        Ascending.
    values : sequence of float
        Values of the main parameter, the default first; may be empty.
    extend : int
        Largest number of further learning rates.
    scores : mapping of Setting to float
        RSUM on the validation split of the settings that have been trained; -inf if the loss was not finite.

    Examples
    --------
    >>> from experiments.fit_table.search import Setting, missing_settings
    >>> missing_settings([0.1, 0.2], [5, 7], 1, {})
    [Setting(lr=0.1, value=5), Setting(lr=0.2, value=5)]
    >>> scores = {Setting(0.1, 5): 300.0, Setting(0.2, 5): 310.0}
    >>> missing_settings([0.1, 0.2], [5, 7], 1, scores)  # the best rate is the last one
    [Setting(lr=0.4, value=5)]
    >>> missing_settings([0.1, 0.2], [5, 7], 1, scores | {Setting(0.4, 5): 305.0})
    [Setting(lr=0.2, value=7)]
    """
    default = values[0] if values else None
    grid = list(lrs)
    if missing := [Setting(lr, default) for lr in grid if Setting(lr, default) not in scores]:
        return missing
    for _ in range(extend):
        best = max(grid, key=lambda lr: scores[Setting(lr, default)])
        if len(grid) < 2 or best not in (grid[0], grid[-1]):
            break
        further = _beyond(grid, best)
        if Setting(further, default) not in scores:
            return [Setting(further, default)]
        grid = sorted([*grid, further])
    chosen = max(grid, key=lambda lr: scores[Setting(lr, default)])
    return [Setting(chosen, value) for value in values[1:] if Setting(chosen, value) not in scores]


def finalists(scores: Mapping[Setting, float], count: int) -> list[Setting]:
    """Return the settings of the best RSUM, falling; of equal ones the first.

    Examples
    --------
    >>> from experiments.fit_table.search import Setting, finalists
    >>> finalists({Setting(0.1, None): 300.0, Setting(0.2, None): 310.0, Setting(0.4, None): 20.0}, 2)
    [Setting(lr=0.2, value=None), Setting(lr=0.1, value=None)]
    """
    return sorted(scores, key=lambda setting: -scores[setting])[:count]


def best_setting(scores: Mapping[Setting, Sequence[float]]) -> Setting:
    """Return the setting of the best mean RSUM over seeds; of equal ones the first.

    Examples
    --------
    >>> from experiments.fit_table.search import Setting, best_setting
    >>> best_setting({Setting(0.2, None): [310.0, 20.0], Setting(0.1, None): [300.0, 305.0]})
    Setting(lr=0.1, value=None)
    """
    return max(scores, key=lambda setting: sum(scores[setting]) / len(scores[setting]))


def _beyond(grid: Sequence[float], edge: float) -> float:
    """Return the next rate beyond an edge of the grid, at the ratio of the last two, to two significant digits."""
    near = grid[1] if edge == grid[0] else grid[-2]
    return float(f"{edge * edge / near:.2g}")
