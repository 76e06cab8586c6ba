"""Contract: settings NAME=VALUE are JSON or text, and weights of losses are finite numbers of plausible size."""

from __future__ import annotations

import pytest

from relabel_train.reference.objective import Objective
from relabel_train.reference.options import FitError, parse_settings


def test_values_are_json_or_text() -> None:
    settings = ("a=1", "b=[0.5, 2]", "c=soft", "d=true", "e==")
    expected = {"a": 1, "b": [0.5, 2], "c": "soft", "d": True, "e": "="}
    assert parse_settings(settings) == expected


@pytest.mark.parametrize("weight", ["nan", "inf", "-inf", "1e10", "", "x"])
def test_implausible_weights_are_refused(weight: str) -> None:
    with pytest.raises(FitError, match="is no weight"):
        Objective([f"triplet:{weight}"])
