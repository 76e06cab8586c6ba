"""Contract: NAME=VALUE settings and weights of losses accept only finite numbers of plausible size."""

from __future__ import annotations

import pytest

from relabel_train.reference.objective import Objective
from relabel_train.reference.options import FitError, parse_settings


def test_values_are_json_or_text() -> None:
    settings = ("a=1", "b=[0.5, 2]", "c=soft", "d=true", "e==")
    expected = {"a": 1, "b": [0.5, 2], "c": "soft", "d": True, "e": "="}
    assert parse_settings(settings) == expected


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e400", "1e10", "-10000000000", "[0.5, NaN]", "1" + "0" * 400])
def test_implausible_numbers_are_refused(value: str) -> None:
    with pytest.raises(FitError, match="margin: expected numbers"):
        parse_settings((f"margin={value}",))


@pytest.mark.parametrize("weight", ["nan", "inf", "-inf", "1e10", "", "x"])
def test_implausible_weights_are_refused(weight: str) -> None:
    with pytest.raises(FitError, match="is no weight"):
        Objective([f"triplet:{weight}"])
