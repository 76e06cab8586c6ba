"""Checks of the parameters of losses."""

from __future__ import annotations

import math


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise for a value that is not among `choices`.

    Raises
    ------
    ValueError
        Naming the parameter, the value and the choices.
    """
    if value not in choices:
        raise ValueError(f"{name} is {value!r}, not one of {', '.join(map(repr, choices))}")


def check_number(name: str, value: float, above: float | None = None, at_least: float | None = None) -> None:
    """Raise for a number that is not finite or too small.

    Raises
    ------
    ValueError
        Naming the parameter, the value and the bound.
    """
    # First, since every comparison with NaN is false.
    if not math.isfinite(value):
        raise ValueError(f"{name} is {value}, not a finite number")
    if above is not None and not value > above:
        raise ValueError(f"{name} is {value}, not above {above:g}")
    if at_least is not None and not value >= at_least:
        raise ValueError(f"{name} is {value}, not {at_least:g} or more")
