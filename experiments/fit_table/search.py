"""Choice of a learning rate and of a loss's main parameter, by the RSUM on the validation split.

The learning rate is chosen at the default of the main parameter, then the main parameter at this rate. While the best
rate is the first or the last one, a further rate is tried beyond it. In both steps every setting is trained with one
seed and the best ones with further seeds, since a large rate may succeed with one seed and fail with the next. The
table has seeds of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Setting(NamedTuple):
    """Learning rate, and value of a row's main parameter; None for a row without one."""

    lr: float
    value: float | None


Train = Callable[[Sequence[Setting], Sequence[int]], dict[Setting, float]]
"""Trains settings with seeds, each once at most, and returns the mean RSUM on val; -inf if a loss was not finite."""


def choose_setting(
    lrs: Sequence[float], values: Sequence[float], extend: int, finalists: int, seeds: Sequence[int], train: Train
) -> Setting:
    """Return the setting with the best mean RSUM over the seeds, among the best ones of the first seed.

    Parameters
    ----------
    lrs : sequence of float
        Ascending.
    values : sequence of float
        Values of the main parameter, the default first; may be empty.
    extend : int
        Largest number of further learning rates.
    finalists : int
        Number of rates, and of values at the chosen rate, that are trained with all seeds.
    seeds : sequence of int
        The first one is that of every setting.
    train : callable
    """
    default = values[0] if values else None
    settings = [Setting(lr, default) for lr in lrs]
    for _ in range(extend):
        scores = train(settings, seeds[:1])
        best = max(settings, key=scores.__getitem__)
        if len(settings) < 2 or best not in (settings[0], settings[-1]):
            break
        near = settings[1] if best == settings[0] else settings[-2]
        # At the ratio of the last two, to two significant digits.
        settings = sorted([*settings, Setting(float(f"{best.lr * best.lr / near.lr:.2g}"), default)])
    chosen = _best(settings, finalists, seeds, train)
    if len(values) < 2:
        return chosen
    return _best([Setting(chosen.lr, value) for value in values], finalists, seeds, train)


def _best(settings: Sequence[Setting], finalists: int, seeds: Sequence[int], train: Train) -> Setting:
    """Return the best setting, of equal ones the first; a single one needs no training."""
    if len(settings) == 1:
        return settings[0]
    scores = train(settings, seeds[:1])
    finals = sorted(settings, key=lambda setting: -scores[setting])[:finalists]
    # A single setting needs no comparison.
    scores = train(finals, seeds if len(finals) > 1 else seeds[:1])
    return max(finals, key=scores.__getitem__)
