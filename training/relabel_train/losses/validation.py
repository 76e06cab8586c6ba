"""Checks of the parameters of losses."""

from __future__ import annotations

import math


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise for a value that is not among `choices`.

    Raises
    ------
    ValueError
        Naming the parameter, the value and the choices.

    Examples
    --------
    >>> from relabel_train.losses.validation import check_choice
    >>> check_choice("reduction", "total", ("sum", "mean"))
    Traceback (most recent call last):
    ValueError: reduction is 'total', not one of 'sum', 'mean'
    """
    if value not in choices:
        raise ValueError(f"{name} is {value!r}, not one of {', '.join(map(repr, choices))}")


def check_number(name: str, value: float, above: float | None = None, at_least: float | None = None) -> None:
    """Raise for a number that is not finite or too small.

    Raises
    ------
    ValueError
        Naming the parameter, the value and the bound.

    Examples
    --------
    >>> from relabel_train.losses.validation import check_number
    >>> check_number("tau", 0.0, above=0)
    Traceback (most recent call last):
    ValueError: tau is 0.0, not above 0
    """
    # First, since every comparison with NaN is false.
    if not math.isfinite(value):
        raise ValueError(f"{name} is {value}, not a finite number")
    if above is not None and not value > above:
        raise ValueError(f"{name} is {value}, not above {above:g}")
    if at_least is not None and not value >= at_least:
        raise ValueError(f"{name} is {value}, not {at_least:g} or more")
